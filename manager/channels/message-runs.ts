/**
 * Starts runs for messages: takes the messages that the platform or a replay queued, and starts each once under its
 * origin. The task acts as its user: their permission to read the channel is checked at every run.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { findFunction } from '#guests/wasm/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { RunsService } from '../runs/service.ts'
import { writeRefusals } from '../store/refusals.ts'
import { Paused } from './acting-user.ts'
import { ReadingRights } from './reading-right.ts'
import { causeOfMessage } from '../model/cause.ts'
import { triggersOf } from '../model/trigger-message.ts'
import { contentOf, isTemporary, startMessageReader } from '#queues/index.ts'
import type { ContentRef, GivenMessages, MessageContents, QueuedMessage, TriggerMessage } from '#queues/index.ts'

export type MessageRunsDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  runs: Pick<RunsService, 'startFor'>
  contents: MessageContents
  logger: Logger
  intervalMs: number
}

/** A message in progress. */
type Work = {
  queued: QueuedMessage
  /** Undefined: it was not read yet, or is no longer stored. */
  message: TriggerMessage | undefined
  /** Checked once: the reason why the task cannot have the message, if there is one. */
  refused: Promise<string | undefined> | undefined
  /** Nothing more of it is started in this round. */
  isOver: boolean
  /** It will be taken again; the runs that were started are then found by their key. */
  isBlocked: boolean
  /** The task is paused. */
  isHeld: boolean
  started: number
  /** Records that were dropped where each record runs, with the last reason. */
  dropped: number
  reason: string
}

/** One run of a message, and the key under which it is started once. */
type Part = { work: Work; trigger: GivenMessages; contents: readonly (ContentRef | null)[]; key: string }

/** Runs of a domain that are started at the same time for the messages of one step. */
const MAX_STARTS = 200
/** Messages that are stored apart and in memory at the same time, as JSON: in all, and of one domain. */
const MAX_CONTENT_BYTES = 32 * 1024 * 1024
const MAX_CONTENT_BYTES_OF_DOMAIN = MAX_CONTENT_BYTES / 2
/** Longest wait for room in memory; then the messages are tried again. */
const MAX_CONTENT_WAIT_MS = 20_000

export function startMessageRuns({ database, bus, access, runs, contents, logger, intervalMs }: MessageRunsDeps): {
  stop(): Promise<void>
} {
  const inMemory = new Slots({
    what: 'bytes of large messages',
    max: MAX_CONTENT_BYTES,
    share: MAX_CONTENT_BYTES_OF_DOMAIN,
    waitMs: MAX_CONTENT_WAIT_MS,
  })

  /** Throws `forbidden` if the task cannot read the channel, and the errors of `whyUnreadable`. */
  async function requireRight(rights: ReadingRights, queued: QueuedMessage): Promise<void> {
    const { channel_id: channelId } = queued.message
    // The right to read the channel of a replay is that of the user who started it.
    if (causeOfMessage(queued.origin, channelId).type === 'replay') return await rights.require(queued, channelId)
    const fault = await rights.whyUnreadable(queued, channelId)
    if (fault !== undefined) throw new ServiceError('forbidden', fault)
  }

  async function startPart(rights: ReadingRights, { work, trigger, contents: stored, key }: Part): Promise<void> {
    const { taskId, domainId, traceparent } = work.queued
    try {
      work.refused ??= refusalOf(() => requireRight(rights, work.queued))
      const refused = await work.refused
      if (refused !== undefined) {
        work.isOver = true
        work.dropped = 1
        work.reason = refused
        return
      }
      const reason = await refusalOf(() =>
        runs.startFor({
          taskId,
          domainId,
          origin: 'message',
          key,
          drivesTask: false,
          cause: causeOfMessage(work.queued.origin, work.queued.message.channel_id),
          trigger,
          contents: stored,
          traceparent: traceparent ?? undefined,
        }),
      )
      if (reason === undefined) {
        work.started += 1
        return
      }
      work.dropped += 1
      work.reason = reason
    } catch (error) {
      if (error instanceof Paused) {
        work.isOver = true
        work.isHeld = true
        return
      }
      if (!work.isOver) logger.debug({ err: error, task: taskId }, 'failed to start the runs of a message; retrying')
      work.isOver = true
      work.isBlocked = true
    }
  }

  /** Reads the messages that are stored apart. */
  async function readContents(works: readonly Work[]): Promise<void> {
    await Promise.all(
      works.map(async (work) => {
        const { contentKey } = work.queued
        if (contentKey === null || work.isOver) return
        try {
          work.message = (await contents.find(contentKey))?.message
          if (work.message !== undefined) return
          work.dropped = 1
          work.reason = 'the message is no longer stored'
        } catch (error) {
          logger.debug({ err: error, task: work.queued.taskId }, 'failed to read a message; retrying')
          work.isBlocked = true
        }
        work.isOver = true
      }),
    )
  }

  /** Starts the runs of messages of one domain, as many at a time as may be in memory. */
  async function startAll(rights: ReadingRights, domainId: string | null, works: readonly Work[]): Promise<void> {
    for (const { some, bytes } of withinMemory(works)) {
      let leave: (() => void) | undefined
      try {
        if (bytes > 0) leave = await inMemory.take(domainId, undefined, Math.min(bytes, MAX_CONTENT_BYTES_OF_DOMAIN))
      } catch {
        for (const work of some) work.isOver = work.isBlocked = true
        continue
      }
      try {
        await startSome(rights, some)
      } finally {
        for (const work of some) if (work.queued.contentKey !== null) work.message = undefined
        leave?.()
      }
    }
  }

  async function startSome(rights: ReadingRights, works: readonly Work[]): Promise<void> {
    await readContents(works)
    // One message can become thousands of runs: they are started concurrently, or all others would wait for the last of
    // them.
    const parts = partsOf(works)
    const startParts = async () => {
      for (const part of parts) await startPart(rights, part)
    }
    // A message becomes one run, or one for each of its records.
    const most = works.reduce((sum, { message }) => sum + Math.max(message?.records.length ?? 0, 1), 0)
    await Promise.all(Array.from({ length: Math.min(MAX_STARTS, most) }, startParts))
  }

  return startMessageReader({
    database,
    bus,
    intervalMs,
    async start(messages) {
      const rights = new ReadingRights({ database, access })
      const works = messages.map(workOf)
      const byDomain = Map.groupBy(works, ({ queued }) => queued.domainId)
      await Promise.all([...byDomain].map(([domainId, some]) => startAll(rights, domainId, some)))
      return works.map(({ isBlocked, isHeld, started, dropped, reason }) =>
        isHeld ? 'hold' : isBlocked ? 'retry' : { started, dropped, reason },
      )
    },
    onDropped: async (dropped) =>
      await writeRefusals(
        database,
        dropped.map((drop) => ({ ...drop, source: 'message', needsAction: true })),
      ),
    onError: (error) => logger.warn({ err: error }, 'failed to read the messages that start runs; retrying'),
  })
}

