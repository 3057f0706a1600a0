/**
 * The interface between the platform and the task managers: queue tables that one writes and the other reads, with both ends in one
 * module. Processing of rows is passed in.
 */
export type { ReadChannel, ReadableChannel, RecordQuery, StoredRecord } from './channel-records.ts'
export { handMatches, hintMessages, startMessageReader } from './messages.ts'
export type { MessageOutcome, NewMessage, QueuedMessage } from './messages.ts'
export { hintPublications, publicationsOf, publishCall, startPublicationReader } from './publications.ts'
export type { CallPublication, QueuedPublication, ResultPublication } from './publications.ts'
export { QUEUE_METRICS, queueGauges } from './metrics.ts'
export { MAX_OPEN_REPLAYS, openReplay, startReplayReader } from './replays.ts'
export type { NewReplay, OpenReplay, ReplayStep } from './replays.ts'
export { isTemporary } from './temporary.ts'
export type { SenmlRecord, TriggerMessage } from './trigger-message.ts'
export { COMPARATORS, coversSubtopic, matchingRecords, readTriggerRules, writeTrigger } from './triggers.ts'
export type { Comparator, StoredTriggerRule, TriggerRule } from './triggers.ts'
export { findTasksNamed, findWorkflowsNamed } from './task-names.ts'
export type { FoundNames, NamedTask, NamedWorkflow, NameSearch } from './task-names.ts'
export {
  countAliveWorkers,
  countModuleBytes,
  countOpenRuns,
  countRuns,
  countTasks,
  countWorkers,
} from './task-overview.ts'
export { startTaskEventFanOut, taskEventId } from './task-event-fan-out.ts'
export type { TaskEventFanOut, TaskEventFollower, TaskEventFollowing } from './task-event-fan-out.ts'
export type { TaskEvent } from './task-events.ts'
export type { RunCounts, TaskCounts, WorkerCounts } from './task-overview.ts'
