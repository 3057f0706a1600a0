/**
 * Requests below `/v2/<repository>/` of a registry: authenticated where the registry asks for it, redirects of reads
 * followed without credentials. Judges no status but 401 and redirects.
 */
import { ServiceError } from '#core/errors/index.ts'
import { discard, retryAfterMs } from '#core/transfer/index.ts'
import type { Answer, Method, RequestBody, TransferClient } from '#core/transfer/index.ts'
import type { Auth, Scope } from './auth.ts'
import type { Reference } from './reference.ts'
import type { Registries } from './registry.ts'

/** Which repository of which registry. */
export type Repository = Pick<Reference, 'registry' | 'repository'>

export type Exchange = {
  /** GET of `path` below the repository. */
  get(repository: Repository, path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Answer>
  /** A request that writes; `path` may be what a `Location` named. The answer of a redirect is given as it is. */
  write(
    method: Exclude<Method, 'GET'>,
    repository: Repository,
    path: string | URL,
    headers: Record<string, string>,
    signal: AbortSignal,
    body?: RequestBody,
  ): Promise<Answer>
}

const MAX_REDIRECTS = 5
const REDIRECTS = new Set([301, 302, 303, 307, 308])

export type ExchangeDeps = { transport: TransferClient; auth: Auth; registries: Registries }

export function createExchange({ transport, auth, registries }: ExchangeDeps): Exchange {
  async function authenticated(
    scope: Scope,
    send: (authorization: Record<string, string>) => Promise<Answer>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const known = auth.known(scope)
    const first = await send(known === undefined ? {} : { authorization: known })
    if (first.status !== 401) return first
    discard(first)
    auth.forget(scope)
    const authorization = await auth.answer(scope, first.headers['www-authenticate'], signal)
    const second = await send({ authorization })
    if (second.status === 401) auth.forget(scope)
    return second
  }

  async function followRedirects(first: Answer, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
    let answer = first
    for (let count = 0; count < MAX_REDIRECTS; count++) {
      discard(answer)
      // `headers` never holds an Authorization: credentials do not cross a redirect, not even back to the same host.
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
      // An upload may go on at another host (OCI distribution, "Pushing blobs"), which must not see the credentials.
      if (url.origin !== baseUrl.origin) return await transport.send(method, url, headers, signal, body)
      const scope: Scope = { ...repository, baseUrl, actions: 'pull,push' }
      const send = (authorization: Record<string, string>) =>
        transport.send(method, url, { ...headers, ...authorization }, signal, body)
      return await authenticated(scope, send, signal)
    },
  }
}

/** Where an answer points to. Throws `unavailable` when it does not say. */
export function locationOf({ headers: { location }, url, status }: Answer): URL {
  if (location === undefined || !URL.canParse(location, url)) {
    throw new ServiceError('unavailable', `${url.host} answered ${status} without a usable Location`)
  }
  return new URL(location, url)
}

/** A status that is no success as an error; `what` is what was asked for. */
export function refusalOf(answer: Answer, { registry, repository }: Repository, what: string): ServiceError {
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
      return new ServiceError('rate_limited', `${registry} answers that it is asked too often`, options)
    }
    default:
      return new ServiceError('unavailable', `${registry} answered ${answer.status} to ${what}`)
  }
}
