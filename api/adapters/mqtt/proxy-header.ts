/**
 * Headers of the PROXY protocol, version 2 (HAProxy's proxy-protocol.txt, section 2.2): a load balancer sends one before the bytes of
 * the client, with the address of the client. Pure.
 */
import { isIPv4, SocketAddress } from 'node:net'

/** No MQTT packet and no TLS record begins with its first byte. */
export const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
/** Signature, version and command, family and protocol, and the length of the rest. */
const FIXED_BYTES = 16
/** How a dual-stack socket shows an IPv4 peer (RFC 4291 section 2.5.5.2). */
const MAPPED_PREFIX = '::ffff:'
/** Addresses and extensions (TLV), which are ignored. */
export const MAX_HEADER_BYTES = 4096
const VERSION = 2
const LOCAL = 0
const PROXY = 1
/** Address families over a stream, with the length of one address. */
const ADDRESS_BYTES = new Map([
  [0x11, 4],
  [0x21, 16],
])
const PORTS_BYTES = 4

export type ProxyHeader =
  | { state: 'incomplete' }
  /** The connection does not begin with a header. */
  | { state: 'absent' }
  | { state: 'invalid'; reason: string }
  /** `address` is undefined when the proxy itself is the client, such as for a health check. */
  | { state: 'complete'; length: number; address: string | undefined }

/** Parses the first bytes of a connection. */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  const compared = Math.min(bytes.length, SIGNATURE.length)
  if (SIGNATURE.compare(bytes, 0, compared, 0, compared) !== 0) return { state: 'absent' }
  if (bytes.length < FIXED_BYTES) return { state: 'incomplete' }
  const versionAndCommand = bytes.readUInt8(12)
  const command = versionAndCommand & 0x0f
  if (versionAndCommand >> 4 !== VERSION) return invalid(`version ${versionAndCommand >> 4} is not supported`)
  if (command !== LOCAL && command !== PROXY) return invalid(`command ${command} is unknown`)
  const rest = bytes.readUInt16BE(14)
  const length = FIXED_BYTES + rest
  if (length > MAX_HEADER_BYTES) return invalid(`${length} bytes exceed the limit of ${MAX_HEADER_BYTES} bytes`)
  const addressBytes = ADDRESS_BYTES.get(bytes.readUInt8(13))
  if (command === PROXY && addressBytes !== undefined && rest < 2 * addressBytes + PORTS_BYTES)
    return invalid(`${rest} bytes are too few for its addresses`)
  if (bytes.length < length) return { state: 'incomplete' }
  // The specification requires to use the addresses of the connection for every other family.
  if (command === LOCAL || addressBytes === undefined) return { state: 'complete', length, address: undefined }
  return { state: 'complete', length, address: textOf(bytes.subarray(FIXED_BYTES, FIXED_BYTES + addressBytes)) }
}

function invalid(reason: string): ProxyHeader {
  return { state: 'invalid', reason }
}

/** Formats an address as Node shows the address of a socket. */
function textOf(address: Buffer): string {
  if (address.length === 4) return address.join('.')
  const groups = Array.from({ length: 8 }, (_, index) => address.readUInt16BE(2 * index).toString(16))
  const text = new SocketAddress({ address: groups.join(':'), family: 'ipv6' }).address
  const rest = text.startsWith(MAPPED_PREFIX) ? text.slice(MAPPED_PREFIX.length) : ''
  return isIPv4(rest) ? rest : text
}
