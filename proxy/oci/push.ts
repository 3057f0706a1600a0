/**
 * Pushes a module as an artifact (OCI distribution, "Pushing blobs" and "Pushing Manifests") in the layout of the CNCF
 * (TAG Runtime, "Wasm OCI Artifact"): one layer `application/wasm` and a small config that names it.
 */
import { Readable } from 'node:stream'
import { ServiceError } from '#core/errors/index.ts'
import { digestOf } from './digest.ts'
import { locationOf, refusalOf } from './exchange.ts'
import type { Exchange, Repository } from './exchange.ts'
import { MANIFEST_TYPES } from './media-types.ts'
import type { Reference } from './reference.ts'
import { discard } from './transport.ts'
import type { Answer, RequestBody } from './transport.ts'

/** A module as it is on disk. */
export type PushedModule = RequestBody & {
  digest: string
  kind: 'core' | 'component'
}

export const WASM_LAYER_TYPE = 'application/wasm'
export const WASM_CONFIG_TYPE = 'application/vnd.wasm.config.v0+json'
/** What runs the module, as the config calls it. */
const OS = { core: 'wasip1', component: 'wasip2' } as const

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
  const config = bodyOf({
    created: createdAt.toISOString(),
    architecture: 'wasm',
    os: OS[module.kind],
    layerDigests: [module.digest],
  })
  await pushBlob(exchange, reference, config, signal)
  await pushBlob(exchange, reference, module, signal)
  const manifest = bodyOf({
    schemaVersion: 2,
    mediaType: MANIFEST_TYPES[0],
    config: { mediaType: WASM_CONFIG_TYPE, digest: config.digest, size: config.sizeBytes },
    layers: [{ mediaType: WASM_LAYER_TYPE, digest: module.digest, size: module.sizeBytes }],
  })
  const headers = { 'content-type': MANIFEST_TYPES[0] }
  const answer = await exchange.write('PUT', reference, `manifests/${reference.tag}`, headers, signal, manifest)
  requireStatus(answer, reference, 201, 'the manifest')
  return manifest.digest
}

type KnownBody = RequestBody & { digest: string }

function bodyOf(value: object): KnownBody {
  const bytes = Buffer.from(JSON.stringify(value))
  return { sizeBytes: bytes.length, digest: digestOf(bytes), read: () => Readable.from([bytes]) }
}

/** OCI distribution, "Pushing a blob monolithically": POST, then PUT. */
async function pushBlob(exchange: Exchange, to: Repository, blob: KnownBody, signal: AbortSignal): Promise<void> {
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
