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

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

export { isPublicAddress } from '#core/public-address.ts'

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
