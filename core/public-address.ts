/** Addresses that everybody on the internet may reach: what somebody else's URL may lead to, and nothing inside. */
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
// Of IPv6 only 2000::/3 is global unicast; these parts of it are not, or carry an IPv4 address that would have to be
// judged in its place (6to4, Teredo).
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

/** False for every special-purpose range, and for what is no address. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !notPublic.check(address, 'ipv4')
  return family === 6 && globalV6.check(address, 'ipv6') && !notPublic.check(address, 'ipv6')
}

/** Says by an error that a name must not be reached by these addresses, of which there is at least one. */
export type Judge = (hostname: string, addresses: readonly LookupAddress[]) => Error | undefined

type ResolveName = (
  hostname: string,
  options: LookupAllOptions,
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

/**
 * For the `lookup` of a connection: the name is resolved once and the connection goes to an address that was judged, so that
 * no second answer of the name server counts.
 */
export function judgedLookup(judge: Judge, resolve: ResolveName = resolveName): LookupFunction {
  return (hostname, options, callback) => {
    const given = { ...options, family: familyOf(options.family), all: true } as const
    resolve(hostname, given, (error, addresses) => {
      const [first] = addresses ?? []
      const refusal =
        error ?? (first === undefined ? new Error(`${hostname} has no address`) : judge(hostname, addresses))
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

/** Means loopback, and is asked of no name server (RFC 6761 section 6.3). */
const LOCALHOST = /(?:^|\.)localhost\.?$/i

/** Of one question to a name server; it is asked twice. */
const DNS_TIMEOUT_MS = 2500
const DNS_TRIES = 2

/**
 * Names as DNS has them. Not by the resolver of the system: that waits in a thread, of which a process has few, and a name
 * whose server is silent would keep everybody else's names and files waiting.
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

/** Leads to public addresses alone. */
export const lookupPublic: LookupFunction = judgedLookup(
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
