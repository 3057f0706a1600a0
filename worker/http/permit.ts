/** Whether a guest may send a request: the grant of its task names scheme, host, port and method. */
import { isIP } from 'node:net'
import type { HttpGrant } from '#proto/index.ts'
import { isPublicAddress } from '#core/public-address.ts'
import { isHttpMethod, refusalOfHeaders, refuseCall } from '../runner/index.ts'
import type { GuestReply, HttpCall, HttpMethod } from '../runner/index.ts'

type Refusal = Extract<GuestReply, { ok: false }>

/** `isPrivate`: the operator lists the host, so that it can have any address. */
export type PermittedRequest = { url: URL; method: HttpMethod; isPrivate: boolean }

/** `privateHosts`: hosts, or `host:port`, that can be private and use plain HTTP (SKEIN_WORKER_HTTP_HOSTS). */
export function permitRequest(
  { allow }: Pick<HttpGrant, 'allow'>,
  { method, url: text, headers }: HttpCall,
  privateHosts: readonly string[],
): PermittedRequest | Refusal {
  if (!isHttpMethod(method)) return refuseCall('malformed', 'the method must be one of those that can be granted')
  if (!URL.canParse(text)) return refuseCall('malformed', 'the URL is not valid')
  const url = new URL(text)
  if (url.username !== '' || url.password !== '')
    return refuseCall('malformed', 'the URL must have no user and no password')
  const header = refusalOfHeaders(headers)
  if (header !== undefined) return refuseCall('malformed', header)
  // Both are canonical: case, default port, and the forms of an IPv4 address.
  const isGranted = allow.some(({ origin, methods }) => origin === url.origin && methods.includes(method))
  if (!isGranted) return refuseCall('forbidden', `the task has no grant for ${method} ${url.origin.slice(0, 300)}`)
  const isPrivate = privateHosts.includes(url.hostname) || privateHosts.includes(url.host)
  if (!isPrivate && url.protocol !== 'https:')
    return refuseCall('forbidden', `${url.host} must be requested with https, or be listed in SKEIN_WORKER_HTTP_HOSTS`)
  // Literal addresses are not resolved, where names are checked.
  const literal = url.hostname.replaceAll(/[[\]]/g, '')
  if (!isPrivate && isIP(literal) !== 0 && !isPublicAddress(literal))
    return refuseCall('forbidden', `${url.host} is a private, loopback or link-local address`)
  return { url, method, isPrivate }
}
