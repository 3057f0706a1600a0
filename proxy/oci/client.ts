/**
 * The pull side of the OCI distribution specification: manifests and blobs of a repository, with authentication,
 * redirects, retries and resumption. All results are verified against their digest.
 */
import { createHash } from 'node:crypto'
import { ServiceError, isRetryable, kindOf } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import { digestOf, digestOfHash, isDigest } from '#core/digest.ts'
import { bodyFrom, discard, rangeFrom } from '#core/transfer/index.ts'
import type { TransferResponse, TransferClient } from '#core/transfer/index.ts'
import { refusalOf } from './registry-http.ts'
import type { RegistryHttp, Repository } from './registry-http.ts'
import type { Descriptor } from './manifest.ts'
import { MAX_MANIFEST_BYTES } from './manifest.ts'
import { INDEX_TYPES, MANIFEST_ACCEPT, bareMediaType } from './media-types.ts'
import { formatReference } from './reference.ts'
import type { Reference } from './reference.ts'
import { moduleInvalid } from './refusal.ts'

export type FetchedManifest = { bytes: Buffer; digest: string; contentType: string | undefined }

export type RegistryClient = {
  /**
   * The manifest or index of a reference. Throws `not_found`, `unauthenticated`, `forbidden`, `malformed` (larger than 4
   * MiB, or a digest mismatch), `rate_limited`, `unavailable` or `timeout`.
   */
  getManifest(reference: Reference, signal: AbortSignal): Promise<FetchedManifest>
  /**
   * The bytes of a blob. Resumes after an interruption; ends without an error only if size and digest match the
   * descriptor, so the bytes must not be used before the end.
   */
  readBlob(repository: Repository, blob: Descriptor, signal: AbortSignal): AsyncGenerator<Buffer>
  /**
   * The index of the artifacts whose subject is this manifest (OCI distribution, "Listing Referrers"); undefined: the
   * registry has no such API.
   */
  getReferrers(repository: Repository, digest: string, signal: AbortSignal): Promise<Buffer | undefined>
}

export type ClientLimits = {
  /** First pause before a retry; doubles each time. */
  retryDelayMs: number
  /** The longest accepted `Retry-After`; a longer one is passed to the caller. */
  maxRetryAfterMs: number
}

const MAX_ATTEMPTS = 3
const MAX_RESUMPTIONS = 5

export type ClientDeps = { transport: TransferClient; registryHttp: RegistryHttp; limits: ClientLimits }

export function createRegistryClient({ transport, registryHttp, limits }: ClientDeps): RegistryClient {
  /** One request with a check of its status, retried while that can help. */
  async function getOk(
    repository: Repository,
    path: string,
    headers: Record<string, string>,
    signal: AbortSignal,
    what: string,
  ): Promise<TransferResponse> {
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await registryHttp.get(repository, path, headers, signal)
        if (answer.status === 200 || answer.status === 206) return answer
        discard(answer)
        throw refusalOf(answer, repository, what)
      } catch (error) {
        await pauseBeforeRetry(error, attempt, MAX_ATTEMPTS, signal)
      }
    }
  }

  /** Waits before the next attempt; rethrows after the last one, or if a retry would give the same answer. */
  async function pauseBeforeRetry(
    error: unknown,
    attempt: number,
    maxAttempts: number,
    signal: AbortSignal,
  ): Promise<void> {
    signal.throwIfAborted() // its reason is more specific than the error of the aborted connection
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
          await pauseBeforeRetry(error, attempt, MAX_ATTEMPTS, signal) // interrupted during the body
        }
      }
    },

    async getReferrers(repository, digest, signal) {
      const what = `referrers of ${digest}`
      const path = `referrers/${digest}`
      try {
        const answer = await getOk(repository, path, { accept: INDEX_TYPES[0] }, signal, what)
        const isIndex = bareMediaType(answer.headers['content-type']) === INDEX_TYPES[0]
        if (isIndex) return await transport.readBody(answer, MAX_MANIFEST_BYTES)
        discard(answer)
        return undefined
      } catch (error) {
        if (kindOf(error) === 'not_found') return undefined
        throw error
      }
    },

    async *readBlob(repository, blob, signal) {
      const what = `blob ${blob.digest} of ${repository.registry}/${repository.repository}`
      const hash = createHash('sha256')
      let received = 0
      for (let attempt = 1; received < blob.sizeBytes || attempt === 1; attempt++) {
        const answer = await getOk(repository, `blobs/${blob.digest}`, rangeFrom(received), signal, what)
        try {
          for await (const piece of bodyFrom(transport, answer, received)) {
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
      const digest = digestOfHash(hash)
      if (digest !== blob.digest) throw moduleInvalid(`${what} has digest ${digest}`)
    },
  }
}

/**
 * OCI distribution, "Pulling manifests": the requested digest, else the one that the registry announced, must match the
 * body.
 */
function checkedManifest(reference: Reference, answer: TransferResponse, bytes: Buffer, what: string): FetchedManifest {
  const digest = digestOf(bytes)
  const announced = answer.headers['docker-content-digest']
  const wanted = reference.digest ?? (typeof announced === 'string' && isDigest(announced) ? announced : undefined)
  if (wanted !== undefined && wanted !== digest) throw moduleInvalid(`${what} has digest ${digest}, not ${wanted}`)
  return { bytes, digest, contentType: bareMediaType(answer.headers['content-type']) }
}
