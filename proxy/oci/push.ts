/** Pushes a module as an artifact (OCI distribution, "Pushing blobs" and "Pushing Manifests"). */
import { Readable } from 'node:stream'
import { ServiceError } from '#core/errors/index.ts'
import { discard } from '#core/transfer/index.ts'
import type { Answer, RequestBody } from '#core/transfer/index.ts'
import { artifactOf } from './artifact.ts'
import { locationOf, refusalOf } from './exchange.ts'
import type { Exchange, Repository } from './exchange.ts'
import type { Reference } from './reference.ts'

/** A module as it is on disk. */
export type PushedModule = {
  digest: string
  sizeBytes: number
  kind: 'core' | 'component'
  read(): AsyncIterable<Buffer>
}

/**
 * Pushes under the tag of the reference and gives the digest of the manifest. What the registry has already is not sent
 * again. Throws `unauthenticated`, `forbidden`, `not_found` (no such repository), `rate_limited`, `unavailable`, `timeout`.
 */
export async function pushModule(
  exchange: Exchange,
  reference: Reference,
  module: PushedModule,
  createdAt: Date,
  signal: AbortSignal,
): Promise<string> {
  const { manifest, config } = artifactOf(module, createdAt)
  await pushBlob(exchange, reference, { digest: config.digest, ...bodyOf(config.bytes) }, signal)
  await pushBlob(exchange, reference, module, signal)
  const headers = { 'content-type': manifest.mediaType }
  const path = `manifests/${reference.tag}`
  const answer = await exchange.write('PUT', reference, path, headers, signal, bodyOf(manifest.bytes))
  requireStatus(answer, reference, 201, 'the manifest')
  return manifest.digest
}

function bodyOf(bytes: Buffer): RequestBody {
  return { sizeBytes: bytes.length, read: () => Readable.from([bytes]) }
}

/** OCI distribution, "Pushing a blob monolithically": POST, then PUT. */
async function pushBlob(
  exchange: Exchange,
  to: Repository,
  blob: RequestBody & { digest: string },
  signal: AbortSignal,
): Promise<void> {
  const there = await exchange.write('HEAD', to, `blobs/${blob.digest}`, {}, signal)
  discard(there)
  if (there.status === 200) return
  const begun = await exchange.write('POST', to, 'blobs/uploads/', {}, signal, EMPTY)
  requireStatus(begun, to, 202, 'the upload of a blob')
  const location = locationOf(begun)
  location.searchParams.set('digest', blob.digest)
  const headers = { 'content-type': 'application/octet-stream' }
  requireStatus(await exchange.write('PUT', to, location, headers, signal, blob), to, 201, 'a blob')
}

const EMPTY: RequestBody = { sizeBytes: 0, read: () => Readable.from([]) }

function requireStatus(answer: Answer, to: Repository, wanted: number, what: string): void {
  discard(answer)
  if (answer.status === wanted) return
  // OCI distribution, error codes DENIED and UNSUPPORTED: a registry that is read-only says 405.
  if (answer.status === 405) throw new ServiceError('forbidden', `${to.registry} takes no pushes`)
  if (answer.status === 404) throw new ServiceError('not_found', `${to.registry} has no ${to.repository} to push to`)
  throw refusalOf(answer, to, `pushing ${what} to ${to.repository}`)
}
