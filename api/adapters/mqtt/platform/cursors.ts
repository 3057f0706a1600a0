/**
 * Where a session stands in the log of messages, for each channel that it follows. While it keeps pace it shares one follower
 * with all others of this process; one that fell behind, or was away, reads for itself from where it stands until it has
 * caught up with them.
 */
import type { MessageAccess } from '#api/devices/index.ts'
import type { Session, LogBatch } from '../session.ts'

export type Cursor = {
  readonly session: Session
  readonly streamKey: number
  readonly access: MessageAccess
  /** `live`: shares the follower of the channel. `own`: has one. `paused`: reads on when nothing waits any more. */
  mode: 'live' | 'own' | 'paused'
  /** The end of the last batch that it was handed; undefined: it stands where everybody does. */
  token: string | undefined
  /** Steps of which something may be under way, oldest first. */
  batches: LogBatch[]
  /** The last batch before those: everything up to it went its whole way. */
  settled: string | undefined
  /** As it lies in the rows: undefined: with its node. */
  stored: string | undefined
  /** False where nobody knows what lies there: it is written once more. */
  isStored: boolean
  /** Ends its own follower. */
  end: (() => void) | undefined
  /** Its own follower waits until nothing that it was handed waits any more. */
  onDrained: (() => void) | undefined
}

export function newCursor(
  session: Session,
  streamKey: number,
  access: MessageAccess,
  token: string | undefined,
): Cursor {
  return {
    session,
    streamKey,
    access,
    mode: token === undefined ? 'live' : 'paused',
    token,
    batches: [],
    settled: token,
    stored: token,
    isStored: true,
    end: undefined,
    onDrained: undefined,
  }
}

/** Leaves the batches behind of which nothing is under way any more, up to the first of which something is. */
export function passBatches(stands: { batches: LogBatch[]; settled: string | undefined }): void {
  const underWay = stands.batches.findIndex(({ pending }) => pending > 0)
  const passed = underWay === -1 ? stands.batches.length : underWay
  if (passed === 0) return
  stands.settled = stands.batches[passed - 1]?.token
  stands.batches = stands.batches.slice(passed)
}

/** Where the session must begin again after a crash: behind everything that went its whole way. Undefined: with its node. */
export function settle(cursor: Cursor): string | undefined {
  passBatches(cursor)
  return cursor.mode === 'live' && cursor.batches.length === 0 ? undefined : cursor.settled
}
