/**
 * From a reference to the bytes of a module: asks the registry when it must, the cache when it can, and each of them once
 * however many ask (task manager section 6, rules 6 and 8).
 */
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError, isRetryable, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import { ModuleRefusal } from '#core/wasm/index.ts'
import { openBlobCache, openRecords, openTagCache } from './cache/index.ts'
import type { Blob, BlobCache, OpenBlob, Records, TagCache } from './cache/index.ts'
import {
  chooseEntry,
  chooseLayer,
  createSingleFlight,
  formatReference,
  isDigest,
  moduleInvalid,
  parseManifest,
  parseReference,
  pinnedReference,
  unpackModule,
} from './oci/index.ts'
import type { FetchedManifest, ModuleLayer, Reference, RegistryClient } from './oci/index.ts'
import { readModuleFacts } from './module-facts.ts'
import type { ModuleFacts } from './module-facts.ts'
import type { Signatures } from './signatures.ts'

/** On whose behalf a reference is resolved, and what is asked of its signatures. */
export type Asker = {
  /** Empty: the platform. */
  domainId: string
  policy: 'off' | 'warn' | 'require'
  /** PEM. */
  keys: readonly string[]
}

export type Resolved = Blob & {
  /** With registry, repository and manifest digest: names the same bytes for ever. */
  reference: string
  /** True: the registry was down and an earlier answer was used. */
  stale: boolean
  /** A key of the policy signed it. */
  signed: boolean
  /** Under the policy `warn`: why it does not count as signed; otherwise empty. */
  signatureProblem: string
}

export type ModuleSource = {
  /**
   * What a reference stands for now. Throws `malformed` (not a reference, or what it names is no module), `not_found`,
   * `unauthenticated`, `forbidden` (an address that references may not reach), `unprocessable` (not signed as the policy
   * requires), `rate_limited`, `unavailable`, `timeout`.
   */
  resolve(reference: string, asker: Asker): Promise<Resolved>
  /**
   * Opens a module, pulling it by `pinned` (as `resolve` gave it) when it is not in the cache. The caller closes the
   * handle. Throws what `resolve` throws, and `not_found` when it is not here and `pinned` is empty.
   */
  open(digest: string, pinned: string): Promise<OpenBlob>
  /** Puts bytes into the cache. Throws `malformed` when they are not those of the digest that is given. */
  keep(bytes: AsyncIterable<Buffer>, digest: string | undefined): Promise<Blob>
  /** What is known about modules that are in the cache; others are left out. */
  describe(digests: readonly string[], withFacts: boolean): Promise<DescribedBlob[]>
  /** Drops a module from the cache: somebody asked for it, or its bytes are no longer those of its name. */
  discard(digest: string): Promise<void>
  /** Ends every pull under way. */
  close(): void
}

export type SourceLimits = {
  maxModuleBytes: number
  maxCacheBytes: number
  tagFreshMs: number
  tagHoldMs: number
  /** The whole of one answer to `resolve` or one pull, waiting and repetitions included. */
  pullDeadlineMs: number
}

export type ModuleSourceDeps = {
  client: RegistryClient
  signatures: Signatures
  folder: string
  /** Registry of references that name none. */
  defaultRegistry: string | undefined
  limits: SourceLimits
  logger: Logger
}

export type DescribedBlob = Blob & { usedMs: number; facts: ModuleFacts | undefined }

/** A manifest never changes, so neither does what it says. */
type KnownModule = Blob & { layer: ModuleLayer }

const MAX_KNOWN_MODULES = 10_000
/** Pulls at a time, and from one registry: it may be slow. */
const MAX_PULLS = 8
const MAX_PULLS_PER_REGISTRY = 6
const MAX_WAITING_PULLS = 256
/** An index may name an index (OCI image specification, "Image Index"); nobody nests deeper. */
const MAX_INDEX_DEPTH = 2

