/**
 * Where the sessions of this process stand in the log of messages, as it is written down: those to which nothing is under way stand with
 * the node, in one position for all of them, the others each for itself, and shared subscriptions each as a group. What lies in the rows is never ahead of a session.
 */
import type { SessionName, SessionPositions } from '#api/messages/index.ts'
import type { Outbound } from '../session.ts'
import type { Cursor } from './cursors.ts'
import { settle } from './cursors.ts'
import type { Following } from './following.ts'
import type { Groups } from './groups.ts'
import type { Held, HeldSessions } from './held.ts'
import { nameOf, subscriptionsOn } from './held.ts'

type Moved = SessionPositions['moved'][number]
/** What is told of the sessions beside the position of the node, and how to take it back. */
type Told = {
  moved: Moved[]
  done: SessionPositions['done'][number][]
  skipped: SessionPositions['skipped'][number][]
  undoing: (() => void)[]
}

export class OffsetTracker {
  readonly #following: Following
  readonly #groups: Groups
  readonly #held: HeldSessions
  /** Of sessions that are gone, and whose end is not written yet. */
  readonly #closing = new Set<Moved[]>()

  constructor(following: Following, groups: Groups, held: HeldSessions) {
    this.#following = following
    this.#groups = groups
    this.#held = held
  }

  /** Where the session would have to begin again. */
  of(cursor: Cursor): string | undefined {
    return settle(cursor) ?? this.#following.position
  }

  /** What has to be written. */
  take(): SessionPositions {
    const told: Told = { moved: [...this.#closing].flat(), done: [], skipped: [], undoing: [] }
    const shared = this.#groups.take()
    for (const one of this.#held.values()) if (one.session.isPersistent) takeSession(one, told)
    const { moved, done, skipped, undoing } = told
    return {
      node: this.#following.position,
      moved,
      done,
      skipped,
      groups: shared.told,
      undo() {
        shared.undo()
        for (const undo of undoing) undo()
      },
    }
  }

  /** Of a session that is closed with everything that is under way to it. */
  atEnd({ session, cursors }: Held): { filter: string; position: string }[] {
    const here = this.#following.position
    return [...session.subscriptions.values()].flatMap(({ filter, streamKey, group }) => {
      if (group !== undefined) return []
      const cursor = cursors.get(streamKey)
      const position = cursor?.mode === 'live' ? (here ?? cursor.token) : cursor?.token
      return position === undefined ? [] : [{ filter, position }]
    })
  }

  /** Of one that is gone, and whose end is not written yet: it is told with the others until that is done. */
  closing({ session, cursors }: Held): Disposable {
    const name = nameOf(session)
    const positions: Moved[] = []
    for (const cursor of session.isPersistent ? cursors.values() : []) {
      const position = this.of(cursor)
      if (position === undefined) continue
      for (const { filter } of subscriptionsOn(session, cursor.streamKey))
        positions.push({ session: name, filter, position })
    }
    this.#closing.add(positions)
    return { [Symbol.dispose]: () => void this.#closing.delete(positions) }
  }
}

function takeSession(one: Held, told: Told): void {
  const session = nameOf(one.session)
  const missed = one.skipped
  if (missed > 0) {
    told.skipped.push({ session, messages: missed })
    one.skipped = 0
    told.undoing.push(() => (one.skipped += missed))
  }
  for (const cursor of one.cursors.values()) takePosition(session, cursor, told)
  if (one.finished.length === 0) return
  const finished = takeFinished(one)
  for (const { ordinal } of finished) told.done.push({ session, ordinal })
  told.undoing.push(() => one.finished.push(...finished))
}

function takePosition(session: SessionName, cursor: Cursor, { moved, undoing }: Told): void {
  const position = settle(cursor)
  if (position === cursor.stored && cursor.isStored) return
  cursor.stored = position
  cursor.isStored = true
  undoing.push(() => (cursor.isStored = false))
  for (const { filter } of subscriptionsOn(cursor.session, cursor.streamKey)) moved.push({ session, filter, position })
}

/** Takes those of which nothing is under way any more. */
function takeFinished({ cursors, finished }: Held): Outbound[] {
  const isUnderWay = ({ batch, streamKey }: Outbound) =>
    batch !== undefined && cursors.get(streamKey)?.batches.includes(batch) === true
  const done = finished.filter((outbound) => !isUnderWay(outbound))
  if (done.length > 0) finished.splice(0, finished.length, ...finished.filter(isUnderWay))
  return done
}
