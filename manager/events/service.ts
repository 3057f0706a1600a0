/**
 * `/events`: one reader of the log for all who follow it here, each with his own domains. Who comes with a position reads
 * up to the others by himself and then goes on with them.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { LOG_START, comparePositions, parsePosition, settledEnd, startRounds } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import type { DomainReach, TaskAccess, TaskCaller } from '../access/access.ts'
import { isForgotten, readEvents } from '../store/events.ts'
import type { TaskEvent } from '../store/events.ts'

/** How often the log is read while somebody follows it; a change of this process is read at once. */
const READ_INTERVAL_MS = 250
/** Streams of one process, and of one user in it: what each may see is looked up again and again. */
const MAX_FOLLOWERS = 500
const MAX_FOLLOWERS_PER_USER = 64

export type EventsDeps = {
  database: Database
  access: TaskAccess
  logger: Logger
}

export type Follower = {
  deliver(event: TaskEvent): void
  /** Events before the next one were forgotten already. */
  gap(): void
  end(reason: 'unauthenticated' | 'forbidden' | 'stopping'): void
}

type SeenDomains = ReadonlySet<number> | 'all' | 'no domain'
type Seen = { tasks: SeenDomains; workers: SeenDomains }
type Following = { follower: Follower; seen: Seen; after: EventPosition }
type EventPosition = Position & { index: number }

const NOTHING: Seen = { tasks: new Set(), workers: new Set() }

export type EventsService = ReturnType<typeof createEventsService>

export function createEventsService({ database, access, logger }: EventsDeps) {
  const followers = new Set<Following>()
  const slots = new Slots({
    what: 'streams of task events',
    max: MAX_FOLLOWERS,
    share: MAX_FOLLOWERS_PER_USER,
    per: 'user',
  })
  const watch = startAccessWatch()
  let position: Position | undefined

  const rounds = startRounds(async () => {
    if (followers.size === 0) {
      position = undefined
      return { pauseMs: READ_INTERVAL_MS, isPokable: true }
    }
    try {
      position ??= await settledEnd(database.db)
      const { events, position: read, isAll } = await readEvents(database.db, position)
      for (const following of followers) deliver(following, events)
      position = read
      return { pauseMs: isAll ? READ_INTERVAL_MS : 0, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to read the events of tasks')
      return { pauseMs: READ_INTERVAL_MS, isPokable: false }
    }
  })

  function deliver(following: Following, events: readonly TaskEvent[]): void {
    for (const event of events) {
      if (compare(event, following.after) <= 0) continue
      following.after = { ...event.position, index: event.index }
      if (isSeen(event, following.seen)) following.follower.deliver(event)
    }
  }

  async function seenBy(caller: TaskCaller): Promise<Seen> {
    const [tasks, workers] = await Promise.all([
      access.domains(caller, 'task_read'),
      access.domains(caller, 'worker_read'),
    ])
    const keys = (domains: DomainReach) =>
      typeof domains === 'string' ? domains : new Set(domains.map(({ key }) => key))
    return { tasks: keys(tasks), workers: keys(workers) }
  }

  /** Reads from the follower's position until it has caught up with the others. */
  async function join(following: Following): Promise<void> {
    for (;;) {
      const from = { xid: following.after.xid, seq: following.after.seq - 1 }
      const { events, position: read, isAll } = await readEvents(database.db, from)
      deliver(following, events)
      if (comparePositions(following.after, read) < 0) following.after = { ...read, index: Number.MAX_SAFE_INTEGER }
      if (isAll && (position === undefined || comparePositions(position, read) <= 0)) {
        position ??= read
        followers.add(following)
        return
      }
    }
  }

  return {
    /**
     * Events of the caller's domains from now on, or after the event with this id. `authenticate` is asked again while
     * the stream is open. Throws `malformed` for an id that is none, `rate_limited` and `unavailable` with too many
     * followers.
     */
    async follow(
      authenticate: () => Promise<TaskCaller>,
      lastEventId: string | undefined,
      follower: Follower,
    ): Promise<{ close(): void }> {
      const last = lastEventId === undefined ? undefined : parseEventId(lastEventId)
      const caller = await authenticate()
      const leave = await slots.take(caller?.key ?? null)
      let unwatch = () => undefined as void
      const close = () => {
        unwatch()
        followers.delete(following)
        leave()
      }
      const after = { ...LOG_START, index: Number.MAX_SAFE_INTEGER }
      const following: Following = { follower, seen: NOTHING, after }
      try {
        following.seen = await seenBy(caller)
        following.after = last ?? { ...(await settledEnd(database.db)), index: Number.MAX_SAFE_INTEGER }
        if (last !== undefined && (await isForgotten(database.db, last))) follower.gap()
        await join(following)
        unwatch = watch.add({
          async authorize() {
            const seen = await seenBy(await authenticate())
            if (isNothing(seen) && !isNothing(following.seen))
              throw new ServiceError('forbidden', 'no domain is left in which tasks or workers may be read')
            following.seen = seen
          },
          lost(kind) {
            close()
            follower.end(kind === 'unauthenticated' ? kind : 'forbidden')
          },
        })
        return { close }
      } catch (error) {
        close()
        throw error
      }
    },

    /** Something was written here: read now. */
    wake: () => rounds.wake(),

    async stop(): Promise<void> {
      watch.stop()
      for (const { follower } of followers) follower.end('stopping')
      followers.clear()
      await rounds.stop()
    },
  }
}

/** Workers of the platform are everybody's business: that they exist is shown to all. */
function isSeen({ kind, domainKey }: TaskEvent, { tasks, workers }: Seen): boolean {
  const domains = kind === 'worker' ? workers : tasks
  if (domains === 'all') return true
  if (domainKey === null) return kind === 'worker' || domains === 'no domain'
  return domains !== 'no domain' && domains.has(domainKey)
}

function isNothing({ tasks, workers }: Seen): boolean {
  return typeof tasks !== 'string' && typeof workers !== 'string' && tasks.size + workers.size === 0
}

function compare(event: TaskEvent, after: EventPosition): number {
  return comparePositions(event.position, after) || event.index - after.index
}

function parseEventId(text: string): EventPosition {
  const at = text.lastIndexOf('-')
  const index = Number(text.slice(at + 1))
  if (at < 0 || !Number.isSafeInteger(index))
    throw new ServiceError('malformed', 'Last-Event-ID is not the id of an event')
  return { ...parsePosition(text.slice(0, at)), index }
}
