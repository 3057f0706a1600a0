/**
 * Which addresses a reference may reach (task manager section 6, rule 9). A reference comes from a tenant, so without
 * this the proxy would be their way into the network it stands in.
 */
import { BlockList, isIP } from 'node:net'

export type AddressPolicy = {
  /** Hosts, or `host:port`, that may be private and may be asked over plain HTTP (`SKEIN_PROXY_HTTP_HOSTS`). */
  listedHosts: readonly string[]
  /** `host:port` of the registry that the operator configured, which may be private because the operator chose it. */
  configuredAuthorities: readonly string[]
}

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
const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** True for an address that everybody on the internet may reach; false for every special-purpose range. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !notPublic.check(address, 'ipv4')
  return family === 6 && globalV6.check(address, 'ipv6') && !notPublic.check(address, 'ipv6')
}

/** True for a loopback literal and for the name `localhost`. */
export function isLoopbackHost(hostname: string): boolean {
  const host = bareHost(hostname)
  const family = isIP(host)
  if (family === 0) return host === 'localhost' || host.endsWith('.localhost')
  return loopback.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

/** True when the host of this address may be private: it is on the list, or the operator configured exactly it. */
export function mayBePrivate(url: URL, policy: AddressPolicy): boolean {
  return isListed(url, policy) || policy.configuredAuthorities.includes(authorityOf(url))
}

/** True when plain HTTP is allowed to this address: loopback or a listed host. */
export function mayBePlainHttp(url: URL, policy: AddressPolicy): boolean {
  return isLoopbackHost(url.hostname) || isListed(url, policy)
}

/** True when the host, with any port or with exactly this one, is on the list. */
export function isListed(url: URL, policy: AddressPolicy): boolean {
  const host = url.hostname.toLowerCase()
  const authority = authorityOf(url)
  return policy.listedHosts.some((entry) => entry.toLowerCase() === host || entry.toLowerCase() === authority)
}

/** `host:port` with the port always written, so that two spellings of one place are equal. */
export function authorityOf(url: URL): string {
  return `${url.hostname.toLowerCase()}:${url.port === '' ? (url.protocol === 'http:' ? '80' : '443') : url.port}`
}

/** The host without the brackets that a URL puts around an IPv6 literal. */
export function bareHost(hostname: string): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname.toLowerCase()
}