export async function openModuleSource({
  client,
  signatures,
  folder,
  defaultRegistry,
  limits,
  logger,
}: ModuleSourceDeps): Promise<ModuleSource> {
  const blobs: BlobCache = await openBlobCache({ folder: join(folder, 'blobs'), maxBytes: limits.maxCacheBytes })
  const tags: TagCache = await openTagCache({
    folder: join(folder, 'tags'),
    freshMs: limits.tagFreshMs,
    holdMs: limits.tagHoldMs,
  })
  const modules: Records<KnownModule> = await openRecords({
    folder: join(folder, 'modules'),
    maxRecords: MAX_KNOWN_MODULES,
    parse: parseKnownModule,
  })
  const facts: Records<ModuleFacts> = await openRecords({
    folder: join(folder, 'facts'),
    maxRecords: MAX_KNOWN_MODULES,
    parse: (value) => value as ModuleFacts,
  })
  const tagFlights = createSingleFlight<Located>()
  const moduleFlights = createSingleFlight<KnownModule>()
  const pullFlights = createSingleFlight<Blob>()
  const slots = new Slots({
    what: 'modules being pulled',
    max: MAX_PULLS,
    share: MAX_PULLS_PER_REGISTRY,
    per: 'registry',
    waitMs: limits.pullDeadlineMs,
    maxWaiting: MAX_WAITING_PULLS,
    shareKind: 'unavailable',
  })
  const closing = new AbortController()

  /** Work is shared, so it ends by its own deadline or with the proxy, never because one of the askers went away. */
  function pullSignal(what: string): AbortSignal {
    const late = new AbortController()
    const timer = setTimeout(
      () => late.abort(new ServiceError('timeout', `${what} was not there within ${limits.pullDeadlineMs} ms`)),
      limits.pullDeadlineMs,
    )
    timer.unref()
    return AbortSignal.any([closing.signal, late.signal])
  }

  type Located = { manifestDigest: string; stale: boolean; manifest?: FetchedManifest }

  async function locate(reference: Reference): Promise<Located> {
    if (reference.digest !== undefined) return { manifestDigest: reference.digest, stale: false }
    const name = formatReference(reference)
    const fresh = tags.fresh(name)
    if (fresh !== undefined) return fresh
    return await tagFlights.run(name, async () => {
      try {
        const manifest = await client.getManifest(reference, pullSignal(name))
        return { ...(await tags.learn(name, manifest.digest)), manifest }
      } catch (error) {
        const earlier = isRetryable(error) && !closing.signal.aborted ? await tags.fallBack(name) : undefined
        if (earlier === undefined) throw error
        logger.warn({ reference: name, err: error }, 'registry is down; the last known answer for this tag is used')
        return earlier
      }
    })
  }

  async function describe(
    reference: Reference,
    manifestDigest: string,
    manifest?: FetchedManifest,
  ): Promise<KnownModule> {
    const key = pinnedReference(reference, manifestDigest)
    return await moduleFlights.run(key, async () => {
      const known = await modules.get(key)
      if (known !== undefined) return known
      const signal = pullSignal(key)
      const layer = await findLayer(
        reference,
        manifest ?? (await getByDigest(reference, manifestDigest, signal)),
        signal,
      )
      const found = await moduleOf(reference, layer)
      await modules.set(key, found)
      return found
    })
  }

  async function judgeSignature(
    reference: Reference,
    manifestDigest: string,
    { policy, keys }: Asker,
  ): Promise<{ signed: boolean; problem: string }> {
    if (policy === 'off') return { signed: false, problem: '' }
    const name = pinnedReference(reference, manifestDigest)
    try {
      if (await signatures.isSigned(reference, manifestDigest, keys, pullSignal(`signature of ${name}`))) {
        return { signed: true, problem: '' }
      }
    } catch (error) {
      if (policy === 'require') throw error
      return { signed: false, problem: `the signature of ${name} could not be looked up: ${messageOf(error)}` }
    }
    const problem = `${name} is not signed by a key of the policy`
    if (policy === 'require') throw new ServiceError('unprocessable', problem)
    return { signed: false, problem }
  }

  async function factsOf(digest: string, handle: FileHandle, sizeBytes: number): Promise<ModuleFacts | undefined> {
    const known = await facts.get(digest)
    if (known !== undefined) return known
    try {
      const found = await readModuleFacts(handle, sizeBytes, digest)
      await facts.set(digest, found)
      return found
    } catch (error) {
      // Later, perhaps.
      if (error instanceof ModuleRefusal || kindOf(error) === 'rate_limited') return undefined
      throw error
    }
  }

  function getByDigest(reference: Reference, digest: string, signal: AbortSignal): Promise<FetchedManifest> {
    return client.getManifest({ ...reference, digest }, signal)
  }

  async function findLayer(reference: Reference, fetched: FetchedManifest, signal: AbortSignal): Promise<ModuleLayer> {
    let manifest = parseManifest(fetched.bytes, fetched.contentType)
    for (let depth = 0; manifest.kind === 'index'; depth++) {
      if (depth === MAX_INDEX_DEPTH)
        throw moduleInvalid(`index of ${formatReference(reference)} is nested deeper than ${MAX_INDEX_DEPTH}`)
      const entry = chooseEntry(manifest.entries)
      const child = await getByDigest(reference, entry.digest, signal)
      manifest = parseManifest(child.bytes, child.contentType)
    }
    const layer = chooseLayer(manifest)
    // An archive has padding and headers around the module, compressed or not.
    if (layer.descriptor.sizeBytes > limits.maxModuleBytes) {
      throw moduleInvalid(`layer has ${layer.descriptor.sizeBytes} bytes; accepted are up to ${limits.maxModuleBytes}`)
    }
    return layer
  }

  /** A Wasm layer says digest and size of its module; of any other the bytes must be seen first. */
  async function moduleOf(reference: Reference, layer: ModuleLayer): Promise<KnownModule> {
    const { digest, sizeBytes } = layer.form === 'wasm' ? layer.descriptor : await pull(reference, layer)
    return { digest, sizeBytes, layer }
  }

  async function pull(reference: Reference, layer: ModuleLayer, expected?: string): Promise<Blob> {
    const { descriptor, form } = layer
    const key = `${reference.registry}/${reference.repository}@${descriptor.digest}`
    return await pullFlights.run(key, async () => {
      const signal = pullSignal(key)
      return await slots.run(
        reference.registry,
        async () => {
          const beganMs = monotonicMs()
          const bytes = client.readBlob(reference, descriptor, signal)
          const isArchive = form === 'tar' || form === 'tar+gzip'
          const blob = isArchive
            ? await storeFromArchive(layer, bytes, expected)
            : await blobs.store(unpackModule(form, descriptor.mediaType, bytes, limits), descriptor.digest)
          logger.info(
            { module: key, digest: blob.digest, bytes: blob.sizeBytes, ms: Math.round(monotonicMs() - beganMs) },
            'module pulled',
          )
          return blob
        },
        signal,
      )
    })
  }

  /** The archive is verified whole before a parser sees its first byte. */
  async function storeFromArchive(
    { form, descriptor }: ModuleLayer,
    bytes: AsyncIterable<Buffer>,
    expected?: string,
  ): Promise<Blob> {
    const archive = await blobs.scratch(bytes)
    try {
      return await blobs.store(unpackModule(form, descriptor.mediaType, archive.read(), limits), expected)
    } finally {
      await archive.remove()
    }
  }

  return {
    async resolve(text, asker) {
      const reference = parseReference(text, defaultRegistry)
      requireOwn(reference, defaultRegistry, asker.domainId)
      const { manifestDigest, stale, manifest } = await locate(reference)
      const { digest, sizeBytes } = await describe(reference, manifestDigest, manifest)
      const { signed, problem } = await judgeSignature(reference, manifestDigest, asker)
      const pinned = pinnedReference(reference, manifestDigest)
      return { digest, sizeBytes, reference: pinned, stale, signed, signatureProblem: problem }
    },

    async open(digest, pinned) {
      if (!isDigest(digest)) throw new ServiceError('malformed', 'digest must be sha256:<64 hexadecimal digits>')
      const cached = await blobs.open(digest)
      if (cached !== undefined) return cached
      if (pinned === '')
        throw new ServiceError('not_found', `module ${digest} is not in the cache, and no reference says where it is`)
      const reference = parseReference(pinned, defaultRegistry)
      // By tag a retry could run other bytes than the run began with.
      if (reference.digest === undefined)
        throw new ServiceError('malformed', `reference "${pinned}" must have a digest to be fetched by`)
      const module = await describe(reference, reference.digest)
      if (module.digest !== digest) throw moduleInvalid(`${pinned} holds module ${module.digest}, not ${digest}`)
      const pulled =
        (await blobs.open(digest)) ?? (await pull(reference, module.layer, digest).then(() => blobs.open(digest)))
      if (pulled === undefined)
        throw new ServiceError('unavailable', 'the module cache is too small for what is asked of it at once')
      return pulled
    },

    keep: (bytes, digest) => blobs.store(bytes, digest),

    async describe(digests, withFacts) {
      const described: DescribedBlob[] = []
      for (const digest of digests) {
        const blob = await blobs.peek(digest)
        if (blob === undefined) continue
        await using handle = blob.handle
        const { sizeBytes, usedMs } = blob
        described.push({
          digest,
          sizeBytes,
          usedMs,
          facts: withFacts ? await factsOf(digest, handle, sizeBytes) : undefined,
        })
      }
      return described
    },

    discard: (digest) => blobs.remove(digest),
    close: () => closing.abort(new ServiceError('unavailable', 'the proxy is stopping')),
  }
}

/**
 * Domains push into repositories of the configured registry that begin with their id, with the credentials of the
 * operator; those credentials show nobody the repositories of another domain. Throws `not_found`.
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
    ['wasm', 'tar', 'tar+gzip', 'any'].includes(module.layer?.form ?? '')
  return isWhole ? (module as KnownModule) : undefined
}
