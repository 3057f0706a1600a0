/** Content of manifests: the layer with the module, and the bytes of manifests, configs and layers. */
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { SingleFlight } from '#core/single-flight.ts'
import { isDigest } from '#core/digest.ts'
import { BlobCache, openRecords } from '../cache/index.ts'
import type { Blob, OpenBlob, Records } from '../cache/index.ts'
import {
  LAYER_FORMS,
  bundlesOfIndex,
  chooseEntry,
  chooseLayer,
  formatReference,
  isArchive,
  mediaTypeOf,
  moduleInvalid,
  parseManifest,
  pinnedReference,
  referrersTag,
  unpackModule,
} from '../oci/index.ts'
import type { Descriptor, FetchedManifest, Manifest, ModuleLayer, Reference, RegistryClient } from '../oci/index.ts'
import type { SharedDeadlines } from './deadlines.ts'
import type { Pulls } from './pulls.ts'

export type ArtifactsOptions = {
  client: RegistryClient
  blobs: BlobCache
  pulls: Pulls
  deadlines: SharedDeadlines
  folder: string
  maxModuleBytes: number
}

/** Manifests are immutable, so this result is cached permanently. */
export type KnownModule = Blob & { layer: ModuleLayer }

/** Descriptors of an index of referrers. */
export type Referrers = { entries: (Record<string, unknown> & { digest: string })[] }

export type StoredManifest = { bytes: Buffer; digest: string; mediaType: string }

const MAX_KNOWN_MODULES = 10_000
/** Size of cached manifests; most have a kilobyte. */
const MAX_MANIFESTS_BYTES = 64 * 1024 * 1024
/** An index can contain an index (OCI image specification, "Image Index"); deeper nesting is not used. */
const MAX_INDEX_DEPTH = 2

export class Artifacts {
  readonly #options: ArtifactsOptions
  readonly #manifests: BlobCache
  readonly #modules: Records<KnownModule>
  readonly #flights = new SingleFlight<KnownModule>()

  private constructor(options: ArtifactsOptions, manifests: BlobCache, modules: Records<KnownModule>) {
    this.#options = options
    this.#manifests = manifests
    this.#modules = modules
  }

  static async open(options: ArtifactsOptions): Promise<Artifacts> {
    const folder = join(options.folder, 'modules')
    const modules = await openRecords({ folder, maxRecords: MAX_KNOWN_MODULES, parse: parseKnownModule })
    const manifests = await BlobCache.open({ folder: join(options.folder, 'manifests'), maxBytes: MAX_MANIFESTS_BYTES })
    return new Artifacts(options, manifests, modules)
  }

