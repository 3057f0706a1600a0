/**
 * Answers to 401 (OCI distribution, "Authentication", and Docker's token specification): Basic, or a Bearer token from
 * the registry's realm. Only this file decides where the configured credentials are sent (task manager section 6): to the
 * configured registry, and to its realm over TLS, or over plain HTTP on the same host.
 */
import { Readable } from 'node:stream'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { discard } from '#core/transfer/index.ts'
import type { TransferResponse, TransferClient } from '#core/transfer/index.ts'
import { parseChallenges } from './challenge.ts'
import type { Challenge } from './challenge.ts'
import { SingleFlight } from '#core/single-flight.ts'

export type Credentials = { username: string; password: Secret }

export type AuthDeps = {
  transport: TransferClient
  /** Name of the configured registry and its credentials; undefined: all requests are anonymous. */
  configured: { registry: string; credentials: Credentials } | undefined
}

/** The scope of a request: a repository of a registry, whose API is at `baseUrl`. */
export type Scope = { registry: string; repository: string; baseUrl: URL; actions: 'pull' | 'pull,push' }

export type Auth = {
  /** The last successful `Authorization` for this repository; undefined: none. */
  known(scope: Scope): string | undefined
  /** Drops the stored `Authorization` after the registry refused it. */
  invalidate(scope: Scope): void
  /**
   * Answers the challenge of a 401. Throws `unauthenticated` if that is not possible, and the error of the transport if
   * the realm is unavailable or not allowed. Equal concurrent requests are sent once.
   */
  answer(scope: Scope, header: string | undefined, signal: AbortSignal): Promise<string>
}

/** Docker's token specification: "expires_in", default 60 seconds. */
const DEFAULT_TOKEN_SECONDS = 60
const MAX_TOKEN_SECONDS = 3600
/** A token is used for nine tenths of its lifetime, so that none expires in transit. */
const TOKEN_USE = 0.9
const MAX_TOKEN_ANSWER_BYTES = 256 * 1024
const MAX_KNOWN = 1000
/** The user name of `docker login` for an identity token, which is sent only to the realm. */
const IDENTITY_TOKEN_USER = '<token>'

export function createAuth({ transport, configured }: AuthDeps): Auth {
  const authorizations = new BoundedCache<string, { header: string; untilMs: number }>({ maxEntries: MAX_KNOWN })
  const flights = new SingleFlight<string>()

  function credentialsFor(scope: Scope): Credentials | undefined {
    return scope.registry === configured?.registry ? configured.credentials : undefined
  }

  async function bearer(scope: Scope, challenge: Challenge, signal: AbortSignal): Promise<string> {
    const url = realmUrl(scope, challenge)
    const credentials = canReceiveCredentials(scope, url) ? credentialsFor(scope) : undefined
    const answer =
      credentials?.username === IDENTITY_TOKEN_USER
        ? await exchangeIdentityToken(url, credentials, signal)
        : await transport.get(url, credentials === undefined ? {} : { authorization: basicHeader(credentials) }, signal)
    if (answer.status !== 200) {
      discard(answer)
      throw refusedByRealm(scope, url, answer.status)
    }
    const { token, seconds } = readToken(await transport.readBody(answer, MAX_TOKEN_ANSWER_BYTES), url)
    return remember(scope, `Bearer ${token}`, monotonicMs() + seconds * 1000 * TOKEN_USE)
  }

  /** Docker's "OAuth2 Token Authentication": the identity token is sent in the body, as a refresh token. */
  async function exchangeIdentityToken(
    url: URL,
    { password }: Credentials,
    signal: AbortSignal,
  ): Promise<TransferResponse> {
    const form = new URLSearchParams(url.searchParams)
    form.set('grant_type', 'refresh_token')
    form.set('client_id', 'skein-proxy')
    form.set('refresh_token', password.reveal())
    const bytes = Buffer.from(form.toString())
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    return await transport.send('POST', new URL(url.pathname, url), headers, signal, {
      sizeBytes: bytes.length,
      read: () => Readable.from([bytes]),
    })
  }

  function remember(scope: Scope, header: string, untilMs: number): string {
    authorizations.set(keyOf(scope), { header, untilMs })
    return header
  }

  return {
    known(scope) {
      const found = authorizations.get(keyOf(scope))
      return found !== undefined && monotonicMs() < found.untilMs ? found.header : undefined
    },
    invalidate(scope) {
      authorizations.delete(keyOf(scope))
    },
    async answer(scope, header, signal) {
      const challenges = parseChallenges(header ?? '')
      const bearerChallenge = challenges.find((challenge) => challenge.scheme === 'bearer')
      if (bearerChallenge !== undefined) {
        const { realm, service, scope: asked } = bearerChallenge.parameters
        return await flights.run(JSON.stringify([keyOf(scope), realm, service, asked]), () =>
          bearer(scope, bearerChallenge, signal),
        )
      }
      const credentials = credentialsFor(scope)
      const isBasic = challenges.some((challenge) => challenge.scheme === 'basic')
      if (isBasic && credentials !== undefined && credentials.username !== IDENTITY_TOKEN_USER) {
        return remember(scope, basicHeader(credentials), Infinity)
      }
      throw new ServiceError(
        'unauthenticated',
        `${scope.registry} requires credentials, and none are configured for it`,
      )
    },
  }
}

