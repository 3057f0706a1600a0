/**
 * Modules on disk by digest. A file in the folder is whole and was hashed while it was written; several runs that want
 * the same module wait for one download; what nobody uses leaves when the folder is full, least recently used first.
 */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError, isRetryable } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { countPassing } from '#core/passing-buffers.ts'
import { sleep } from '#core/time.ts'
import type { WantedModule } from './wanted.ts'

/** Streams the bytes of a module from an offset. Throws ServiceErrors; `unavailable` and `timeout` are tried again. */
export type ModuleSource = (wanted: WantedModule, offset: number, signal: AbortSignal) => AsyncIterable<Uint8Array>

/** Keeps the file where it is until it is released. */
export type HeldModule = { path: string; release: () => void }

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

type Entry = { bytes: number; users: number }

const DIGEST = /^sha256:([0-9a-f]{64})$/
const MAX_TRIES = 4
const RETRY_MS = 200
/** Changes that nobody asked for are not remembered for ever. */
const MAX_CHANGES = 1_000

export class ModuleCache {
  readonly #options: ModuleCacheOptions
  /** In order of use, the least recently used first. */
  readonly #entries = new Map<string, Entry>()
  readonly #downloads = new Map<string, Promise<void>>()
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
    await mkdir(options.folder, { recursive: true, mode: 0o755 })
    const found: { digest: string; bytes: number; usedMs: number }[] = []
    for (const name of await readdir(options.folder)) {
      const hex = /^([0-9a-f]{64})\.wasm$/.exec(name)?.[1]
      if (hex === undefined) continue
      const { size, mtimeMs } = await stat(join(options.folder, name))
      found.push({ digest: `sha256:${hex}`, bytes: size, usedMs: mtimeMs })
    }
    for (const { digest, bytes } of found.sort((a, b) => a.usedMs - b.usedMs)) cache.#add(digest, bytes)
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
  async get(wanted: WantedModule, signal: AbortSignal): Promise<HeldModule> {
    const hex = DIGEST.exec(wanted.digest)?.[1]
    if (hex === undefined) throw new ServiceError('malformed', `${wanted.digest} is not a sha256 digest`)
    if (!this.#entries.has(wanted.digest)) await this.#download(wanted, hex, signal)
    return this.#hold(wanted.digest, hex)
  }

  /** Downloads under way end; their parts stay. */
  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is stopping'))
    await Promise.allSettled(this.#downloads.values())
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

  async #download(wanted: WantedModule, hex: string, signal: AbortSignal): Promise<void> {
    let download = this.#downloads.get(wanted.digest)
    if (download === undefined) {
      download = this.#downloadWithRetries(wanted, hex).finally(() => this.#downloads.delete(wanted.digest))
      this.#downloads.set(wanted.digest, download)
    }
    await untilAborted(download, signal)
  }

  async #downloadWithRetries(wanted: WantedModule, hex: string): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#downloadOnce(wanted, hex)
        return
      } catch (error) {
        if (attempt >= MAX_TRIES || !isRetryable(error) || this.#abort.signal.aborted) throw error
        this.#options.logger.info({ digest: wanted.digest, attempt, err: error }, 'a module download is resumed')
        await sleep(RETRY_MS * 2 ** (attempt - 1), this.#abort.signal)
      }
    }
  }

  async #downloadOnce(wanted: WantedModule, hex: string): Promise<void> {
    const { folder, maxModuleBytes, source } = this.#options
    if (wanted.sizeBytes > maxModuleBytes) {
      throw new ServiceError(
        'malformed',
        `the module has ${wanted.sizeBytes} bytes, at most ${maxModuleBytes} are accepted`,
      )
    }
    const partPath = join(folder, `${hex}.part`)
    const { hash, offset } = await hashPart(partPath, wanted.sizeBytes)
    const file = await open(partPath, offset === 0 ? 'w' : 'a', 0o644)
    let received = offset
    try {
      for await (const chunk of source(wanted, offset, this.#abort.signal)) {
        received += chunk.length
        if (received > wanted.sizeBytes) break
        hash.update(chunk)
        await file.appendFile(chunk)
        countPassing(chunk.length)
      }
      await file.sync()
    } finally {
      await file.close()
    }
    if (received < wanted.sizeBytes) {
      throw new ServiceError('unavailable', `the download ended after ${received} of ${wanted.sizeBytes} bytes`)
    }
    if (received > wanted.sizeBytes || hash.digest('hex') !== hex) {
      await rm(partPath)
      throw new ServiceError('malformed', `the bytes of the module are not those of its digest ${wanted.digest}`)
    }
    await rename(partPath, join(folder, `${hex}.wasm`))
    this.#add(wanted.digest, wanted.sizeBytes)
    await this.#makeRoom(wanted.digest)
  }

  #add(digest: string, bytes: number): void {
    this.#entries.set(digest, { bytes, users: 0 })
    this.#bytes += bytes
    this.#removed.delete(digest)
    if (this.#added.size < MAX_CHANGES) this.#added.add(digest)
  }

  async #makeRoom(newest: string): Promise<void> {
    for (const [digest, entry] of this.#entries) {
      if (this.#bytes <= this.#options.maxBytes) return
      if (entry.users > 0 || digest === newest) continue
      this.#entries.delete(digest)
      this.#bytes -= entry.bytes
      this.#added.delete(digest)
      if (this.#removed.size < MAX_CHANGES) this.#removed.add(digest)
      await rm(join(this.#options.folder, `${digest.slice('sha256:'.length)}.wasm`), { force: true })
      await this.#options.onRemoved?.(digest)
    }
  }
}

/** What an interrupted download left, already hashed. A part that is too long begins anew. */
async function hashPart(path: string, sizeBytes: number): Promise<{ hash: Hash; offset: number }> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  )
  const hash = createHash('sha256')
  if (size === 0 || size > sizeBytes) return { hash, offset: 0 }
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  return { hash, offset: size }
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
