/**
 * Tracks the positions of the sessions of this process, as they are stored: sessions without messages in flight share the position of the
 * node, others have their own, and shared subscriptions have one per group. A stored position is never ahead of its session.
 */
import type { SessionName, SessionPositions } from '#api/messages/index.ts'
import type { Outbound } from '../session.ts'
import type { Cursor } from './cursors.ts'
import { settle } from './cursors.ts'
import type { SessionDelivery } from './session-delivery.ts'
import type { Groups } from './groups.ts'
import type { SessionState, SessionStates } from './session-state.ts'
import { nameOf, subscriptionsOn } from './session-state.ts'

type Moved = SessionPositions['moved'][number]
/** Reported positions of sessions besides that of the node, and functions that undo the report. */
type SessionReport = {
  moved: Moved[]
  done: SessionPositions['done'][number][]
  skipped: SessionPositions['skipped'][number][]
  undoing: (() => void)[]
}

export class OffsetTracker {
  readonly #delivery: SessionDelivery
  readonly #groups: Groups
  readonly #states: SessionStates
  /** Sessions that have ended and whose end is not stored yet. */
  readonly #closing = new Set<Moved[]>()

  constructor(delivery: SessionDelivery, groups: Groups, states: SessionStates) {
    this.#delivery = delivery
    this.#groups = groups
    this.#states = states
  }

  /** The position from which the session would resume. */
  of(cursor: Cursor): string | undefined {
    return settle(cursor) ?? this.#delivery.position
  }

  /** The positions to store. */
  take(): SessionPositions {
    const report: SessionReport = { moved: [...this.#closing].flat(), done: [], skipped: [], undoing: [] }
    const shared = this.#groups.take()
    for (const one of this.#states.values()) if (one.session.isPersistent) takeSession(one, report)
    const { moved, done, skipped, undoing } = report
    return {
      node: this.#delivery.position,
      moved,
      done,
      skipped,
      groups: shared.report,
      undo() {
        shared.undo()
        for (const undo of undoing) undo()
      },
    }
  }

  /** The positions of a session that is closed with its messages in flight. */
  atEnd({ session, cursors }: SessionState): { filter: string; position: string }[] {
    const here = this.#delivery.position
    return [...session.subscriptions.values()].flatMap(({ filter, streamKey, group }) => {
      if (group !== undefined) return []
      const cursor = cursors.get(streamKey)
      const position = cursor?.mode === 'live' ? (here ?? cursor.token) : cursor?.token
      return position === undefined ? [] : [{ filter, position }]
    })
  }

  /** Reports an ended session with the others until its end is stored. */
  closing({ session, cursors }: SessionState): Disposable {
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

function takeSession(one: SessionState, report: SessionReport): void {
  const session = nameOf(one.session)
  const missed = one.skipped
  if (missed > 0) {
    report.skipped.push({ session, messages: missed })
    one.skipped = 0
    report.undoing.push(() => (one.skipped += missed))
  }
  for (const cursor of one.cursors.values()) takePosition(session, cursor, report)
  if (one.finished.length === 0) return
  const finished = takeFinished(one)
  for (const { ordinal } of finished) report.done.push({ session, ordinal })
  report.undoing.push(() => one.finished.push(...finished))
}

function takePosition(session: SessionName, cursor: Cursor, { moved, undoing }: SessionReport): void {
  const position = settle(cursor)
  if (position === cursor.stored && cursor.isStored) return
  cursor.stored = position
  cursor.isStored = true
  undoing.push(() => (cursor.isStored = false))
  for (const { filter } of subscriptionsOn(cursor.session, cursor.streamKey)) moved.push({ session, filter, position })
}

/** Takes finished messages of completed batches. */
function takeFinished({ cursors, finished }: SessionState): Outbound[] {
  const isUnderWay = ({ batch, streamKey }: Outbound) =>
    batch !== undefined && cursors.get(streamKey)?.batches.includes(batch) === true
  const done = finished.filter((outbound) => !isUnderWay(outbound))
  if (done.length > 0) finished.splice(0, finished.length, ...finished.filter(isUnderWay))
  return done
}