  /** The module of a manifest. Throws `malformed` for a manifest without one, and the errors of the registry client. */
  async describe(reference: Reference, manifestDigest: string, manifest?: FetchedManifest): Promise<KnownModule> {
    const key = pinnedReference(reference, manifestDigest)
    return await this.#flights.run(key, async () => {
      const known = await this.#modules.get(key)
      if (known !== undefined) return known
      if (manifest !== undefined) await this.#keep(manifest)
      const layer = await this.#findLayer(reference, manifestDigest)
      const { digest, sizeBytes } = layer.form === 'wasm' ? layer.descriptor : await this.pullModule(reference, layer)
      const found = { digest, sizeBytes, layer }
      await this.#modules.set(key, found)
      return found
    })
  }

  /** Pulls a module into the cache. With `expected`, other bytes are `malformed`. */
  async pullModule(reference: Reference, layer: ModuleLayer, expected?: string): Promise<Blob> {
    const { client, blobs, pulls, maxModuleBytes } = this.#options
    const { descriptor, form } = layer
    return await pulls.run(reference.registry, `${placeOf(reference)}@${descriptor.digest}`, async (signal) => {
      const bytes = client.readBlob(reference, descriptor, signal)
      const limits = { maxModuleBytes }
      if (!isArchive(form)) return await blobs.store(unpackModule(layer, bytes, limits), descriptor.digest)
      // The archive is verified completely before it is parsed.
      const archive = await blobs.scratch(bytes)
      try {
        return await blobs.store(unpackModule(layer, archive.read(), limits), expected)
      } finally {
        await archive.remove()
      }
    })
  }

  /** The manifests from the one of this digest to that of the artifact, from the cache or the registry. */
  async manifests(reference: Reference, manifestDigest: string): Promise<StoredManifest[]> {
    return (await this.#walk(reference, manifestDigest)).manifests
  }

  /** A config or layer of the artifact; undefined: it has none with this digest. The caller must close it. */
  async openPart(reference: Reference, manifestDigest: string, digest: string): Promise<OpenBlob | undefined> {
    const { image } = await this.#walk(reference, manifestDigest)
    const part = [image.config, ...image.layers].find((descriptor) => descriptor.digest === digest)
    if (part === undefined) return undefined
    return (await this.#options.blobs.open(digest)) ?? (await this.#pullPart(reference, part))
  }

  /** The Sigstore bundles that refer to a manifest, from the API or the tag that replaces it. */
  async referrers(reference: Reference, manifestDigest: string): Promise<Referrers> {
    const { client, deadlines } = this.#options
    const signal = deadlines.signalFor(`referrers of ${pinnedReference(reference, manifestDigest)}`)
    const index =
      (await client.getReferrers(reference, manifestDigest, signal)) ??
      (await taggedReferrers(client, { ...reference, digest: undefined, tag: referrersTag(manifestDigest) }, signal))
    return { entries: index === undefined ? [] : bundlesOfIndex(index) }
  }

  async #pullPart(reference: Reference, part: Descriptor): Promise<OpenBlob | undefined> {
    const { client, blobs, pulls, maxModuleBytes } = this.#options
    if (part.sizeBytes > maxModuleBytes) {
      throw new ServiceError('too_large', `the blob has ${part.sizeBytes} bytes; at most ${maxModuleBytes} are served`)
    }
    await pulls.run(reference.registry, `${placeOf(reference)}@${part.digest}`, (signal) =>
      blobs.store(client.readBlob(reference, part, signal), part.digest),
    )
    return await blobs.open(part.digest)
  }

  async #findLayer(reference: Reference, manifestDigest: string): Promise<ModuleLayer> {
    const { maxModuleBytes } = this.#options
    const layer = chooseLayer((await this.#walk(reference, manifestDigest)).image)
    // An archive has padding and headers around the module, compressed or not.
    if (layer.descriptor.sizeBytes > maxModuleBytes) {
      throw moduleInvalid(`layer has ${layer.descriptor.sizeBytes} bytes; at most ${maxModuleBytes} are accepted`)
    }
    return layer
  }

  async #walk(reference: Reference, from: string): Promise<{ manifests: StoredManifest[]; image: ImageManifest }> {
    const manifests: StoredManifest[] = []
    for (let digest = from; manifests.length <= MAX_INDEX_DEPTH;) {
      const { bytes, contentType } = await this.#bytesOf(reference, digest)
      const parsed = parseManifest(bytes, contentType)
      manifests.push({ bytes, digest, mediaType: mediaTypeOf(bytes, parsed.kind) })
      if (parsed.kind === 'manifest') return { manifests, image: parsed }
      digest = chooseEntry(parsed.entries).digest
    }
    throw moduleInvalid(`index of ${formatReference(reference)} is nested deeper than ${MAX_INDEX_DEPTH}`)
  }

  async #bytesOf(reference: Reference, digest: string): Promise<Pick<FetchedManifest, 'bytes' | 'contentType'>> {
    const { client, deadlines } = this.#options
    const blob = await this.#manifests.open(digest)
    if (blob !== undefined) {
      await using handle = blob.handle
      return { bytes: await handle.readFile(), contentType: undefined }
    }
    const signal = deadlines.signalFor(pinnedReference(reference, digest))
    const fetched = await client.getManifest({ ...reference, digest }, signal)
    await this.#keep(fetched)
    return fetched
  }

  async #keep({ bytes, digest }: FetchedManifest): Promise<void> {
    await this.#manifests.store(Readable.from([bytes]), digest)
  }
}

type ImageManifest = Extract<Manifest, { kind: 'manifest' }>

async function taggedReferrers(
  client: RegistryClient,
  reference: Reference,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  try {
    return (await client.getManifest(reference, signal)).bytes
  } catch (error) {
    if (kindOf(error) === 'not_found') return undefined
    throw error
  }
}

const placeOf = ({ registry, repository }: Reference) => `${registry}/${repository}`

function parseKnownModule(value: unknown): KnownModule | undefined {
  const module = value as Partial<KnownModule> | null
  const descriptor = module?.layer?.descriptor
  const isWhole =
    typeof module?.digest === 'string' &&
    isDigest(module.digest) &&
    typeof module.sizeBytes === 'number' &&
    typeof descriptor?.mediaType === 'string' &&
    typeof descriptor.digest === 'string' &&
    isDigest(descriptor.digest) &&
    typeof descriptor.sizeBytes === 'number' &&
    typeof module.layer?.configType === 'string' &&
    LAYER_FORMS.some((form) => form === module.layer?.form)
  return isWhole ? (module as KnownModule) : undefined
}
