/**
 * Resolves references to the bytes of modules: from the cache if possible, else from the registry, with one request for
 * all concurrent callers (task manager section 6, rules 6 and 8).
 */
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { isDigest } from '#core/digest.ts'
import { ModuleRefusal } from '#guests/wasm/index.ts'
import { BlobCache, openRecords } from '../cache/index.ts'
import type { Blob, OpenBlob, Records } from '../cache/index.ts'
import { artifactOf, moduleInvalid, parseReference, pinnedReference } from '../oci/index.ts'
import type { Artifact, Reference, RegistryClient } from '../oci/index.ts'
import { Artifacts } from './artifacts.ts'
import type { Referrers, StoredManifest } from './artifacts.ts'
import { SharedDeadlines } from './deadlines.ts'
import { PROXY_METRICS } from './metrics.ts'
import { interfacesOf, readModuleFacts } from './module-facts.ts'
import type { ModuleFacts } from './module-facts.ts'
import { Pulls } from './pulls.ts'
import { References } from './references.ts'
import { openSignatures } from './signatures.ts'
import type { Signatures } from './signatures.ts'
import { readUpload } from './uploads.ts'
import type { Uploads } from './uploads.ts'

/** The domain of a request and its signature policy. */
export type ModuleRequester = {
  /** Empty: the platform. */
  domainId: string
  policy: 'off' | 'warn' | 'require'
  /** PEM. */
  keys: readonly string[]
}

export type Resolved = Blob & {
  /** The reference with registry, repository and manifest digest, which is immutable. */
  reference: string
  /** True: the registry was unavailable and an earlier answer was used. */
  stale: boolean
  /** A key of the policy signed it. */
  signed: boolean
  /** The reason why it is not signed, under the policy `warn`; otherwise empty. */
  signatureProblem: string
}

export type SourceLimits = {
  maxModuleBytes: number
  maxCacheBytes: number
  tagFreshMs: number
  tagHoldMs: number
  /** The time of a whole `resolve` or pull, including waiting and retries. */
  pullDeadlineMs: number
}

export type ModuleSourceOptions = {
  client: RegistryClient
  uploads: Uploads
  folder: string
  /** Registry of references without a registry. */
  defaultRegistry: string | undefined
  limits: SourceLimits
  logger: Logger
}

export type DescribedBlob = Blob & { usedMs: number; facts: ModuleFacts | undefined }

type Parts = {
  blobs: BlobCache
  pulls: Pulls
  deadlines: SharedDeadlines
  references: References
  artifacts: Artifacts
  signatures: Signatures
  facts: Records<ModuleFacts>
}

const MAX_KNOWN_FACTS = 10_000
/** The file name of an upload: its task has a name, and its digest has none. */
const UPLOAD_TITLE = 'module.wasm'
/** Uploads share one source for all callers. */
const MANAGER = 'uploads'

export class ModuleSource {
  readonly #options: ModuleSourceOptions
  readonly #parts: Parts
  readonly #sources: readonly (() => void)[]

