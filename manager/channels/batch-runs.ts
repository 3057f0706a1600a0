/**
 * Starts runs for the messages of triggers with `batch` or `order`: several messages in one run, and a message after the one before it. The
 * messages are kept until the run has ended; its end removes them (manager/writer/settle-triggered.ts).
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import { findFunction } from '#guests/wasm/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { causeOfMessage } from '../model/cause.ts'
import { planBatches } from '../model/plan-batches.ts'
import { runsPerRecord } from '../model/trigger-message.ts'
import type { RunsService, SystemStart } from '../runs/service.ts'
import { writeRefusals } from '../store/refusals.ts'
import { ENDINGS } from '../writer/settle-triggered.ts'
import { LostClaims } from '../writer/start-runs.ts'
import { Paused } from './acting-user.ts'
import { ReadingRights } from './reading-right.ts'
import {
  clearMessageRefusals,
  contentOf,
  countDropped,
  deferStart,
  hintBatches,
  hintPublications,
  isTemporary,
  refuseBatch,
  releaseLeft,
  removeUnusedContents,
  returnMessages,
  startBatchReader,
  unpackLeft,
} from '#queues/index.ts'
import type { BatchTask, MessageBatch, MessageContents, RefusedMessages, TriggerMessage } from '#queues/index.ts'

export type BatchRunsDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  runs: Pick<RunsService, 'startFor'>
  contents: MessageContents
  newId: () => string
  logger: Logger
  intervalMs: number
}

export type BatchRuns = {
  /** Runs that had messages have ended, and these messages became dead letters. */
  settled(refused: readonly RefusedMessages[]): void
  stop(): Promise<void>
}

/** A start that failed with a temporary error is tried again after this time. */
const RETRY_SECONDS = 1
/** The interval at which publications are looked for that belong to runs whose end another build recorded. */
const LEFT_INTERVAL_MS = 30_000
/** Runs that are started at the same time. */
const MAX_STARTS = 500

/** `isShared`: no message of the batch can run, whatever the others are. */
type Refusal = { reason: string; isShared: boolean }

export function startBatchRuns({
  database,
  bus,
  access,
  runs,
  contents,
  newId,
  logger,
  intervalMs,
}: BatchRunsDeps): BatchRuns {
  async function refusalOf(rights: ReadingRights, batch: MessageBatch): Promise<Refusal | undefined> {
    const channels = new Set(batch.messages.map(({ message }) => message.channel_id))
    for (const channelId of channels) {
      const fault = await rights.whyUnreadable(batch.task, channelId)
      if (fault !== undefined) return { reason: fault, isShared: true }
    }
    try {
      const messages = await readMessages(batch)
      if (messages === undefined) return { reason: 'a message is no longer stored', isShared: false }
      await runs.startFor(startOf(batch, messages))
      return undefined
    } catch (error) {
      if (!(error instanceof ServiceError) || isTemporary(error)) throw error
      if (error instanceof LostClaims) return undefined
      // Only a pause refuses a run that does not drive its task for the state of the task.
      if (error.kind === 'invalid_state') throw new Paused()
      return { reason: error.message, isShared: false }
    }
  }

  /** Undefined: one is no longer stored. */
  async function readMessages({ messages }: MessageBatch): Promise<TriggerMessage[] | undefined> {
    const found = await Promise.all(
      messages.map(async (stored) =>
        stored.contentKey === null ? stored.message : (await contents.find(stored.contentKey))?.message,
      ),
    )
    return found.every((message) => message !== undefined) ? found : undefined
  }

  /** True: its run was started. */
  async function startOne(rights: ReadingRights, batch: MessageBatch): Promise<boolean> {
    const { runId, task } = batch
    try {
      const refusal = await refusalOf(rights, batch)
      if (refusal === undefined) return true
      await record(await database.transaction((tx) => refuseBatch(tx, batch, refusal)))
      hintBatches(bus)
    } catch (error) {
      if (error instanceof Paused) {
        await database.transaction((tx) => returnMessages(tx, runId))
        return false
      }
      logger.debug({ err: error, task: task.taskId }, 'failed to start a run of messages; retrying')
      await deferStart(database.db, runId, RETRY_SECONDS)
    }
    return false
  }

  async function startAll(batches: readonly MessageBatch[]): Promise<void> {
    const begun: number[] = []
    const rights = new ReadingRights({ database, access })
    const left = batches.values()
    const startSome = async () => {
      for (const batch of left) if (await startOne(rights, batch)) begun.push(batch.task.taskKey)
    }
    await Promise.all(Array.from({ length: Math.min(MAX_STARTS, batches.length) }, startSome))
    await clearMessageRefusals(database.db, begun)
  }

  /** The task shows why messages became dead letters. */
  async function record(refused: readonly RefusedMessages[]): Promise<void> {
    if (refused.length === 0) return
    await countDropped(database.db, refused)
    await writeRefusals(
      database,
      refused.map((one) => ({ ...one, source: 'message', needsAction: true })),
    )
  }

  const warn = (error: unknown) =>
    logger.warn({ err: error }, 'failed to read the messages that start runs in batches; retrying')
  const reader = startBatchReader({
    database,
    bus,
    intervalMs,
    endings: ENDINGS,
    plan: planBatches,
    newId,
    start: startAll,
    onRefused: record,
    onError: warn,
  })
  const left = startPeriodicRounds({
    firstPauseMs: LEFT_INTERVAL_MS,
    pauseMs: LEFT_INTERVAL_MS,
    async round() {
      if ((await releaseLeft(database.db, ENDINGS)) > 0) hintPublications(bus)
      await removeUnusedContents(database.db)
      if ((await unpackLeft(database.db)) > 0) hintBatches(bus)
    },
    onFailure: (error) =>
      logger.warn({ err: error }, 'failed to publish or to remove what ended runs have left; retrying'),
  })
  return {
    settled(refused) {
      hintBatches(bus)
      record(refused).catch(warn)
    },
    async stop() {
      await Promise.all([reader.stop(), left.stop()])
    },
  }
}

const paramsOf = ({ exports, function: explicit, taskName }: BatchTask) =>
  exports === null ? undefined : findFunction(exports, { explicit: explicit ?? undefined, fallback: taskName })?.params

/** A function of numbers has one record at a time. */
const isPerRecord = (task: BatchTask) => task.batch === null && runsPerRecord(paramsOf(task), task.inputCount)

function startOf({ task, runId, messages }: MessageBatch, given: readonly TriggerMessage[]): SystemStart {
  const [first] = messages
  const [message] = given
  if (first === undefined || message === undefined) throw new Error('a batch has a message')
  const { nextRecord, origin } = first
  // Several were given to it by a trigger that had another form: they are refused together, and divided.
  const perRecord = messages.length === 1 && isPerRecord(task)
  const single = perRecord ? { ...message, records: message.records.slice(nextRecord, nextRecord + 1) } : message
  const cause = causeOfMessage(origin, message.channel_id)
  return {
    taskId: task.taskId,
    domainId: task.domainId,
    origin: 'message',
    key: `batch ${runId}`,
    runId,
    drivesTask: false,
    cause: messages.length > 1 && cause.type === 'message' ? { ...cause, messages: messages.length } : cause,
    // Several were given to it by a trigger that has another form by now.
    trigger: task.batch === null && messages.length === 1 ? single : given,
    ...(perRecord ? {} : { contents: messages.map(contentOf) }),
    claims: perRecord ? 'record' : 'messages',
    traceparent: first.traceparent ?? undefined,
  }
}
