/** Resumes a session on a connection: restores its rows, and its subscriptions that are still allowed. */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { Messages, OpenedSession, SessionStore, StoredSubscription } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { OpenRequest } from '../backend.ts'
import type { SessionHost, Subscription } from '../session.ts'
import { Session, roleOf } from '../session.ts'
import { parseShared } from '../shared-filter.ts'
import type { ConnectionAuthorizer } from './access.ts'
import type { Cursor } from './cursors.ts'
import { newCursor } from './cursors.ts'
import type { DeviceSubscriptions } from './device-subscriptions.ts'
import type { SessionDelivery } from './session-delivery.ts'
import type { Groups } from './groups.ts'
import type { SessionState } from './session-state.ts'
import { fromStoredOutbound, optionsOf, toStoredSubscription } from './stored-rows.ts'

/** The state of a session that is not stored. */
const NOTHING_STORED: OpenedSession = {
  key: 0,
  epoch: 0,
  isPresent: false,
  isNewSession: false,
  isNewConnection: false,
  subscriptions: [],
  received: [],
  outbound: [],
  endedWill: undefined,
}

/** A session with its messages in flight; it follows no channel yet. */
export function restoreSession(
  { identity, clientIdentifier, connect, expirySeconds, will }: OpenRequest,
  host: SessionHost,
  opened: OpenedSession = NOTHING_STORED,
): SessionState {
  const { key, epoch } = opened
  const options = { key, epoch, identity, clientIdentifier, expirySeconds, ...roleOf(connect) }
  const session = new Session(options, host)
  const known = new Set<string>()
  for (const stored of opened.outbound) {
    if (stored.batchSeq !== undefined && stored.facts.isShared !== true)
      known.add(`${stored.batchSeq} ${stored.message}`)
    session.restore(fromStoredOutbound(stored))
  }
  for (const packetId of opened.received) session.received.add(packetId)
  return { session, clientKey: identity.ownerKey ?? 0, cursors: new Map(), will, finished: [], known, skipped: 0 }
}

export type ResumingDeps = {
  admission: ConnectionAuthorizer
  messages: Messages
  store: SessionStore
  delivery: SessionDelivery
  groups: Groups
  ofDevices: DeviceSubscriptions
  onSubscribed: () => void
}

/** Resumes the subscriptions of an earlier connection; those that are no longer allowed are removed. */
export async function resumeSubscriptions(
  one: SessionState,
  stored: readonly StoredSubscription[],
  { admission, messages, store, delivery, groups, ofDevices, onSubscribed }: ResumingDeps,
): Promise<void> {
  const { session } = one
  const lost: string[] = []
  const behind: Cursor[] = []
  const shared: Subscription[] = []
  const ungrouped: StoredSubscription[] = []
  for (const row of stored) {
    const subscription = await allowed(row, session, admission)
    if (subscription === undefined) {
      lost.push(row.filter)
      continue
    }
    session.subscriptions.set(row.filter, subscription)
    onSubscribed()
    messages.presence.subscribed(one.clientKey, 'mqtt')
    if (subscription.device !== undefined) {
      ofDevices.begin(subscription)
      continue
    }
    if (subscription.group !== undefined) {
      shared.push(subscription)
      // The subscription is from a version without groups: its group begins at the position of the subscription.
      if (row.group === undefined) ungrouped.push(toStoredSubscription(subscription, row.position))
      continue
    }
    const { streamKey, access } = subscription
    const known = one.cursors.get(streamKey)
    const cursor = known ?? newCursor(session, streamKey, access as ChannelAccess, row.position)
    delivery.add(cursor, subscription)
    if (known !== undefined) continue
    one.cursors.set(streamKey, cursor)
    if (cursor.mode === 'live') await delivery.begin(cursor)
    else behind.push(cursor)
  }
  if (lost.length > 0) await store.unsubscribe(session, lost)
  if (ungrouped.length > 0) await store.subscribe(session, one.clientKey, ungrouped)
  for (const subscription of shared) groups.join(subscription)
  for (const cursor of behind) delivery.continueReading(cursor)
}

/** Undefined when it is no longer allowed. Throws when the check fails. */
async function allowed(
  stored: StoredSubscription,
  session: Session,
  admission: ConnectionAuthorizer,
): Promise<Subscription | undefined> {
  const parts = parseShared(stored.filter)
  if (parts === undefined) return undefined
  try {
    const target = await admission.filter(session.identity, parts.topicFilter)
    return { ...target, ...parts, ...optionsOf(stored), filter: stored.filter, session }
  } catch (error) {
    if (kindOf(error) === 'unavailable' || kindOf(error) === 'timeout') throw error
    return undefined
  }
}