  private constructor(options: ModuleSourceOptions, parts: Parts) {
    this.#options = options
    this.#parts = parts
    this.#sources = [
      PROXY_METRICS.cacheBytes.fromValue(() => parts.blobs.usedBytes),
      PROXY_METRICS.cacheLimit.fromValue(() => options.limits.maxCacheBytes),
    ]
  }

  static async open(options: ModuleSourceOptions): Promise<ModuleSource> {
    const { client, folder, limits, logger } = options
    const deadlines = new SharedDeadlines(limits.pullDeadlineMs)
    const blobs = await BlobCache.open({ folder: join(folder, 'blobs'), maxBytes: limits.maxCacheBytes })
    const pulls = new Pulls({ blobs, deadlines, pullDeadlineMs: limits.pullDeadlineMs, logger })
    const { maxModuleBytes } = limits
    return new ModuleSource(options, {
      blobs,
      pulls,
      deadlines,
      references: await References.open({ client, deadlines, folder, limits, logger }),
      artifacts: await Artifacts.open({ client, blobs, pulls, deadlines, folder, maxModuleBytes }),
      signatures: await openSignatures(client, folder),
      facts: await openRecords({
        folder: join(folder, 'facts'),
        maxRecords: MAX_KNOWN_FACTS,
        parse: (value) => value as ModuleFacts,
      }),
    })
  }

  /**
   * Resolves a reference. Throws `malformed` (not a reference, or not a module), `not_found`, `unauthenticated`,
   * `forbidden` (an address that references cannot reach), `unprocessable` (not signed as the policy requires),
   * `rate_limited`, `unavailable`, `timeout`.
   */
  async resolve(text: string, requester: ModuleRequester): Promise<Resolved> {
    const { references, artifacts } = this.#parts
    const reference = parseReference(text, this.#options.defaultRegistry)
    requireOwn(reference, this.#options.defaultRegistry, requester.domainId)
    const { manifestDigest, stale, manifest } = await references.locate(reference)
    const { digest, sizeBytes } = await artifacts.describe(reference, manifestDigest, manifest)
    const { signed, problem } = await this.#checkSignature(reference, manifestDigest, requester)
    const pinned = pinnedReference(reference, manifestDigest)
    return { digest, sizeBytes, reference: pinned, stale, signed, signatureProblem: problem }
  }

  /**
   * Opens a module; if it is not cached, it is fetched from its registry by `pinned` (the result of `resolve`), or from
   * the manager if that is empty. The caller must close the handle. Throws the errors of `resolve`.
   */
  async open(digest: string, pinned: string): Promise<OpenBlob> {
    const { blobs, artifacts, pulls } = this.#parts
    if (!isDigest(digest)) throw new ServiceError('malformed', 'digest must be sha256:<64 hexadecimal digits>')
    const cached = await blobs.open(digest)
    PROXY_METRICS.requests.add({ result: cached === undefined ? 'miss' : 'hit' })
    if (cached !== undefined) return cached
    if (pinned === '') {
      await pulls.run(MANAGER, `${MANAGER}@${digest}`, (signal) =>
        blobs.store(readUpload(this.#options.uploads, digest, signal), digest),
      )
    } else {
      const { reference, manifestDigest } = this.#parsePinned(pinned)
      const module = await artifacts.describe(reference, manifestDigest)
      if (module.digest !== digest) throw moduleInvalid(`${pinned} contains module ${module.digest}, not ${digest}`)
      const described = await blobs.open(digest)
      if (described !== undefined) return described
      await artifacts.pullModule(reference, module.layer, digest)
    }
    const pulled = await blobs.open(digest)
    if (pulled !== undefined) return pulled
    throw new ServiceError('unavailable', 'the module cache is too small for the concurrent requests')
  }

  /** The manifests of an artifact of a registry, the one of `pinned` first. Throws the errors of `resolve`. */
  async manifests(pinned: string): Promise<StoredManifest[]> {
    const { reference, manifestDigest } = this.#parsePinned(pinned)
    return await this.#parts.artifacts.manifests(reference, manifestDigest)
  }

  /** The current digest of a tag in the repository of `pinned`. */
  async locateTag(pinned: string, tag: string): Promise<string> {
    const { reference } = this.#parsePinned(pinned)
    return (await this.#parts.references.locate({ ...reference, tag, digest: undefined })).manifestDigest
  }

  /**
   * The config or a layer of an artifact of a registry; undefined: it has none with this digest. The caller must close
   * it.
   */
  async openPart(pinned: string, digest: string): Promise<OpenBlob | undefined> {
    const { reference, manifestDigest } = this.#parsePinned(pinned)
    return await this.#parts.artifacts.openPart(reference, manifestDigest, digest)
  }

  /** The manifests of signatures that refer to the artifact of a registry, as an index of referrers. Throws the errors of `resolve`. */
  async referrers(pinned: string): Promise<Referrers> {
    const { reference, manifestDigest } = this.#parsePinned(pinned)
    return await this.#parts.artifacts.referrers(reference, manifestDigest)
  }

  /** The artifact of an upload, always the same one. Throws the errors of `open`. */
  async artifactOfUpload(digest: string): Promise<Artifact> {
    const { handle, sizeBytes } = await this.open(digest, '')
    await using file = handle
    const facts = await this.#factsOf(digest, file, sizeBytes)
    if (facts === undefined) throw new ServiceError('unavailable', 'too many modules are being read; retry later')
    return artifactOf({ digest, sizeBytes, kind: facts.kind, interfaces: interfacesOf(facts) }, UPLOAD_TITLE)
  }

  /** Stores bytes in the cache. Throws `malformed` on a digest mismatch. */
  async keep(bytes: AsyncIterable<Buffer>, digest: string | undefined): Promise<Blob> {
    return await this.#parts.blobs.store(bytes, digest)
  }

  /** Facts about cached modules; others are omitted. */
  async describe(digests: readonly string[], withFacts: boolean): Promise<DescribedBlob[]> {
    const described: DescribedBlob[] = []
    for (const digest of digests) {
      const blob = await this.#parts.blobs.peek(digest)
      if (blob === undefined) continue
      await using handle = blob.handle
      const { sizeBytes, usedMs } = blob
      const facts = withFacts ? await this.#factsOf(digest, handle, sizeBytes) : undefined
      described.push({ digest, sizeBytes, usedMs, facts })
    }
    return described
  }

  /** Removes a module from the cache; no effect if it is not cached. */
  async discard(digest: string): Promise<void> {
    await this.#parts.blobs.remove(digest)
  }

  /** Aborts all pulls. */
  close(): void {
    this.#parts.deadlines.close()
    for (const remove of this.#sources) remove()
  }

  #parsePinned(pinned: string): { reference: Reference; manifestDigest: string } {
    const reference = parseReference(pinned, this.#options.defaultRegistry)
    // With a tag a retry could run other bytes than the first attempt.
    if (reference.digest === undefined) throw new ServiceError('malformed', `reference "${pinned}" must have a digest`)
    return { reference, manifestDigest: reference.digest }
  }

  async #checkSignature(
    reference: Reference,
    manifestDigest: string,
    { policy, keys }: ModuleRequester,
  ): Promise<{ signed: boolean; problem: string }> {
    if (policy === 'off') return { signed: false, problem: '' }
    const { signatures, deadlines } = this.#parts
    const name = pinnedReference(reference, manifestDigest)
    try {
      const signal = deadlines.signalFor(`signature of ${name}`)
      if (await signatures.isSigned(reference, manifestDigest, keys, signal)) return { signed: true, problem: '' }
    } catch (error) {
      if (policy === 'require') throw error
      return { signed: false, problem: `the signature of ${name} could not be verified: ${messageOf(error)}` }
    }
    const problem = `${name} is not signed by a key of the policy`
    if (policy === 'require') throw new ServiceError('unprocessable', problem)
    return { signed: false, problem }
  }

  async #factsOf(digest: string, handle: FileHandle, sizeBytes: number): Promise<ModuleFacts | undefined> {
    const { facts } = this.#parts
    const known = await facts.get(digest)
    // Facts of an earlier version have no imports.
    if (known !== undefined && (known.exports === undefined || known.imports !== undefined)) return known
    try {
      const found = await readModuleFacts(handle, sizeBytes, digest)
      await facts.set(digest, found)
      return found
    } catch (error) {
      // A later request can succeed.
      if (error instanceof ModuleRefusal || kindOf(error) === 'rate_limited') return undefined
      throw error
    }
  }
}

/**
 * Domains push to repositories of the configured registry that begin with their id, with the operator's credentials;
 * these must not reveal repositories of other domains. Throws `not_found`.
 */
function requireOwn(reference: Reference, configured: string | undefined, domainId: string): void {
  if (domainId === '' || reference.registry !== configured) return
  const [owner = ''] = reference.repository.split('/')
  if (isId(owner) && owner !== domainId)
    throw new ServiceError('not_found', `${reference.registry} has no ${reference.repository}`)
}

function messageOf(error: unknown): string {
  return error instanceof ServiceError ? error.message : 'internal error'
}
