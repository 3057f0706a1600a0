/**
 * Which addresses a reference may reach (task manager section 6, rule 9). A reference comes from a tenant, so without
 * this the proxy would be their way into the network it stands in.
 */
import { BlockList, isIP } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { arePublic, isPublicAddress, judgedLookup } from '#core/public-address.ts'
import type { Dial } from '#core/transfer/index.ts'

export type AddressPolicy = {
  /** Hosts, or `host:port`, that may be private and may be asked over plain HTTP (`SKEIN_PROXY_HTTP_HOSTS`). */
  listedHosts: readonly string[]
  /** `host:port` of the registry that the operator configured, which may be private because the operator chose it. */
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

/**
 * How an address is dialled: to exactly the address that was judged, because a name is resolved once. Throws `forbidden` for one
 * that the policy refuses.
 */
export function judgedDial(url: URL, policy: AddressPolicy): Dial {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new ServiceError('forbidden', `address must be https, not ${url.protocol.slice(0, 20)}`)
  }
  if (url.protocol === 'http:' && !mayBePlainHttp(url, policy)) {
    throw new ServiceError(
      'forbidden',
      `${url.host} is plain HTTP, which is for loopback and for hosts in SKEIN_PROXY_HTTP_HOSTS`,
    )
  }
  // A literal address never reaches the lookup of a connection.
  const host = bareHost(url.hostname)
  if (isIP(host) !== 0 && !mayBePrivate(url, policy) && !isPublicAddress(host)) throw notPublic(url)
  return {
    lookup: judgedLookup((_name, addresses) =>
      mayBePrivate(url, policy) || arePublic(addresses) ? undefined : notPublic(url),
    ),
  }
}

function notPublic(url: URL): ServiceError {
  return new ServiceError(
    'forbidden',
    `${url.host} is a private, loopback or link-local address, which is for hosts in SKEIN_PROXY_HTTP_HOSTS`,
  )
}
