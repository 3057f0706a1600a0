/**
 * Modules on disk by digest. A file in the folder was hashed while it was written; several runs that want the same module
 * wait for one download; what nobody uses leaves when the folder is full, least recently used first. No file is forced to
 * disk: what an earlier process left is hashed once more before its first use, and is fetched anew when a power cut damaged it.
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

/** Streams the bytes of a module from an offset. Throws ServiceErrors; `unavailable` and `timeout` are tried again. */
export type ModuleSource = (wanted: ModuleRequest, offset: number, signal: AbortSignal) => AsyncIterable<Uint8Array>

/** Keeps the file where it is until it is released. */
export type HeldModule = { path: string; release: () => void }

/** A module that others may read, as far as it is here. */
export type SharedModule = {
  handle: FileHandle
  sizeBytes: number
  /** Grows while the module is being downloaded. Throws `unavailable` when the download failed. */
  readableBytes: () => number
  close: () => Promise<void>
}

export type ModuleCacheOptions = {
  folder: string
  /** What all files together may take; modules in use stay even beyond it. */
  maxBytes: number
  maxModuleBytes: number
  source: ModuleSource
  logger: Logger
  /** Told when a module left, so that what was made of it leaves too. */
  onRemoved?: (digest: string) => Promise<void>
}

type Entry = { bytes: number; users: number; isVerified: boolean }

/** One try of a download. Nobody follows it before its source has answered. */
type Download = { sizeBytes: number; receivedBytes: number; state: 'asking' | 'flowing' | 'whole' | 'failed' }

const DIGEST = /^sha256:([0-9a-f]{64})$/
const MAX_TRIES = 4
const RETRY_MS = 200
/**
 * At a time. Linux takes the memory of a larger write in larger blocks, and those are what a host takes back from a virtual
 * machine: each has to be given to it again then, which costs five times as much as writing.
 */
const WRITE_BYTES = 128 * 1024
/** Changes that nobody asked for are not remembered for ever. */
const MAX_CHANGES = 1_000

export class ModuleCache {
  readonly #options: ModuleCacheOptions
  /** In order of use, the least recently used first. */
  readonly #entries = new Map<string, Entry>()
  readonly #coming = new Map<string, Promise<void>>()
  readonly #downloads = new Map<string, Download>()
  #news = Promise.withResolvers<void>()
  readonly #abort = new AbortController()
  #bytes = 0
  #added = new Set<string>()
  #removed = new Set<string>()

  private constructor(options: ModuleCacheOptions) {
    this.#options = options
  }

