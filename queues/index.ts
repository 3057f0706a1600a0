/**
 * The interface between the platform and the task managers: queue tables that one writes and the other reads, with both ends in one
 * module. Processing of rows is passed in.
 */
export { HELD_SECONDS, adoptPublication, pauseTask, releaseTask } from './task-pauses.ts'
export { whyUnusable } from './channel-state.ts'
export type { ReadChannel, ReadableChannel, RecordQuery, StoredRecord } from './channel-records.ts'
export {
  clearMessageRefusals,
  deferStart,
  hintBatches,
  lockClaims,
  refuseBatch,
  returnMessages,
  settleMessages,
  startBatchReader,
} from './batches.ts'
export type {
  BatchTask,
  Busy,
  Claims,
  ClaimedMessage,
  Endings,
  MessageBatch,
  PlanBatches,
  RefusedMessages,
  WaitingMessage,
} from './batches.ts'
export { unpackLeft } from './packs.ts'
export {
  answeringTask,
  makeCommandRunsDue,
  handCommands,
  hintCommandRuns,
  releaseCommandRun,
  startCommandReader,
} from './command-runs.ts'
export type {
  AnsweringTask,
  Answers,
  CommandEnd,
  CommandFate,
  CommandReader,
  CommandRun,
  CommandTransition,
  RunOfCommand,
} from './command-runs.ts'
export { contentOf, handMatches, hintMessages, queueMessages, startMessageReader } from './messages.ts'
export type { DroppedRuns, MessageOutcome, NewMessage, QueuedMessage, StoredMessage } from './messages.ts'
export { createMessageContents, removeUnusedContents } from './message-contents.ts'
export type { ContentRef, MessageContents } from './message-contents.ts'
export { HELD_CALLS, holdCall, releaseHeld, releaseLeft } from './held-publications.ts'
export { hintPublications, publicationsOf, publishCall, startPublicationReader } from './publications.ts'
export type {
  CallPublication,
  QueuedPublication,
  RefusedFate,
  RefusedPublication,
  ResultPublication,
} from './publications.ts'
export {
  LETTER_SOURCES,
  discardLetters,
  listLetters,
  removeLettersOf,
  removeOldLetters,
  retryLetters,
  tasksWithLetters,
} from './dead-letters.ts'
export type { LetterSource, StoredLetter } from './dead-letters.ts'
export { QUEUE_METRICS, queueGauges } from './metrics.ts'
export { MAX_OPEN_REPLAYS, openReplay, startReplayReader } from './replays.ts'
export type { NewReplay, OpenReplay, ReplayStep } from './replays.ts'
export { boundQueuedBytes, readQueuedBytes } from './sizes.ts'
export { RULES_TOPIC, endedRuleCalls, hintRuleCalls, startRuleCallReader } from './rule-calls.ts'
export type { RuleCall, RuleCallFate, RunOfCall } from './rule-calls.ts'
export { isTemporary } from './temporary.ts'
export type { GivenMessages, SenmlRecord, TriggerMessage } from './trigger-message.ts'
export {
  COMPARATORS,
  EXCESS,
  MAX_BATCH,
  MAX_WAITING,
  ORDERINGS,
  countDropped,
  countExpired,
  coversSubtopic,
  listSoonExpired,
  listTriggersBehind,
  lockTriggerBehind,
  matchingRecords,
  readServedTriggers,
  readTriggerFilters,
  readTriggerRules,
  roomOf,
  storeTriggerPlace,
  writeTrigger,
} from './triggers.ts'
export type {
  Comparator,
  Excess,
  Ordering,
  ServedFilter,
  StoredTriggerRule,
  TriggerFilter,
  TriggerRule,
} from './triggers.ts'
export { hasRemainders, listRemainders, lockRemainder, storeRemainder, storeRemainders } from './trigger-remainders.ts'
export type { StoredRemainder, TriggerRemainder } from './trigger-remainders.ts'
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
export { TASK_AMOUNTS, countTaskAmount, countTaskAmountOf } from './task-amounts.ts'
export type { TaskAmount } from './task-amounts.ts'
export { clearRefusals, operationOf, recordRefusals } from './task-errors.ts'
export type { FirstRefusal, TaskErrorSource, TaskRefusal } from './task-errors.ts'
export { startTaskEventFanOut, taskEventId } from './task-event-fan-out.ts'
export type { TaskEventFanOut, TaskEventFollower, TaskEventFollowing } from './task-event-fan-out.ts'
export type { TaskEvent } from './task-events.ts'
export type { RunCounts, TaskCounts, WorkerCounts } from './task-overview.ts'
