/**
 * Where the sessions of this process stand in the log of messages, as it is written down: those to which nothing is under way stand with
 * the node, in one position for all of them, the others each for itself, and shared subscriptions each as a group. What lies in the rows is never ahead of a session.
 */
import type { SessionName, SessionPositions } from '#api/messages/index.ts'
import type { Cursor } from './cursors.ts'
import { settle } from './cursors.ts'
import type { Following } from './following.ts'
import type { Groups } from './groups.ts'
import type { Held, HeldSessions } from './held.ts'
import { nameOf, subscriptionsOn } from './held.ts'
import type { Outbound } from './session.ts'

type Moved = SessionPositions['moved'][number]

export type Standing = {
  /** Where the session would have to begin again. */
  of(cursor: Cursor): string | undefined
  /** For the keeper. */
  take(): SessionPositions
  /** Of a session that is closed with everything that is under way to it. */
  atEnd(one: Held): { filter: string; position: string }[]
  /** Of one that is gone, and whose end is not written yet: it is told with the others until that is done. */
  closing(one: Held): Disposable
}

export function createStanding(following: Following, groups: Groups, held: HeldSessions): Standing {
  const closing = new Set<Moved[]>()

  /** Takes those of which nothing is under way any more. */
  function takeFinished({ cursors, finished }: Held): Outbound[] {
    const isUnderWay = ({ step, streamKey }: Outbound) =>
      step !== undefined && cursors.get(streamKey)?.steps.includes(step) === true
    const done = finished.filter((outbound) => !isUnderWay(outbound))
    if (done.length > 0) finished.splice(0, finished.length, ...finished.filter(isUnderWay))
    return done
  }

  const of = (cursor: Cursor) => settle(cursor) ?? following.position

  return {
    of,
    take() {
      const moved: Moved[] = [...closing].flat()
      const done: { session: SessionName; ordinal: number }[] = []
      const skipped: { session: SessionName; messages: number }[] = []
      const undoing: (() => void)[] = []
      const takePosition = (session: SessionName, cursor: Cursor) => {
        const position = settle(cursor)
        if (position === cursor.stored && cursor.isStored) return
        cursor.stored = position
        cursor.isStored = true
        undoing.push(() => (cursor.isStored = false))
        for (const { filter } of subscriptionsOn(cursor.session, cursor.streamKey))
          moved.push({ session, filter, position })
      }
      const shared = groups.take()
      for (const one of held.values()) {
        if (!one.session.isPersistent) continue
        const session = nameOf(one.session)
        const missed = one.skipped
        if (missed > 0) {
          skipped.push({ session, messages: missed })
          one.skipped = 0
          undoing.push(() => (one.skipped += missed))
        }
        for (const cursor of one.cursors.values()) takePosition(session, cursor)
        if (one.finished.length === 0) continue
        const finished = takeFinished(one)
        for (const { ordinal } of finished) done.push({ session, ordinal })
        undoing.push(() => one.finished.push(...finished))
      }
      return {
        node: following.position,
        moved,
        done,
        skipped,
        groups: shared.told,
        undo() {
          shared.undo()
          for (const undo of undoing) undo()
        },
      }
    },
    atEnd({ session, cursors }) {
      const here = following.position
      return [...session.subscriptions.values()].flatMap(({ filter, streamKey, group }) => {
        if (group !== undefined) return []
        const cursor = cursors.get(streamKey)
        const position = cursor?.mode === 'live' ? (here ?? cursor.token) : cursor?.token
        return position === undefined ? [] : [{ filter, position }]
      })
    },
    closing({ session, cursors }) {
      const name = nameOf(session)
      const positions: Moved[] = []
      for (const cursor of session.isPersistent ? cursors.values() : []) {
        const position = of(cursor)
        if (position === undefined) continue
        for (const { filter } of subscriptionsOn(session, cursor.streamKey))
          positions.push({ session: name, filter, position })
      }
      closing.add(positions)
      return { [Symbol.dispose]: () => void closing.delete(positions) }
    },
  }
}
