/** Public internet addresses: URLs of users may lead to these only. */
import { BlockList, isIP } from 'node:net'
import { Resolver, lookup as resolveName } from 'node:dns'
import type { LookupAddress, LookupAllOptions } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { ServiceError } from './errors/index.ts'

// RFC 6890 and the IANA special-purpose registries: everything that is not globally reachable unicast.
const NOT_PUBLIC_V4 = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const
// Only 2000::/3 of IPv6 is global unicast. These parts of it are not, or embed an IPv4 address that would have to be checked instead (6to4,
// Teredo).
const NOT_PUBLIC_V6 = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const

const notPublic = new BlockList()
for (const [network, prefix] of NOT_PUBLIC_V4) notPublic.addSubnet(network, prefix, 'ipv4')
for (const [network, prefix] of NOT_PUBLIC_V6) notPublic.addSubnet(network, prefix, 'ipv6')
const globalV6 = new BlockList()
globalV6.addSubnet('2000::', 3, 'ipv6')

/** False for every special-purpose range, and for invalid addresses. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !notPublic.check(address, 'ipv4')
  return family === 6 && globalV6.check(address, 'ipv6') && !notPublic.check(address, 'ipv6')
}

/** Returns an error when the name must not be reached at these addresses, of which there is at least one. */
export type AddressCheck = (hostname: string, addresses: readonly LookupAddress[]) => Error | undefined

type ResolveName = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

/**
 * A `lookup` for connections: the name is resolved once, and the connection goes to a checked address, so that a later answer of
 * the name server has no effect.
 */
export function checkedLookup(check: AddressCheck, resolve: ResolveName = resolveName): LookupFunction {
  return (hostname, options, callback) => {
    const given = { ...options, family: familyOf(options.family), all: true } as const
    resolve(hostname, given, (error, addresses) => {
      const [first] = addresses ?? []
      const refusal =
        error ?? (first === undefined ? new Error(`${hostname} has no address`) : check(hostname, addresses))
      if (first === undefined || refusal !== undefined) callback(refusal ?? null, '', 0)
      else if (options.all === true) callback(null, addresses)
      else callback(null, first.address, first.family)
    })
  }
}

/** False when any of them is private: a public name has no reason to have one. */
export function arePublic(addresses: readonly LookupAddress[]): boolean {
  return addresses.every(({ address }) => isPublicAddress(address))
}

/** Means loopback, and is never sent to a name server (RFC 6761 section 6.3). */
const LOCALHOST = /(?:^|\.)localhost\.?$/i

/** The deadline of one DNS query; it is sent twice. */
const DNS_TIMEOUT_MS = 2500
const DNS_TRIES = 2

/**
 * Resolves names with DNS. The system's resolver would block one of the few threads of the process, and a silent name server
 * would delay other lookups and file access.
 */
const resolveInDns: ResolveName = (hostname, { family }, callback) => {
  if (LOCALHOST.test(hostname)) return callback(null, [{ address: '127.0.0.1', family: 4 }])
  const resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES })
  const found: LookupAddress[] = []
  const families = family === 4 || family === 6 ? [family] : [4, 6]
  let waiting = families.length
  let failure: Error | null = null
  const settle = (of: number) => (error: Error | null, addresses: string[] | undefined) => {
    if (error === null) found.push(...(addresses ?? []).map((address) => ({ address, family: of })))
    else failure ??= error
    waiting -= 1
    if (waiting === 0)
      callback(
        found.length > 0 ? null : failure,
        found.toSorted((a, b) => a.family - b.family),
      )
  }
  for (const of of families) {
    if (of === 4) resolver.resolve4(hostname, settle(4))
    else resolver.resolve6(hostname, settle(6))
  }
}

/** Connects to public addresses only. */
export const lookupPublic: LookupFunction = checkedLookup(
  (hostname, addresses) =>
    arePublic(addresses)
      ? undefined
      : new ServiceError('forbidden', `${hostname} is a private, loopback or link-local address`),
  resolveInDns,
)

function familyOf(family: number | 'IPv4' | 'IPv6' | undefined): number {
  if (family === 'IPv4') return 4
  return family === 'IPv6' ? 6 : (family ?? 0)
}
