/**
 * Messages that start runs: taken from where the platform (or a replay) put them, each started once under its origin. The
 * task acts as its user: his right to read the channel is asked again at every run.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { findFunction } from '#core/wasm/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { RunsService } from '../runs/service.ts'
import { takesNumbers } from '../model/trigger-message.ts'
import { isTemporary, startMessageReader } from '#queues/index.ts'
import type { QueuedMessage, TriggerMessage } from '#queues/index.ts'

export type MessageRunsDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  intervalMs: number
}

/** A message that is worked on. */
type Work = {
  queued: QueuedMessage
  /** Asked once: why the task may not have the message, if it may not. */
  refused: Promise<string | undefined> | undefined
  /** Nothing more of it is to be started now. */
  isOver: boolean
  /** It comes again: what was started of it is then found started. */
  isBlocked: boolean
  /** Record by record where they run one by one, with the last reason. */
  dropped: number
  reason: string
}

/** One run of a message, and the key under which it is started once. */
type Part = { work: Work; trigger: TriggerMessage; key: string }

/** Runs that are started at a time. */
const MAX_STARTS = 500

export function startMessageRuns({ database, bus, access, runs, logger, intervalMs }: MessageRunsDeps): {
  stop(): Promise<void>
} {
  /** Throws `forbidden` when the task may not read the channel (any more). */
  async function requireRight({ userKey, domainId, message }: QueuedMessage): Promise<void> {
    const user = userKey === null ? undefined : await access.findUser(userKey)
    if (user === undefined || domainId === null)
      throw new ServiceError('forbidden', 'the user that the task acts as is gone or disabled')
    await access.requireChannel(user, 'subscribe', domainId, message.channel_id)
  }

  async function startPart({ work, trigger, key }: Part): Promise<void> {
    const { taskId, domainId } = work.queued
    try {
      work.refused ??= refusalOf(() => requireRight(work.queued))
      const refused = await work.refused
      if (refused !== undefined) {
        work.isOver = true
        work.dropped = 1
        work.reason = refused
        return
      }
      const reason = await refusalOf(() =>
        runs.startFor({ taskId, domainId, origin: 'message', key, drivesTask: false, trigger }),
      )
      if (reason === undefined) return
      work.dropped += 1
      work.reason = reason
    } catch (error) {
      if (!work.isOver) logger.debug({ err: error, task: taskId }, 'failed to start the runs of a message; retrying')
      work.isOver = true
      work.isBlocked = true
    }
  }

  return startMessageReader({
    database,
    bus,
    intervalMs,
    async start(messages) {
      const works = messages.map(workOf)
      // One message may be thousands of runs: they are started side by side too, or all others would wait for the last of them.
      const parts = partsOf(works)
      const startSome = async () => {
        for (const part of parts) await startPart(part)
      }
      await Promise.all(Array.from({ length: MAX_STARTS }, startSome))
      return works.map(({ isBlocked, dropped, reason }) => (isBlocked ? 'retry' : { dropped, reason }))
    },
    onError: (error) => logger.warn({ err: error }, 'failed to take the messages that start runs'),
  })
}

/** Why it was refused; undefined: it was not. Throws what may be otherwise in a moment. */
async function refusalOf(work: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await work()
    return undefined
  } catch (error) {
    if (!(error instanceof ServiceError) || isTemporary(error)) throw error
    return error.message
  }
}

function workOf(queued: QueuedMessage): Work {
  return { queued, refused: undefined, isOver: false, isBlocked: false, dropped: 0, reason: '' }
}

function* partsOf(works: readonly Work[]): Generator<Part> {
  for (const work of works) {
    const { origin } = work.queued
    for (const [index, trigger] of triggersOf(work.queued).entries()) {
      if (work.isOver) break
      yield { work, trigger, key: index === 0 ? origin : `${origin} ${index}` }
    }
  }
}

/** A function that takes numbers runs once for each record, any other once for the message. */
function triggersOf({ message, exports, inputCount, ...task }: QueuedMessage): TriggerMessage[] {
  const called =
    exports === null
      ? undefined
      : findFunction(exports, { explicit: task.function ?? undefined, fallback: task.taskName })
  const free = called?.params.slice(0, Math.max(called.params.length - inputCount, 0)) ?? []
  if (!takesNumbers(free)) return [message]
  return message.records.map((record) => ({ ...message, records: [record] }))
}