/** True if this realm can receive the credentials of its registry. */
export function canReceiveCredentials(scope: Scope, realm: URL): boolean {
  if (realm.protocol === 'https:')
    return scope.baseUrl.protocol === 'https:' || realm.hostname === scope.baseUrl.hostname
  return scope.baseUrl.protocol === 'http:' && realm.hostname === scope.baseUrl.hostname
}

function realmUrl(scope: Scope, challenge: Challenge): URL {
  const { realm, service, scope: asked } = challenge.parameters
  if (realm === undefined || !URL.canParse(realm)) {
    throw new ServiceError('unauthenticated', `${scope.registry} requires a token but has no valid realm`)
  }
  const url = new URL(realm)
  if (url.username !== '' || url.password !== '') {
    throw new ServiceError('unauthenticated', `${scope.registry} has a realm URL that contains credentials`)
  }
  if (service !== undefined) url.searchParams.set('service', service)
  url.searchParams.set('scope', asked ?? `repository:${scope.repository}:${scope.actions}`)
  return url
}

function refusedByRealm(scope: Scope, url: URL, status: number): ServiceError {
  if (status === 429 || status >= 500) {
    return new ServiceError('unavailable', `token service ${url.host} of ${scope.registry} returned ${status}`)
  }
  return new ServiceError(
    'unauthenticated',
    `token service ${url.host} of ${scope.registry} refused to issue a token (${status})`,
  )
}

function readToken(body: Buffer | undefined, url: URL): { token: string; seconds: number } {
  const refuse = () => new ServiceError('unavailable', `token service ${url.host} returned no token`)
  let value: unknown
  try {
    value = JSON.parse(body?.toString('utf8') ?? '')
  } catch {
    throw refuse()
  }
  if (typeof value !== 'object' || value === null) throw refuse()
  const fields = value as Record<string, unknown>
  const token = fields['token'] ?? fields['access_token']
  // RFC 6750 section 2.1: the characters of a bearer token; anything else could end the header.
  if (typeof token !== 'string' || !/^[A-Za-z0-9\-._~+/]+=*$/.test(token)) throw refuse()
  const stated = fields['expires_in']
  const seconds = typeof stated === 'number' && stated > 0 ? stated : DEFAULT_TOKEN_SECONDS
  return { token, seconds: Math.min(seconds, MAX_TOKEN_SECONDS) }
}

function basicHeader({ username, password }: Credentials): string {
  return `Basic ${Buffer.from(`${username}:${password.reveal()}`).toString('base64')}`
}

function keyOf(scope: Scope): string {
  return `${scope.registry}/${scope.repository} ${scope.actions}`
}
