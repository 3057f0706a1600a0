/**
 * The pull side of the OCI distribution specification: manifests and blobs of a repository, with authentication,
 * redirects, retries and resumption. Everything it gives was checked against its digest.
 */
import { createHash } from 'node:crypto'
import { ServiceError, isRetryable } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import type { Auth, Scope } from './auth.ts'
import { digestOf, isDigest } from './digest.ts'
import type { Descriptor } from './manifest.ts'
import { MAX_MANIFEST_BYTES } from './manifest.ts'
import { MANIFEST_ACCEPT, bareMediaType } from './media-types.ts'
import { formatReference } from './reference.ts'
import type { Reference } from './reference.ts'
import { moduleInvalid } from './refusal.ts'
import type { Registries } from './registry.ts'
import { retryAfterMs } from './retry-after.ts'
import { discard } from './transport.ts'
import type { Answer, Transport } from './transport.ts'

export type FetchedManifest = { bytes: Buffer; digest: string; contentType: string | undefined }
/** Which repository of which registry. */
export type Repository = Pick<Reference, 'registry' | 'repository'>

export type RegistryClient = {
  /**
   * The manifest or index behind a reference. Throws `not_found`, `unauthenticated`, `forbidden`, `malformed` (larger than
   * 4 MiB, or not what its digest says), `rate_limited`, `unavailable` or `timeout`.
   */
  getManifest(reference: Reference, signal: AbortSignal): Promise<FetchedManifest>
  /**
   * The bytes of a blob. Resumes where it broke off; ends without an error only when size and digest are those of the
   * descriptor, so nothing that was read before the end may be used.
   */
  readBlob(repository: Repository, blob: Descriptor, signal: AbortSignal): AsyncGenerator<Buffer>
}

export type ClientLimits = {
  /** First pause before a repetition; doubles each time. */
  retryDelayMs: number
  /** The longest `Retry-After` that is waited for; a longer one is the caller's to wait. */
  maxRetryAfterMs: number
}

const MAX_ATTEMPTS = 3
const MAX_RESUMPTIONS = 5
const MAX_REDIRECTS = 5
const REDIRECTS = new Set([301, 302, 303, 307, 308])

export type ClientDeps = { transport: Transport; auth: Auth; registries: Registries; limits: ClientLimits }

