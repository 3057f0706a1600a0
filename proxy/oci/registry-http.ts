/**
 * Requests below `/v2/<repository>/` of a registry: authenticated if the registry requires it; redirects of reads are
 * followed without credentials. Handles no status other than 401 and redirects.
 */
import { ServiceError } from '#core/errors/index.ts'
import { discard, retryAfterMs } from '#core/transfer/index.ts'
import type { TransferResponse, Method, RequestBody, TransferClient } from '#core/transfer/index.ts'
import type { Auth, Scope } from './auth.ts'
import type { Reference } from './reference.ts'
import type { Registries } from './registry.ts'

/** A repository of a registry. */
export type Repository = Pick<Reference, 'registry' | 'repository'>

export type RegistryHttp = {
  /** GET of `path` below the repository. */
  get(
    repository: Repository,
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<TransferResponse>
  /** A request that writes; `path` can come from a `Location`. A redirect is returned unchanged. */
  write(
    method: Exclude<Method, 'GET'>,
    repository: Repository,
    path: string | URL,
    headers: Record<string, string>,
    signal: AbortSignal,
    body?: RequestBody,
  ): Promise<TransferResponse>
}

const MAX_REDIRECTS = 5
const REDIRECTS = new Set([301, 302, 303, 307, 308])

export type RegistryHttpDeps = { transport: TransferClient; auth: Auth; registries: Registries }

export function createRegistryHttp({ transport, auth, registries }: RegistryHttpDeps): RegistryHttp {
  async function authenticated(
    scope: Scope,
    send: (authorization: Record<string, string>) => Promise<TransferResponse>,
    signal: AbortSignal,
  ): Promise<TransferResponse> {
    const known = auth.known(scope)
    const first = await send(known === undefined ? {} : { authorization: known })
    if (first.status !== 401) return first
    discard(first)
    auth.invalidate(scope)
    const authorization = await auth.answer(scope, first.headers['www-authenticate'], signal)
    const second = await send({ authorization })
    if (second.status === 401) auth.invalidate(scope)
    return second
  }

  async function followRedirects(
    first: TransferResponse,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<TransferResponse> {
    let answer = first
    for (let count = 0; count < MAX_REDIRECTS; count++) {
      discard(answer)
      // `headers` never contains an Authorization: credentials do not follow a redirect, not even to the same host.
      answer = await transport.get(locationOf(answer), headers, signal)
      if (!REDIRECTS.has(answer.status)) return answer
    }
    discard(answer)
    throw new ServiceError('unavailable', `${first.url.host} redirects more than ${MAX_REDIRECTS} times`)
  }

  return {
    async get(repository, path, headers, signal) {
      const baseUrl = await registries.baseUrl(repository.registry, signal)
      const url = new URL(`v2/${repository.repository}/${path}`, baseUrl)
      const scope: Scope = { ...repository, baseUrl, actions: 'pull' }
      const send = (authorization: Record<string, string>) =>
        transport.get(url, { ...headers, ...authorization }, signal)
      const answer = await authenticated(scope, send, signal)
      return REDIRECTS.has(answer.status) ? await followRedirects(answer, headers, signal) : answer
    },

    async write(method, repository, path, headers, signal, body) {
      const baseUrl = await registries.baseUrl(repository.registry, signal)
      const url = typeof path === 'string' ? new URL(`v2/${repository.repository}/${path}`, baseUrl) : path
      // An upload can continue at another host (OCI distribution, "Pushing blobs"), which must not receive the
      // credentials.
      if (url.origin !== baseUrl.origin) return await transport.send(method, url, headers, signal, body)
      const scope: Scope = { ...repository, baseUrl, actions: 'pull,push' }
      const send = (authorization: Record<string, string>) =>
        transport.send(method, url, { ...headers, ...authorization }, signal, body)
      return await authenticated(scope, send, signal)
    },
  }
}

/** The target of an answer's Location. Throws `unavailable` without one. */
export function locationOf({ headers: { location }, url, status }: TransferResponse): URL {
  if (location === undefined || !URL.canParse(location, url)) {
    throw new ServiceError('unavailable', `${url.host} returned ${status} without a valid Location`)
  }
  return new URL(location, url)
}

/** Maps an error status to an error; `what` is the subject of the request. */
export function refusalOf(answer: TransferResponse, { registry, repository }: Repository, what: string): ServiceError {
  switch (answer.status) {
    case 401:
      return new ServiceError('unauthenticated', `${registry} refuses the credentials for ${repository}`)
    case 403:
      return new ServiceError('forbidden', `${registry} does not allow ${what}`)
    case 404:
      return new ServiceError('not_found', `${registry} has no ${what}`)
    case 429: {
      const waitMs = retryAfterMs(answer.headers['retry-after'], Date.now())
      const options = waitMs === undefined ? {} : { retryAfterSeconds: waitMs / 1000 }
      return new ServiceError('rate_limited', `${registry} limits the request rate`, options)
    }
    default:
      return new ServiceError('unavailable', `${registry} returned ${answer.status} for ${what}`)
  }
}