/** The reason of a refusal; undefined if there is none. Rethrows temporary errors and pauses. */
async function refusalOf(work: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await work()
    return undefined
  } catch (error) {
    if (!(error instanceof ServiceError) || isTemporary(error)) throw error
    // Only a pause refuses a run that does not drive its task for the state of the task.
    if (error.kind === 'invalid_state') throw new Paused()
    return error.message
  }
}

function workOf(queued: QueuedMessage): Work {
  const { isPaused } = queued
  return {
    queued,
    message: queued.contentKey === null ? queued.message : undefined,
    refused: undefined,
    isOver: isPaused,
    isBlocked: false,
    isHeld: isPaused,
    started: 0,
    dropped: 0,
    reason: '',
  }
}

function* partsOf(works: readonly Work[]): Generator<Part> {
  for (const work of works) {
    const { queued, message } = work
    const { origin } = queued
    if (message === undefined) continue
    for (const [index, trigger] of triggersOfQueued(queued, message).entries()) {
      if (work.isOver) break
      // One of its records alone is small.
      const isWhole = queued.isListed || trigger === message
      const contents = isWhole ? [contentOf(queued)] : []
      yield { work, trigger, contents, key: index === 0 ? origin : `${origin} ${index}` }
    }
  }
}

/** Yields the messages in turn, as many at a time as may be in memory, and at least one; with the bytes of those that are stored apart. */
function* withinMemory(works: readonly Work[]): Generator<{ some: Work[]; bytes: number }> {
  let some: Work[] = []
  let keys = new Set<number>()
  let bytes = 0
  for (const work of works) {
    const content = contentOf(work.queued)
    if (content !== null && !keys.has(content.key)) {
      if (bytes + content.bytes > MAX_CONTENT_BYTES_OF_DOMAIN && some.length > 0) {
        yield { some, bytes }
        ;[some, keys, bytes] = [[], new Set(), 0]
      }
      keys.add(content.key)
      bytes += content.bytes
    }
    some.push(work)
  }
  if (some.length > 0) yield { some, bytes }
}

function triggersOfQueued(
  { exports, inputCount, isListed, ...task }: QueuedMessage,
  message: TriggerMessage,
): GivenMessages[] {
  if (isListed) return [[message]]
  const called =
    exports === null
      ? undefined
      : findFunction(exports, { explicit: task.function ?? undefined, fallback: task.taskName })
  return triggersOf(message, called?.params, inputCount)
}