export function createRegistryClient({ transport, auth, registries, limits }: ClientDeps): RegistryClient {
  /** GET below `/v2/<repository>/`: authenticated at the registry, redirects followed without credentials. */
  async function get(
    repository: Repository,
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const baseUrl = await registries.baseUrl(repository.registry, signal)
    const scope: Scope = { ...repository, baseUrl }
    const url = new URL(`v2/${repository.repository}/${path}`, baseUrl)
    const answer = await authenticated(scope, url, headers, signal)
    return REDIRECTS.has(answer.status) ? await followRedirects(answer, headers, signal) : answer
  }

  async function authenticated(
    scope: Scope,
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const send = (authorization: string | undefined) =>
      transport.get(url, authorization === undefined ? headers : { ...headers, authorization }, signal)
    const first = await send(auth.known(scope))
    if (first.status !== 401) return first
    discard(first)
    auth.forget(scope)
    const second = await send(await auth.answer(scope, first.headers['www-authenticate'], signal))
    if (second.status === 401) auth.forget(scope)
    return second
  }

  async function followRedirects(first: Answer, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
    let answer = first
    for (let count = 0; count < MAX_REDIRECTS; count++) {
      discard(answer)
      const { location } = answer.headers
      if (location === undefined || !URL.canParse(location, answer.url)) {
        throw new ServiceError('unavailable', `${answer.url.host} answered ${answer.status} without a usable Location`)
      }
      // `headers` never holds an Authorization: credentials do not cross a redirect, not even back to the same host.
      answer = await transport.get(new URL(location, answer.url), headers, signal)
      if (!REDIRECTS.has(answer.status)) return answer
    }
    discard(answer)
    throw new ServiceError('unavailable', `${first.url.host} redirects more than ${MAX_REDIRECTS} times`)
  }

  /** One request with its answer's status judged, repeated while that can help. */
  async function getOk(
    repository: Repository,
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
    what: string,
  ): Promise<Answer> {
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await get(repository, path, headers, signal)
        if (answer.status === 200 || answer.status === 206) return answer
        discard(answer)
        throw refusal(answer, repository, what)
      } catch (error) {
        await pauseBeforeRetry(error, attempt, MAX_ATTEMPTS, signal)
      }
    }
  }

  /** Waits before the next attempt; rethrows when there is none, or when asking again gives the same answer. */
  async function pauseBeforeRetry(
    error: unknown,
    attempt: number,
    maxAttempts: number,
    signal: AbortSignal,
  ): Promise<void> {
    signal.throwIfAborted() // its reason says more than the error of a connection that it cut
    if (!isRetryable(error) || attempt >= maxAttempts) throw error
    const stated = error instanceof ServiceError ? error.retryAfterSeconds : undefined
    if (stated !== undefined && stated * 1000 > limits.maxRetryAfterMs) throw error
    await sleep(stated === undefined ? limits.retryDelayMs * 2 ** (attempt - 1) : stated * 1000, signal)
  }

  return {
    async getManifest(reference, signal) {
      const what = `manifest ${formatReference(reference)}`
      const path = `manifests/${reference.digest ?? reference.tag}`
      for (let attempt = 1; ; attempt++) {
        const answer = await getOk(reference, path, { accept: MANIFEST_ACCEPT }, signal, what)
        try {
          const bytes = await transport.readBody(answer, MAX_MANIFEST_BYTES)
          if (bytes === undefined) throw moduleInvalid(`${what} is larger than ${MAX_MANIFEST_BYTES} bytes`)
          return checkedManifest(reference, answer, bytes, what)
        } catch (error) {
          await pauseBeforeRetry(error, attempt, MAX_ATTEMPTS, signal) // broke off in the middle
        }
      }
    },

    async *readBlob(repository, blob, signal) {
      const what = `blob ${blob.digest} of ${repository.registry}/${repository.repository}`
      const hash = createHash('sha256')
      let received = 0
      for (let attempt = 1; received < blob.sizeBytes || attempt === 1; attempt++) {
        const range = received === 0 ? {} : { range: `bytes=${received}-` }
        const answer = await getOk(repository, `blobs/${blob.digest}`, range, signal, what)
        try {
          for await (const piece of fromOffset(transport.chunksOf(answer), received - startOf(answer, received))) {
            received += piece.length
            if (received > blob.sizeBytes)
              throw moduleInvalid(`${what} is longer than the ${blob.sizeBytes} bytes of its descriptor`)
            hash.update(piece)
            yield piece
          }
          if (received < blob.sizeBytes)
            throw new ServiceError('unavailable', `${what} ended after ${received} of ${blob.sizeBytes} bytes`)
        } catch (error) {
          await pauseBeforeRetry(error, attempt, MAX_RESUMPTIONS, signal)
        }
      }
      const digest = `sha256:${hash.digest('hex')}`
      if (digest !== blob.digest) throw moduleInvalid(`${what} has other bytes: their digest is ${digest}`)
    },
  }
}

/** OCI distribution, "Pulling manifests": the digest asked for, else the one that the registry announced, must be the body's. */
function checkedManifest(reference: Reference, answer: Answer, bytes: Buffer, what: string): FetchedManifest {
  const digest = digestOf(bytes)
  const announced = answer.headers['docker-content-digest']
  const wanted = reference.digest ?? (typeof announced === 'string' && isDigest(announced) ? announced : undefined)
  if (wanted !== undefined && wanted !== digest)
    throw moduleInvalid(`${what} has other bytes: their digest is ${digest}, not ${wanted}`)
  return { bytes, digest, contentType: bareMediaType(answer.headers['content-type']) }
}

/** Where the body of this answer begins: a registry may ignore the Range and send everything (RFC 9110 section 14.2). */
function startOf(answer: Answer, wanted: number): number {
  if (answer.status !== 206) return 0
  const start = /^bytes (\d+)-/.exec(answer.headers['content-range'] ?? '')?.[1]
  // More than was asked for may come before the offset, but never less.
  if (start === undefined || Number(start) > wanted) {
    discard(answer)
    throw new ServiceError('unavailable', `${answer.url.host} answered another range than the one asked for`)
  }
  return Number(start)
}

async function* fromOffset(pieces: AsyncIterable<Buffer>, skipBytes: number): AsyncGenerator<Buffer> {
  let left = skipBytes
  for await (const piece of pieces) {
    if (left < piece.length) yield left === 0 ? piece : piece.subarray(left)
    left = Math.max(0, left - piece.length)
  }
}

function refusal(answer: Answer, { registry, repository }: Repository, what: string): ServiceError {
  switch (answer.status) {
    case 401:
      return new ServiceError('unauthenticated', `${registry} refuses the credentials for ${repository}`)
    case 403:
      return new ServiceError('forbidden', `${registry} does not allow pulling from ${repository}`)
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
