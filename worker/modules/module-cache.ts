/**
 * Modules on disk by digest. A file is hashed while it is written; concurrent runs that need the same module share one
 * download; unused modules are evicted when the folder is full, least recently used first. Files are not synced: files of
 * an earlier process are hashed again before their first use, and fetched again if a power loss damaged them.
 */
import type { Hash } from 'node:crypto'
import { chmod, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { digestOfHex, hexOf } from '#core/digest.ts'
import { isDiskFull } from '#core/disk-full.ts'
import { ServiceError, isRetryable } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { countPassing } from '#core/passing-buffers.ts'
import { sleep } from '#core/time.ts'
import { FileWriter, hashPart, isFileOf } from './module-files.ts'
import type { ModuleRequest } from './module-request.ts'

/** Streams the bytes of a module from an offset. Throws ServiceErrors; `unavailable` and `timeout` are retried. */
export type ModuleSource = (wanted: ModuleRequest, offset: number, signal: AbortSignal) => AsyncIterable<Uint8Array>

/** Keeps the file until it is released. */
export type PinnedModule = { path: string; release: () => void }

/** A module for other workers, possibly still incomplete. */
export type SharedModule = {
  handle: FileHandle
  sizeBytes: number
  /** Grows during the download. Throws `unavailable` if the download failed. */
  readableBytes: () => number
  close: () => Promise<void>
}

export type ModuleCacheOptions = {
  folder: string
  /** Size limit of all files; modules in use stay even beyond it. */
  maxBytes: number
  maxModuleBytes: number
  source: ModuleSource
  logger: Logger
  /** Called when a module was removed, to remove derived files too. */
  onRemoved?: (digest: string) => Promise<void>
}

type Entry = { bytes: number; users: number; isVerified: boolean }

/** One attempt of a download. It is shared only after its source has answered. */
type Download = { sizeBytes: number; receivedBytes: number; state: 'connecting' | 'receiving' | 'complete' | 'failed' }

const DIGEST = /^sha256:([0-9a-f]{64})$/
/** Attempts without progress. */
const MAX_TRIES = 4
const RETRY_MS = 200
/**
 * Bytes per write. Linux allocates memory for a larger write in larger blocks, which the host of a virtual machine
 * reclaims: getting them back costs five times as much as writing.
 */
const WRITE_BYTES = 128 * 1024
/** Limit of recorded changes that are not reported. */
const MAX_CHANGES = 1_000

export class ModuleCache {
  readonly #options: ModuleCacheOptions
  /** The entries in order of use, least recently used first. */
  readonly #entries = new Map<string, Entry>()
  readonly #pending = new Map<string, Promise<void>>()
  readonly #downloads = new Map<string, Download>()
  #progress = Promise.withResolvers<void>()
  readonly #abort = new AbortController()
  #bytes = 0
  #added = new Set<string>()
  #removed = new Set<string>()
  #hits = 0
  #fetches = 0
  #fetchFailures = 0

  private constructor(options: ModuleCacheOptions) {
    this.#options = options
  }

  /** Reads files of earlier processes; partial downloads stay to be resumed. */
  static async open(options: ModuleCacheOptions): Promise<ModuleCache> {
    const cache = new ModuleCache(options)
    await mkdir(options.folder, { recursive: true, mode: 0o700 })
    // Users of isolated processes can enter the parent folder, for their code, but not read modules of tenants.
    await chmod(options.folder, 0o700)
    const found: { digest: string; bytes: number; usedMs: number }[] = []
    for (const name of await readdir(options.folder)) {
      const hex = /^([0-9a-f]{64})\.wasm$/.exec(name)?.[1]
      if (hex === undefined) continue
      const { size, mtimeMs } = await stat(join(options.folder, name))
      found.push({ digest: digestOfHex(hex), bytes: size, usedMs: mtimeMs })
    }
    for (const { digest, bytes } of found.sort((a, b) => a.usedMs - b.usedMs)) cache.#add(digest, bytes, false)
    cache.#added.clear()
    return cache
  }

  /** Size of the modules, and since the start of the process: uses without a fetch, fetches, and those that failed. */
  get counts(): { bytes: number; hits: number; fetches: number; fetchFailures: number } {
    return { bytes: this.#bytes, hits: this.#hits, fetches: this.#fetches, fetchFailures: this.#fetchFailures }
  }

  digests(): string[] {
    return [...this.#entries.keys()]
  }

  /** Modules that were added and removed since the last call. */
  takeChanges(): { added: string[]; removed: string[] } {
    const changes = { added: [...this.#added], removed: [...this.#removed] }
    this.#added = new Set()
    this.#removed = new Set()
    return changes
  }

  /**
   * The file of a module, downloaded if it is not cached. Rejects with `malformed` on a digest mismatch, else with the
   * kind of the last failure. An aborted signal ends this wait, and the download if no other caller waits for it.
   */
  async get(wanted: ModuleRequest, signal: AbortSignal): Promise<PinnedModule> {
    const hex = DIGEST.exec(wanted.digest)?.[1]
    if (hex === undefined) throw new ServiceError('malformed', `${wanted.digest} is not a sha256 digest`)
    if (this.#entries.get(wanted.digest)?.isVerified === true) this.#hits++
    else await this.#fetch(wanted, hex, signal)
    return this.#pin(wanted.digest, hex)
  }

  /** Active downloads end; their partial files stay. */
  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is shutting down'))
    await Promise.allSettled(this.#pending.values())
  }

  /** Resolves when a module, or more of one, has arrived. */
  get news(): Promise<void> {
    return this.#progress.promise
  }

  /**
   * Returns the module for another worker, which verifies the bytes itself; undefined: it is neither cached nor being downloaded from a
   * source that answered.
   */
  async share(digest: string): Promise<SharedModule | undefined> {
    const hex = DIGEST.exec(digest)?.[1] ?? ''
    const entry = this.#entries.get(digest)
    const download = this.#downloads.get(digest)
    if (entry === undefined && download?.state !== 'receiving') return undefined
    const path = join(this.#options.folder, entry === undefined ? `${hex}.part` : `${hex}.wasm`)
    // It may have been renamed or removed since.
    const handle = await open(path, 'r').catch(() => undefined)
    if (handle === undefined) return undefined
    return {
      handle,
      sizeBytes: entry?.bytes ?? download?.sizeBytes ?? 0,
      readableBytes: () => {
        if (entry !== undefined) return entry.bytes
        if (download === undefined || download.state === 'failed') {
          throw new ServiceError('unavailable', `the download of module ${digest} failed`)
        }
        return download.receivedBytes
      },
      close: () => handle.close(),
    }
  }

  #notifyProgress(): void {
    const progress = this.#progress
    this.#progress = Promise.withResolvers<void>()
    progress.resolve()
  }

  #pin(digest: string, hex: string): PinnedModule {
    const entry = this.#entries.get(digest)
    if (entry === undefined)
      throw new ServiceError('unavailable', `module ${digest} was evicted before it could be used`)
    this.#entries.delete(digest)
    this.#entries.set(digest, entry)
    entry.users++
    let isReleased = false
    return {
      path: join(this.#options.folder, `${hex}.wasm`),
      release: () => {
        if (!isReleased) entry.users--
        isReleased = true
      },
    }
  }

  async #fetch(wanted: ModuleRequest, hex: string, signal: AbortSignal): Promise<void> {
    let download = this.#pending.get(wanted.digest)
    if (download === undefined) {
      download = this.#fetchOnce(wanted, hex).finally(() => this.#pending.delete(wanted.digest))
      this.#pending.set(wanted.digest, download)
    }
    await untilAborted(download, signal)
  }

  async #fetchOnce(wanted: ModuleRequest, hex: string): Promise<void> {
    const entry = this.#entries.get(wanted.digest)
    if (entry !== undefined) {
      entry.users++
      const isWhole = await isFileOf(join(this.#options.folder, `${hex}.wasm`), hex)
      entry.users--
      entry.isVerified = isWhole
      if (isWhole) return
      this.#options.logger.warn({ digest: wanted.digest }, 'a cached module is corrupted; fetching it again')
      await this.#remove(wanted.digest, entry)
    }
    this.#fetches++
    try {
      await this.#downloadWithRetries(wanted, hex)
    } catch (error) {
      this.#fetchFailures++
      throw error
    }
  }

  /** An attempt counts only if it brought no byte further than all before it: a network with many cuts delivers in the end. */
  async #downloadWithRetries(wanted: ModuleRequest, hex: string): Promise<void> {
    // Only the first attempt uses peers; later ones use the source.
    let request = wanted
    let furthest = await sizeOf(join(this.#options.folder, `${hex}.part`))
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#downloadOnce(request, hex)
        return
      } catch (thrown) {
        const error = isDiskFull(thrown) ? await this.#onDiskFull(wanted, hex, thrown) : thrown
        const received = await sizeOf(join(this.#options.folder, `${hex}.part`))
        if (received > furthest) attempt = 0
        furthest = Math.max(furthest, received)
        request = { ...wanted, peers: [] }
        if (attempt >= MAX_TRIES || !isRetryable(error) || this.#abort.signal.aborted) throw error
        this.#options.logger.info(
          { digest: wanted.digest, attempt, received, err: error },
          'a module download failed; resuming it',
        )
        await sleep(RETRY_MS * 2 ** Math.max(attempt - 1, 0), this.#abort.signal)
      }
    }
  }

  /** Evicts unused modules; if there are none, removes the partial file, which takes space from others. */
  async #onDiskFull({ digest, sizeBytes }: ModuleRequest, hex: string, cause: unknown): Promise<ServiceError> {
    const before = this.#bytes
    await this.#shrinkTo(Math.max(before - sizeBytes, 0), digest)
    if (this.#bytes === before) await rm(join(this.#options.folder, `${hex}.part`), { force: true })
    return new ServiceError('unavailable', 'the disk of the worker is full', { cause })
  }

  async #downloadOnce(wanted: ModuleRequest, hex: string): Promise<void> {
    const { digest, sizeBytes } = wanted
    const { folder, maxModuleBytes } = this.#options
    if (sizeBytes > maxModuleBytes) {
      throw new ServiceError('malformed', `the module has ${sizeBytes} bytes, at most ${maxModuleBytes} are accepted`)
    }
    const partPath = join(folder, `${hex}.part`)
    const { hash, offset } = await hashPart(partPath, sizeBytes)
    const download: Download = { sizeBytes, receivedBytes: offset, state: 'connecting' }
    this.#downloads.set(digest, download)
    try {
      const received = await this.#receive(wanted, partPath, hash, download)
      if (received < sizeBytes) {
        throw new ServiceError('unavailable', `the download ended after ${received} of ${sizeBytes} bytes`)
      }
      if (received > sizeBytes || hash.digest('hex') !== hex) {
        await rm(partPath)
        // Bytes of an earlier attempt or of a peer can be wrong: retries once from the start.
        const kind = offset > 0 || wanted.peers.length > 0 ? 'unavailable' : 'malformed'
        throw new ServiceError(kind, `the bytes of the module do not match its digest ${digest}`)
      }
      const path = join(folder, `${hex}.wasm`)
      await rename(partPath, path)
      download.state = 'complete'
    } finally {
      if (download.state !== 'complete') download.state = 'failed'
      this.#downloads.delete(digest)
      this.#notifyProgress()
    }
    this.#add(digest, sizeBytes, true)
    await this.#shrinkTo(this.#options.maxBytes, digest)
  }

  /** The number of bytes afterwards, including earlier ones; at most one chunk beyond the size of the module. */
  async #receive(wanted: ModuleRequest, partPath: string, hash: Hash, download: Download): Promise<number> {
    const offset = download.receivedBytes
    const file = await open(partPath, offset === 0 ? 'w' : 'a', 0o600)
    const writer = new FileWriter(file)
    let received = offset
    try {
      const rest = offset < wanted.sizeBytes ? this.#options.source(wanted, offset, this.#abort.signal) : []
      for await (const chunk of rest) {
        received += chunk.length
        if (received > wanted.sizeBytes) break
        for (let begin = 0; begin < chunk.length; begin += WRITE_BYTES) {
          const part = chunk.subarray(begin, begin + WRITE_BYTES)
          // Writes while another thread hashes.
          const written = writer.write(part)
          hash.update(part)
          if (written !== undefined) await written
        }
        countPassing(chunk.length, 1)
        download.state = 'receiving'
        download.receivedBytes = received
        this.#notifyProgress()
      }
    } finally {
      await file.close()
    }
    return received
  }

  #add(digest: string, bytes: number, isVerified: boolean): void {
    this.#entries.set(digest, { bytes, users: 0, isVerified })
    this.#bytes += bytes
    this.#removed.delete(digest)
    if (this.#added.size < MAX_CHANGES) this.#added.add(digest)
  }

  /** Evicts until the limit is met or only modules in use are left. */
  async #shrinkTo(maxBytes: number, kept: string): Promise<void> {
    for (const [digest, entry] of this.#entries) {
      if (this.#bytes <= maxBytes) return
      if (entry.users > 0 || digest === kept) continue
      await this.#remove(digest, entry)
    }
  }

  async #remove(digest: string, entry: Entry): Promise<void> {
    this.#entries.delete(digest)
    this.#bytes -= entry.bytes
    this.#added.delete(digest)
    if (this.#removed.size < MAX_CHANGES) this.#removed.add(digest)
    await rm(join(this.#options.folder, `${hexOf(digest)}.wasm`), { force: true })
    await this.#options.onRemoved?.(digest)
  }
}

/** The size of a file in bytes; 0: there is none. */
const sizeOf = async (path: string) => (await stat(path).catch(() => undefined))?.size ?? 0

/** Rejects with the signal's reason if it is aborted first; the work continues for other callers. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error)
    if (signal.aborted) return onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
