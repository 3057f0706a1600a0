/**
 * Addresses that a reference can reach (task manager section 6, rule 9). A reference comes from a tenant, so without this
 * rule it could reach the internal network of the proxy.
 */
import { BlockList, isIP } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { arePublic, isPublicAddress, checkedLookup } from '#core/public-address.ts'
import type { Dial } from '#core/transfer/index.ts'

export type AddressPolicy = {
  /** Hosts, or `host:port`, that can be private and use plain HTTP (`SKEIN_PROXY_HTTP_HOSTS`). */
  listedHosts: readonly string[]
  /** `host:port` of the configured registry, which can be private because the operator chose it. */
  configuredAuthorities: readonly string[]
}

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

/** True for a loopback literal and for the name `localhost`. */
export function isLoopbackHost(hostname: string): boolean {
  const host = bareHost(hostname)
  const family = isIP(host)
  if (family === 0) return host === 'localhost' || host.endsWith('.localhost')
  return loopback.check(host, family === 4 ? 'ipv4' : 'ipv6')
}

/** True if the host of this address can be private: it is on the list, or it is the configured registry. */
export function mayBePrivate(url: URL, policy: AddressPolicy): boolean {
  return isListed(url, policy) || policy.configuredAuthorities.includes(authorityOf(url))
}

/** True if plain HTTP is allowed to this address: loopback or a listed host. */
export function mayBePlainHttp(url: URL, policy: AddressPolicy): boolean {
  return isLoopbackHost(url.hostname) || isListed(url, policy)
}

/** True if the host, with any port or with exactly this one, is on the list. */
export function isListed(url: URL, policy: AddressPolicy): boolean {
  const host = url.hostname.toLowerCase()
  const authority = authorityOf(url)
  return policy.listedHosts.some((entry) => entry.toLowerCase() === host || entry.toLowerCase() === authority)
}

/** `host:port` with an explicit port, so that equal addresses have equal strings. */
export function authorityOf(url: URL): string {
  return `${url.hostname.toLowerCase()}:${url.port === '' ? (url.protocol === 'http:' ? '80' : '443') : url.port}`
}

/** The host without the brackets that a URL puts around an IPv6 literal. */
export function bareHost(hostname: string): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname.toLowerCase()
}

/**
 * Resolves an address under the policy: the connection uses exactly the checked address, because a name is resolved once.
 * Throws `forbidden` for an address that the policy refuses.
 */
export function checkedDial(url: URL, policy: AddressPolicy): Dial {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new ServiceError('forbidden', `address must be https, not ${url.protocol.slice(0, 20)}`)
  }
  if (url.protocol === 'http:' && !mayBePlainHttp(url, policy)) {
    throw new ServiceError(
      'forbidden',
      `${url.host} uses plain HTTP, which is allowed only for loopback and for hosts in SKEIN_PROXY_HTTP_HOSTS`,
    )
  }
  // A literal address is never passed to the lookup of a connection.
  const host = bareHost(url.hostname)
  if (isIP(host) !== 0 && !mayBePrivate(url, policy) && !isPublicAddress(host)) throw notPublic(url)
  return {
    lookup: checkedLookup((_name, addresses) =>
      mayBePrivate(url, policy) || arePublic(addresses) ? undefined : notPublic(url),
    ),
  }
}

function notPublic(url: URL): ServiceError {
  return new ServiceError(
    'forbidden',
    `${url.host} is a private, loopback or link-local address, which is allowed only for hosts in SKEIN_PROXY_HTTP_HOSTS`,
  )
}