  /** Reads what earlier processes left; parts of modules stay to be resumed. */
  static async open(options: ModuleCacheOptions): Promise<ModuleCache> {
    const cache = new ModuleCache(options)
    await mkdir(options.folder, { recursive: true, mode: 0o700 })
    // Users of isolated processes enter the folder around it, for their code; modules of tenants are none of their business.
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

  digests(): string[] {
    return [...this.#entries.keys()]
  }

  /** What came and left since the last call. */
  takeChanges(): { added: string[]; removed: string[] } {
    const changes = { added: [...this.#added], removed: [...this.#removed] }
    this.#added = new Set()
    this.#removed = new Set()
    return changes
  }

  /**
   * The file of a module, downloaded when it is not here. Rejects with `malformed` when the bytes are not those of the
   * digest, else with the kind of the last failure. An aborted signal ends this wait, and the download when no one else
   * waits for it.
   */
  async get(wanted: ModuleRequest, signal: AbortSignal): Promise<HeldModule> {
    const hex = DIGEST.exec(wanted.digest)?.[1]
    if (hex === undefined) throw new ServiceError('malformed', `${wanted.digest} is not a sha256 digest`)
    if (this.#entries.get(wanted.digest)?.isVerified !== true) await this.#bring(wanted, hex, signal)
    return this.#hold(wanted.digest, hex)
  }

  /** Downloads under way end; their parts stay. */
  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is stopping'))
    await Promise.allSettled(this.#coming.values())
  }

  /** Resolves when a module came, or more of one. */
  get news(): Promise<void> {
    return this.#news.promise
  }

  /** For another worker, which checks the bytes itself; undefined: not here, nor on its way from somebody who answered. */
  async share(digest: string): Promise<SharedModule | undefined> {
    const hex = DIGEST.exec(digest)?.[1] ?? ''
    const entry = this.#entries.get(digest)
    const download = this.#downloads.get(digest)
    if (entry === undefined && download?.state !== 'flowing') return undefined
    const path = join(this.#options.folder, entry === undefined ? `${hex}.part` : `${hex}.wasm`)
    // It may have been renamed or have left since.
    const handle = await open(path, 'r').catch(() => undefined)
    if (handle === undefined) return undefined
    return {
      handle,
      sizeBytes: entry?.bytes ?? download?.sizeBytes ?? 0,
      readableBytes: () => {
        if (entry !== undefined) return entry.bytes
        if (download === undefined || download.state === 'failed') {
          throw new ServiceError('unavailable', `the download of module ${digest} broke`)
        }
        return download.receivedBytes
      },
      close: () => handle.close(),
    }
  }

  #tellNews(): void {
    const told = this.#news
    this.#news = Promise.withResolvers<void>()
    told.resolve()
  }

  #hold(digest: string, hex: string): HeldModule {
    const entry = this.#entries.get(digest)
    if (entry === undefined)
      throw new ServiceError('unavailable', `module ${digest} left the cache while it was awaited`)
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

  async #bring(wanted: ModuleRequest, hex: string, signal: AbortSignal): Promise<void> {
    let coming = this.#coming.get(wanted.digest)
    if (coming === undefined) {
      coming = this.#bringOnce(wanted, hex).finally(() => this.#coming.delete(wanted.digest))
      this.#coming.set(wanted.digest, coming)
    }
    await untilAborted(coming, signal)
  }

  async #bringOnce(wanted: ModuleRequest, hex: string): Promise<void> {
    const entry = this.#entries.get(wanted.digest)
    if (entry !== undefined) {
      entry.users++
      const isWhole = await isFileOf(join(this.#options.folder, `${hex}.wasm`), hex)
      entry.users--
      entry.isVerified = isWhole
      if (isWhole) return
      this.#options.logger.warn({ digest: wanted.digest }, 'a module was damaged on disk; fetching it again')
      await this.#remove(wanted.digest, entry)
    }
    await this.#downloadWithRetries(wanted, hex)
  }

  async #downloadWithRetries(wanted: ModuleRequest, hex: string): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        // Whoever of the site was asked at first, the source has the last word.
        await this.#downloadOnce(attempt === 1 ? wanted : { ...wanted, peers: [] }, hex)
        return
      } catch (thrown) {
        const error = isDiskFull(thrown) ? await this.#onDiskFull(wanted, hex, thrown) : thrown
        if (attempt >= MAX_TRIES || !isRetryable(error) || this.#abort.signal.aborted) throw error
        this.#options.logger.info({ digest: wanted.digest, attempt, err: error }, 'a module download is resumed')
        await sleep(RETRY_MS * 2 ** (attempt - 1), this.#abort.signal)
      }
    }
  }

  /** Lets modules go that nobody uses; where there are none, what came of this one does not keep the room from others. */
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
    const download: Download = { sizeBytes, receivedBytes: offset, state: 'asking' }
    this.#downloads.set(digest, download)
    try {
      const received = await this.#receive(wanted, partPath, hash, download)
      if (received < sizeBytes) {
        throw new ServiceError('unavailable', `the download ended after ${received} of ${sizeBytes} bytes`)
      }
      if (received > sizeBytes || hash.digest('hex') !== hex) {
        await rm(partPath)
        // What was left by an earlier try, or given by a worker of the site, may be what is wrong: once more, from the start.
        const kind = offset > 0 || wanted.peers.length > 0 ? 'unavailable' : 'malformed'
        throw new ServiceError(kind, `the bytes of the module are not those of its digest ${digest}`)
      }
      const path = join(folder, `${hex}.wasm`)
      await rename(partPath, path)
      download.state = 'whole'
    } finally {
      if (download.state !== 'whole') download.state = 'failed'
      this.#downloads.delete(digest)
      this.#tellNews()
    }
    this.#add(digest, sizeBytes, true)
    await this.#shrinkTo(this.#options.maxBytes, digest)
  }

  /** How many bytes there are then, what was there before included; at most one chunk more than the module has. */
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
          // Both at once, where another thread writes.
          const written = writer.write(part)
          hash.update(part)
          if (written !== undefined) await written
        }
        countPassing(chunk.length, 1)
        download.state = 'flowing'
        download.receivedBytes = received
        this.#tellNews()
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

  /** As far as what is in use allows. */
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

/** Rejects with the signal's reason when it is aborted first; the work goes on for whoever else waits for it. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error)
    if (signal.aborted) return onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}
