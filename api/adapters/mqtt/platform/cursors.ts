/**
 * The position of a session in the changelog of messages, for each channel that it follows. A session that keeps pace shares one follower
 * with all others of this process; one that fell behind, or was disconnected, has its own follower until it has caught up.
 */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { Session, LogBatch } from '../session.ts'

export type Cursor = {
  readonly session: Session
  readonly streamKey: number
  readonly access: ChannelAccess
  /** `live`: shares the follower of the channel. `own`: has its own. `paused`: continues when the queue is empty. */
  mode: 'live' | 'own' | 'paused'
  /** The end of the last delivered batch; undefined: the shared position. */
  token: string | undefined
  /** Batches that may have messages in flight, oldest first. */
  batches: LogBatch[]
  /** The last batch before those: everything up to it is completed. */
  settled: string | undefined
  /** The stored position; undefined: that of the node. */
  stored: string | undefined
  /** False when the stored position is not known: it is written again. */
  isStored: boolean
  /** Ends its own follower. */
  end: (() => void) | undefined
  /** Called when everything that was delivered by its own follower has left the queue. */
  onDrained: (() => void) | undefined
}

export function newCursor(
  session: Session,
  streamKey: number,
  access: ChannelAccess,
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

/** Removes completed batches up to the first with messages in flight. */
export function passBatches(stands: { batches: LogBatch[]; settled: string | undefined }): void {
  const underWay = stands.batches.findIndex(({ pending }) => pending > 0)
  const passed = underWay === -1 ? stands.batches.length : underWay
  if (passed === 0) return
  stands.settled = stands.batches[passed - 1]?.token
  stands.batches = stands.batches.slice(passed)
}

/** The position from which the session resumes after a crash: after everything completed. Undefined: that of the node. */
export function settle(cursor: Cursor): string | undefined {
  passBatches(cursor)
  return cursor.mode === 'live' && cursor.batches.length === 0 ? undefined : cursor.settled
}
