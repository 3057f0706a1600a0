/**
 * One reader of the task events for all followers of this process, each with its own domains. A follower with a position first reads up
 * to the shared reader on its own, then joins it.
 */
import { ServiceError } from '#core/errors/index.ts'
import { comparePositions, formatPosition, parsePosition, settledEnd } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { isExpired, readEvents } from './task-events.ts'
import type { TaskEvent } from './task-events.ts'

/** Polling interval while there are followers; a change of this process is read at once. */
const READ_INTERVAL_MS = 250

export type TaskEventFollower = {
  /** Whether the follower may see the event. Asked for each event, so that changed rights are in force at once. */
  sees(event: TaskEvent): boolean
  deliver(event: TaskEvent): void
  /** Events before the next one are no longer stored. */
  gap(): void
  /** Resolves when delivered events were sent. A follower that reads past events gets no more before. */
  drained(): Promise<void>
  /** Past events are no longer read. */
  isEnded(): boolean
  /** The process is stopping. */
  stop(): void
}

export type TaskEventFollowing = { readonly position: string; close(): void }

export type TaskEventFanOut = {
  /** Events from now on, or after the event with this id. Throws `malformed` for an invalid id. */
  follow(follower: TaskEventFollower, lastEventId: string | undefined): Promise<TaskEventFollowing>
  /** This process committed a change: reads at once. */
  wake(): void
  stop(): Promise<void>
}

type EventPosition = Position & { index: number }
type Following = { follower: TaskEventFollower; after: EventPosition }

export function startTaskEventFanOut(database: Database, logger: Logger): TaskEventFanOut {
  const followers = new Set<Following>()
  let position: Position | undefined

  const rounds = startRounds(async () => {
    if (followers.size === 0) {
      position = undefined
      return { pauseMs: READ_INTERVAL_MS, isWakeable: true }
    }
    try {
      position ??= await settledEnd(database.db)
      const { events, position: read, isAll } = await readEvents(database.db, position)
      for (const following of followers) deliver(following, events)
      position = read
      return { pauseMs: isAll ? READ_INTERVAL_MS : 0, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to read task events; retrying')
      return { pauseMs: READ_INTERVAL_MS, isWakeable: false }
    }
  })

  function deliver(following: Following, events: readonly TaskEvent[]): void {
    const { follower } = following
    for (const event of events) {
      if (compare(event, following.after) <= 0) continue
      following.after = { ...event.position, index: event.index }
      if (follower.sees(event)) follower.deliver(event)
    }
  }

  /** Reads from the follower's position until it has caught up with the shared reader. */
  async function join(following: Following): Promise<void> {
    while (!following.follower.isEnded()) {
      const from = { xid: following.after.xid, seq: following.after.seq - 1 }
      const { events, position: read, isAll } = await readEvents(database.db, from)
      if (following.follower.isEnded()) return
      deliver(following, events)
      if (comparePositions(following.after, read) < 0) following.after = { ...read, index: Number.MAX_SAFE_INTEGER }
      if (isAll && (position === undefined || comparePositions(position, read) <= 0)) {
        position ??= read
        followers.add(following)
        return
      }
      await following.follower.drained()
    }
  }

  return {
    async follow(follower, lastEventId) {
      const last = lastEventId === undefined ? undefined : parseEventId(lastEventId)
      const after = last ?? { ...(await settledEnd(database.db)), index: Number.MAX_SAFE_INTEGER }
      const following: Following = { follower, after }
      if (last !== undefined && (await isExpired(database.db, last))) follower.gap()
      const begin = formatId(after)
      await join(following)
      return {
        position: begin,
        close: () => void followers.delete(following),
      }
    },
    wake: () => rounds.wake(),
    async stop() {
      for (const { follower } of followers) follower.stop()
      followers.clear()
      await rounds.stop()
    },
  }
}

/** The id of an event in streams. */
export function taskEventId({ position, index }: Pick<TaskEvent, 'position' | 'index'>): string {
  return formatId({ ...position, index })
}

const formatId = ({ index, ...position }: EventPosition) => `${formatPosition(position)}-${index}`

function compare(event: TaskEvent, after: EventPosition): number {
  return comparePositions(event.position, after) || event.index - after.index
}

function parseEventId(text: string): EventPosition {
  const at = text.lastIndexOf('-')
  const index = Number(text.slice(at + 1))
  if (at < 0 || !Number.isSafeInteger(index))
    throw new ServiceError('malformed', 'Last-Event-ID must be the id of an event')
  return { ...parsePosition(text.slice(0, at)), index }
}
