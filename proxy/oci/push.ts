/** Pushes a module as an artifact (OCI distribution, "Pushing blobs" and "Pushing Manifests"). */
import { Readable } from 'node:stream'
import { ServiceError } from '#core/errors/index.ts'
import { discard } from '#core/transfer/index.ts'
import type { TransferResponse, RequestBody } from '#core/transfer/index.ts'
import { artifactOf } from './artifact.ts'
import type { ModuleOfArtifact } from './artifact.ts'
import { locationOf, refusalOf } from './registry-http.ts'
import type { RegistryHttp, Repository } from './registry-http.ts'
import type { Reference } from './reference.ts'

/** A module on disk. */
export type PushedModule = ModuleOfArtifact & {
  read(): AsyncIterable<Buffer>
}

/**
 * Pushes under the tag of the reference and returns the digest of the manifest. Blobs that the registry has are not sent
 * again. Throws `unauthenticated`, `forbidden`, `not_found` (no such repository), `rate_limited`, `unavailable`,
 * `timeout`.
 */
export async function pushModule(
  registryHttp: RegistryHttp,
  reference: Reference,
  module: PushedModule,
  createdAt: Date,
  signal: AbortSignal,
): Promise<string> {
  const { manifest, config } = artifactOf(module, titleOf(reference), createdAt)
  await pushBlob(registryHttp, reference, { digest: config.digest, ...bodyOf(config.bytes) }, signal)
  await pushBlob(registryHttp, reference, module, signal)
  const headers = { 'content-type': manifest.mediaType }
  const path = `manifests/${reference.tag}`
  const answer = await registryHttp.write('PUT', reference, path, headers, signal, bodyOf(manifest.bytes))
  requireStatus(answer, reference, 201, 'the manifest')
  return manifest.digest
}

/** `add.wasm` for `acme/add`. */
function titleOf({ repository }: Reference): string {
  return `${repository.split('/').at(-1)}.wasm`
}

function bodyOf(bytes: Buffer): RequestBody {
  return { sizeBytes: bytes.length, read: () => Readable.from([bytes]) }
}

/** OCI distribution, "Pushing a blob monolithically": POST, then PUT. */
async function pushBlob(
  registryHttp: RegistryHttp,
  to: Repository,
  blob: RequestBody & { digest: string },
  signal: AbortSignal,
): Promise<void> {
  const there = await registryHttp.write('HEAD', to, `blobs/${blob.digest}`, {}, signal)
  discard(there)
  if (there.status === 200) return
  const begun = await registryHttp.write('POST', to, 'blobs/uploads/', {}, signal, EMPTY)
  requireStatus(begun, to, 202, 'the upload of a blob')
  const location = locationOf(begun)
  location.searchParams.set('digest', blob.digest)
  const headers = { 'content-type': 'application/octet-stream' }
  requireStatus(await registryHttp.write('PUT', to, location, headers, signal, blob), to, 201, 'a blob')
}

const EMPTY: RequestBody = { sizeBytes: 0, read: () => Readable.from([]) }

function requireStatus(answer: TransferResponse, to: Repository, wanted: number, what: string): void {
  discard(answer)
  if (answer.status === wanted) return
  // OCI distribution, error codes DENIED and UNSUPPORTED: a read-only registry returns 405.
  if (answer.status === 405) throw new ServiceError('forbidden', `${to.registry} does not accept pushes`)
  if (answer.status === 404) throw new ServiceError('not_found', `${to.registry} has no ${to.repository} to push to`)
  throw refusalOf(answer, to, `pushing ${what} to ${to.repository}`)
}
