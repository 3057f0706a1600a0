/** The state of a session in the platform backend, besides the protocol. */
import type { SessionName } from '#api/messages/index.ts'
import type { SessionWill } from '../backend.ts'
import type { Outbound, Session, Subscription } from '../session.ts'
import type { Cursor } from './cursors.ts'

export type SessionState = {
  session: Session
  clientKey: number
  /** The keys are channels. */
  cursors: Map<number, Cursor>
  will: SessionWill | undefined
  /** Completed QoS 2 messages, kept until the position has passed them. */
  finished: Outbound[]
  /** Messages of the changelog that were in flight when the session was resumed: they are not delivered again. */
  known: Set<string>
  /** Skipped messages since the last write. */
  skipped: number
}

export type SessionStates = Map<Session, SessionState>

/** The subscriptions with which the session itself follows the channel; shared ones are followed by their group. */
export function subscriptionsOn(session: Session, streamKey: number): Subscription[] {
  return [...session.subscriptions.values()].filter((one) => one.streamKey === streamKey && one.group === undefined)
}

export const nameOf = ({ key, epoch }: Session): SessionName => ({ key, epoch })
