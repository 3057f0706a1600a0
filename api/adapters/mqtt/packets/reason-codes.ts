/** Reason codes of MQTT 5.0 (section 2.4) and return codes of CONNACK in MQTT 3.1.1 (section 3.2.2.3). */
import type { ErrorKind } from '#core/errors/index.ts'
import { PROTOCOL_STATUS } from '#core/errors/index.ts'

export const REASON = {
  success: 0x00,
  disconnectWithWill: 0x04,
  noMatchingSubscribers: 0x10,
  noSubscriptionExisted: 0x11,
  unspecified: 0x80,
  malformedPacket: 0x81,
  protocolError: 0x82,
  implementationSpecific: 0x83,
  unsupportedProtocolVersion: 0x84,
  clientIdentifierNotValid: 0x85,
  badUserNameOrPassword: 0x86,
  notAuthorized: 0x87,
  serverUnavailable: 0x88,
  serverBusy: 0x89,
  serverShuttingDown: 0x8b,
  badAuthenticationMethod: 0x8c,
  keepAliveTimeout: 0x8d,
  sessionTakenOver: 0x8e,
  topicFilterInvalid: 0x8f,
  topicNameInvalid: 0x90,
  packetIdentifierInUse: 0x91,
  packetIdentifierNotFound: 0x92,
  receiveMaximumExceeded: 0x93,
  topicAliasInvalid: 0x94,
  packetTooLarge: 0x95,
  quotaExceeded: 0x97,
  administrativeAction: 0x98,
  payloadFormatInvalid: 0x99,
} as const

/** The one failure code of SUBACK in MQTT 3.1.1 (section 3.9.3). */
export const SUBACK_FAILURE = 0x80

/** Return codes of CONNACK in MQTT 3.1 and 3.1.1. */
export const RETURN_CODE = {
  accepted: 0,
  unacceptableProtocolVersion: 1,
  identifierRejected: 2,
  serverUnavailable: 3,
  badUserNameOrPassword: 4,
  notAuthorized: 5,
} as const

const RETURN_CODES: ReadonlyMap<number, number> = new Map([
  [REASON.success, RETURN_CODE.accepted],
  [REASON.unsupportedProtocolVersion, RETURN_CODE.unacceptableProtocolVersion],
  [REASON.clientIdentifierNotValid, RETURN_CODE.identifierRejected],
  [REASON.badUserNameOrPassword, RETURN_CODE.badUserNameOrPassword],
  [REASON.notAuthorized, RETURN_CODE.notAuthorized],
])

/** The CONNACK return code of 3.1 and 3.1.1 for a reason code of 5.0; "server unavailable" when no code fits. */
export function returnCodeOf(reasonCode: number): number {
  return RETURN_CODES.get(reasonCode) ?? RETURN_CODE.serverUnavailable
}

export function reasonCodeOf(kind: ErrorKind): number {
  return PROTOCOL_STATUS[kind].mqtt5
}

/** Failure codes that a packet may carry (section 2.4); others are mapped to the nearest one. */
const CARRIED = {
  puback: new Set<number>([0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
  suback: new Set<number>([0x80, 0x83, 0x87, 0x8f, 0x91, 0x97, 0x9e, 0xa1, 0xa2]),
  disconnect: new Set<number>([
    0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8b, 0x8d, 0x8e, 0x8f, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a,
    0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xa1, 0xa2,
  ]),
} as const

const NEAREST: ReadonlyMap<number, number> = new Map([
  [REASON.badUserNameOrPassword, REASON.notAuthorized],
  [REASON.serverUnavailable, REASON.serverBusy],
])

/** Returns the code, or the nearest code that the packet may carry. */
export function permittedReasonCode(packet: keyof typeof CARRIED, reasonCode: number): number {
  const nearest = NEAREST.get(reasonCode) ?? reasonCode
  return CARRIED[packet].has(nearest) ? nearest : REASON.unspecified
}

const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(REASON)
    .toReversed()
    .map(([name, code]) => [code, name]),
)

/** The name of a reason code, for logs and metrics. */
export function reasonName(reasonCode: number): string {
  return NAMES.get(reasonCode) ?? `0x${reasonCode.toString(16)}`
}
