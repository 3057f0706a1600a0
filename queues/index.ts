/**
 * Where the platform and the task managers meet: tables that one of them writes and the other reads, both ends of each in
 * one module. What is done with a row is passed in.
 */
export type { ReadChannel, ReadableChannel, RecordQuery, StoredRecord } from './channel-records.ts'
export { handMatches, hintMessages, startMessageReader } from './messages.ts'
export type { MessageOutcome, NewMessage, QueuedMessage } from './messages.ts'
export { hintPublications, publicationsOf, publishCall, startPublicationReader } from './publications.ts'
export type { CallPublication, QueuedPublication, ResultPublication } from './publications.ts'
export { MAX_OPEN_REPLAYS, openReplay, startReplayReader } from './replays.ts'
export type { NewReplay, OpenReplay, ReplayStep } from './replays.ts'
export { isTemporary } from './temporary.ts'
export type { SenmlRecord, TriggerMessage } from './trigger-message.ts'
export { COMPARATORS, coversSubtopic, matchingRecords, readTriggerRules, writeTrigger } from './triggers.ts'
export type { Comparator, StoredTriggerRule, TriggerRule } from './triggers.ts'
