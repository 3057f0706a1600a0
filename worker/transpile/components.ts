/**
 * Transpiled components on disk, next to the module cache: one folder per component and version of the transpiler.
 * Concurrent requests for the same component share one transpilation, and components of one domain do not delay those of
 * another.
 */
import { mkdir, open, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BoundedCache } from '#core/bounded-cache.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { readModuleKind } from '#guests/wasm/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { COMPONENT_MANIFEST } from './files.ts'
import { DomainQueue } from './domain-queue.ts'
import { SingleUseProcesses } from './single-use-processes.ts'
import { TRANSPILER_CODE, transpile } from './transpile.ts'
import type { TranspiledFile } from './frame.ts'

export type ComponentsOptions = {
  isolation: Isolation
  folder: string
  /** The folder from `stageTranspilerCode`; its name changes with every version of the code. */
  codeFolder: string
  /** The memory of the machine is scarce: one component at a time, and no process waits for the next. */
  isFrugal?: boolean
}

/** The domain of a run that needs a component, and its abort signal. */
export type TranspileRequest = { domainId?: string; signal?: AbortSignal }

/** Limit of cached kinds and errors. */
const MAX_CACHED_COMPONENTS = 1_000
/** Concurrent transpilations, each of another domain; one takes up to 1.5 GiB. */
const MAX_UNDER_WAY = 2
/** Queued components per domain; a further run is rejected to the manager. */
const MAX_WAITING_PER_DOMAIN = 16
/** A run whose component waits for longer is rejected too. */
const WAIT_DEADLINE_MS = 300_000
const MAGIC_BYTES = 8
/** A file is synced before the next one is written: a folder that a crash left incomplete must not look complete. */
const WHOLE = { mode: 0o644, flush: true }

export class Components {
  readonly #options: ComponentsOptions
  readonly #version: string
  /** Folder, or undefined for a core module. */
  readonly #known = new BoundedCache<string, { folder: string | undefined }>({ maxEntries: MAX_CACHED_COMPONENTS })
  readonly #refused = new BoundedCache<string, string>({ maxEntries: MAX_CACHED_COMPONENTS })
  readonly #queue: DomainQueue
  readonly #abort = new AbortController()
  readonly #processes: SingleUseProcesses

  constructor(options: ComponentsOptions) {
    this.#options = options
    const { isFrugal = false } = options
    this.#processes = new SingleUseProcesses({ ...options, entries: TRANSPILER_CODE.entries, hasSpares: !isFrugal })
    this.#queue = new DomainQueue({
      maxUnderWay: isFrugal ? 1 : MAX_UNDER_WAY,
      maxWaiting: MAX_WAITING_PER_DOMAIN,
      waitDeadlineMs: WAIT_DEADLINE_MS,
    })
    this.#version = options.codeFolder.split('/').at(-1) ?? ''
  }

  /** Removes folders of removed modules and of other versions of the transpiler. */
  static async open(options: ComponentsOptions, cachedDigests: readonly string[]): Promise<Components> {
    const components = new Components(options)
    await mkdir(options.folder, { recursive: true, mode: 0o755 })
    const wanted = new Set(cachedDigests.map((digest) => components.#nameOf(digest)))
    for (const name of await readdir(options.folder)) {
      if (!wanted.has(name)) await rm(join(options.folder, name), { recursive: true, force: true })
    }
    return components
  }

  /**
   * The folder with the transpiled component; undefined for a core module. `path` is the module's file, which must stay
   * until this settles. Rejects with `malformed` if the component cannot be transpiled, with `rate_limited` if too many
   * components of the domain wait, and with the reason of the signal.
   */
  async prepare(
    digest: string,
    path: string,
    { domainId = '', signal }: TranspileRequest = {},
  ): Promise<string | undefined> {
    const known = this.#known.get(digest)
    if (known !== undefined) return known.folder
    const refusal = this.#refused.get(digest)
    if (refusal !== undefined) throw new ServiceError('malformed', refusal)
    if ((await readKind(path)) === 'core') {
      this.#known.set(digest, { folder: undefined })
      return undefined
    }
    const folder = join(this.#options.folder, this.#nameOf(digest))
    // The result of an earlier process needs no turn in the queue.
    if (!(await isWhole(folder))) {
      const stopping = this.#abort.signal
      const requestSignal = signal === undefined ? stopping : AbortSignal.any([signal, stopping])
      await this.#queue.run(domainId, digest, (left) => this.#make(digest, path, folder, left), requestSignal)
    }
    this.#known.set(digest, { folder })
    return folder
  }

  /** 0: being transpiled; else its position in the queue. Undefined: neither. */
  positionOf(digest: string): number | undefined {
    return this.#queue.positionOf(digest)
  }

  /** The module was removed from the cache. */
  async remove(digest: string): Promise<void> {
    this.#known.delete(digest)
    await rm(join(this.#options.folder, this.#nameOf(digest)), { recursive: true, force: true })
  }

  /** Prepares for a component that comes soon. */
  warm(): void {
    this.#processes.warm()
  }

  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is shutting down'))
    await Promise.all([this.#queue.settled(), this.#processes.close()])
  }

  #nameOf(digest: string): string {
    return `${digest.replace(/^sha256:/, '')}-${this.#version}`
  }

  async #make(digest: string, path: string, folder: string, signal: AbortSignal): Promise<void> {
    // Another request has created it meanwhile, and may use it.
    if (await isWhole(folder)) return
    const draft = `${folder}.new`
    try {
      const keep = (files: readonly TranspiledFile[]) => writeDraft(draft, files)
      await transpile({ processes: this.#processes, path, keep }, signal)
      await rm(folder, { recursive: true, force: true })
      await rename(draft, folder)
    } catch (error) {
      await rm(draft, { recursive: true, force: true })
      if (kindOf(error) === 'malformed' && error instanceof Error) this.#refused.set(digest, error.message)
      throw error
    }
  }
}

async function writeDraft(draft: string, files: readonly TranspiledFile[]): Promise<void> {
  await rm(draft, { recursive: true, force: true })
  await mkdir(draft, { mode: 0o755 })
  for (const [name, bytes] of files) await writeFile(join(draft, name), bytes, WHOLE)
  await writeFile(join(draft, COMPONENT_MANIFEST), JSON.stringify(files.map(([name]) => name)), WHOLE)
}

async function isWhole(folder: string): Promise<boolean> {
  return (await readFile(join(folder, COMPONENT_MANIFEST)).catch(() => undefined)) !== undefined
}

/** Paths of the files in a folder that `prepare` returned. */
export async function listComponentFiles(folder: string): Promise<string[]> {
  const names = JSON.parse(await readFile(join(folder, COMPONENT_MANIFEST), 'utf8')) as string[]
  return names.map((name) => join(folder, name))
}

async function readKind(path: string) {
  const file = await open(path, 'r')
  try {
    const bytes = new Uint8Array(MAGIC_BYTES)
    await file.read(bytes, 0, MAGIC_BYTES, 0)
    return readModuleKind(bytes)
  } finally {
    await file.close()
  }
}
