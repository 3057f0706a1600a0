/** What the exchange of the platform knows of a session beside the protocol. */
import type { SessionName } from '#api/messages/index.ts'
import type { SessionWill } from '../exchange.ts'
import type { Outbound, Session, Subscription } from '../session.ts'
import type { Cursor } from './cursors.ts'

export type Held = {
  session: Session
  clientKey: number
  /** By channel. */
  cursors: Map<number, Cursor>
  will: SessionWill | undefined
  /** Sent exactly once and done, kept until the position has passed them. */
  finished: Outbound[]
  /** Messages of the log that were on their way when the session was taken up: they are not taken again. */
  known: Set<string>
  /** Messages that were too many while it was away, since this was written down. */
  skipped: number
}

export type HeldSessions = Map<Session, Held>

/** Those with which the session itself follows the channel; of a shared one its group does. */
export function subscriptionsOn(session: Session, streamKey: number): Subscription[] {
  return [...session.subscriptions.values()].filter((one) => one.streamKey === streamKey && one.group === undefined)
}

export const nameOf = ({ key, epoch }: Session): SessionName => ({ key, epoch })
