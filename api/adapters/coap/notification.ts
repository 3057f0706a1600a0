/** The datagram of a notification (RFC 7641 section 4): confirmable or not, within what an unverified address may be sent. */
import type { AddressProofs } from './addresses.ts'
import type { Endpoint, Observation, Peer } from './endpoints.ts'
import { TYPES, encodeMessage } from './message.ts'
import type { CoapOption } from './message.ts'
import { MAX_COPIES } from './outbox.ts'
import type { Fate, Outbox } from './outbox.ts'

export type NotificationDeps = {
  outbox: Outbox
  addresses: AddressProofs
  send: (bytes: Buffer, peer: Peer) => void
  nowMs: () => number
}

export type Notification = {
  peer: Peer
  token: Buffer
  endpoint: Endpoint
  /** A reset of the message ends it. */
  observation: Observation
  code: number
  options: readonly CoapOption[]
  payload: Buffer
  isConfirmable: boolean
  /** The address of the peer is verified. */
  isProven: boolean
  /** The bytes that may be sent before the address is verified. */
  unpaidBytes: number
  onEnd?: (fate: Fate) => void
}

/** Returns the bytes that may still be sent before the address is verified. */
export function sendNotification(deps: NotificationDeps, notification: Notification): number {
  const { peer, token, endpoint, observation, code, options, payload, isConfirmable, isProven } = notification
  const messageId = endpoint.nextMessageId()
  const type = isConfirmable ? TYPES.confirmable : TYPES.nonConfirmable
  const bytes = encodeMessage({ type, code, messageId, token, options, payload })
  endpoint.notified(messageId, observation)
  if (!isConfirmable) {
    endpoint.unconfirmed++
    deps.send(bytes, peer)
    return notification.unpaidBytes
  }
  const { addresses, outbox, nowMs } = deps
  const paidCopies = Math.max(1, Math.floor(notification.unpaidBytes / bytes.length))
  const maxCopies = isProven ? MAX_COPIES : Math.min(MAX_COPIES, paidCopies)
  const unpaidBytes = isProven
    ? notification.unpaidBytes
    : Math.max(0, notification.unpaidBytes - maxCopies * bytes.length)
  addresses.challenge(peer, messageId)
  endpoint.unconfirmed = 0
  endpoint.lastConfirmableAt = nowMs()
  if (!outbox.isFull) endpoint.awaited++
  outbox.send(peer, messageId, bytes, {
    maxCopies,
    onEnd: (fate) => {
      endpoint.awaited--
      if (fate === 'lost') endpoint.endObservations()
      else {
        if (fate === 'reset') observation.end()
        endpoint.resumeObservations()
      }
      notification.onEnd?.(fate)
    },
  })
  return unpaidBytes
}
