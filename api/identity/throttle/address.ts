/**
 * The network of an address, by which limits count: an IPv4 address, or the first 64 bits of an IPv6 address, because a
 * client with one address of an IPv6 network controls all of them (RFC 6177).
 */
import { isIPv4, isIPv6 } from 'node:net'

const NETWORK_GROUPS = 4
const GROUPS = 8
const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i

export function networkOf(address: string): string {
  const [bare = ''] = address.split('%', 1)
  const mapped = MAPPED_IPV4.exec(bare)?.[1]
  if (mapped !== undefined && isIPv4(mapped)) return mapped
  if (!isIPv6(bare)) return bare
  return `${expand(bare).slice(0, NETWORK_GROUPS).join(':')}::/64`
}

/** Returns the eight groups of an IPv6 address without leading zeros. */
function expand(address: string): string[] {
  const [head = '', tail] = address.toLowerCase().split('::')
  const groupsOf = (text: string) => text.split(':').filter((group) => group !== '')
  const left = groupsOf(head)
  const right = tail === undefined ? [] : groupsOf(tail)
  const missing = tail === undefined ? 0 : GROUPS - left.length - right.length
  const zeros = Array.from({ length: Math.max(0, missing) }, () => '0')
  return [...left, ...zeros, ...right].map((group) => group.replace(/^0+(?=.)/, ''))
}
