/**
 * Transpiled components on disk, beside the module cache: one folder per component and version of the transpiler. Whoever
 * wants the same component waits for one transpilation, and the components of one domain do not delay those of another.
 */
import { mkdir, open, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { LRUCache } from 'lru-cache'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { readModuleKind } from '#core/wasm/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { COMPONENT_MANIFEST } from './files.ts'
import { DomainQueue } from './domain-queue.ts'
import { transpile } from './transpile.ts'

export type ComponentsOptions = {
  isolation: Isolation
  folder: string
  /** Where `stageTranspilerCode` put the code; its name changes with every version of it. */
  codeFolder: string
}

/** Whose run needs a component, and until when. */
export type Asker = { domainId?: string; signal?: AbortSignal }

/** Kinds and refusals that are remembered. */
const MAX_REMEMBERED = 1_000
/** Components that are transpiled at a time, each of another domain; one takes up to 1.5 GiB. */
const MAX_UNDER_WAY = 2
/** Components of one domain that wait; the run of one more is given back to the manager. */
const MAX_WAITING_PER_DOMAIN = 16
/** A run whose component has waited so long is given back too. */
const WAIT_DEADLINE_MS = 300_000
const MAGIC_BYTES = 8
/** On disk before the next one is written: a folder that a crash left half written must not look whole. */
const WHOLE = { mode: 0o644, flush: true }

export class Components {
  readonly #options: ComponentsOptions
  readonly #version: string
  /** Folder, or undefined for a core module. */
  readonly #known = new LRUCache<string, { folder: string | undefined }>({ max: MAX_REMEMBERED })
  readonly #refused = new LRUCache<string, string>({ max: MAX_REMEMBERED })
  readonly #queue = new DomainQueue({
    maxUnderWay: MAX_UNDER_WAY,
    maxWaiting: MAX_WAITING_PER_DOMAIN,
    waitDeadlineMs: WAIT_DEADLINE_MS,
  })
  readonly #abort = new AbortController()

  constructor(options: ComponentsOptions) {
    this.#options = options
    this.#version = options.codeFolder.split('/').at(-1) ?? ''
  }

  /** Removes what belongs to modules that are gone, or to another version of the transpiler. */
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
   * The folder with what runners need of a component; undefined for a core module. `path` is the module's file, which
   * must stay until this is settled. Rejects with `malformed` when the component cannot be transpiled, with `rate_limited` when
   * too many components of the domain wait, and with the reason of the signal.
   */
  async prepare(digest: string, path: string, { domainId = '', signal }: Asker = {}): Promise<string | undefined> {
    const known = this.#known.get(digest)
    if (known !== undefined) return known.folder
    const refusal = this.#refused.get(digest)
    if (refusal !== undefined) throw new ServiceError('malformed', refusal)
    if ((await readKind(path)) === 'core') {
      this.#known.set(digest, { folder: undefined })
      return undefined
    }
    const folder = join(this.#options.folder, this.#nameOf(digest))
    // What an earlier process left needs no turn.
    if (!(await isWhole(folder))) {
      const stopping = this.#abort.signal
      const asker = signal === undefined ? stopping : AbortSignal.any([signal, stopping])
      await this.#queue.run(domainId, digest, (place, left) => this.#make(digest, path, folder, place, left), asker)
    }
    this.#known.set(digest, { folder })
    return folder
  }

  /** 0: it is being transpiled; else its place among those that wait. Undefined: neither. */
  positionOf(digest: string): number | undefined {
    return this.#queue.positionOf(digest)
  }

  /** The module left the cache. */
  async forget(digest: string): Promise<void> {
    this.#known.delete(digest)
    await rm(join(this.#options.folder, this.#nameOf(digest)), { recursive: true, force: true })
  }

  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is stopping'))
    await this.#queue.settled()
  }

  #nameOf(digest: string): string {
    return `${digest.replace(/^sha256:/, '')}-${this.#version}`
  }

  async #make(digest: string, path: string, folder: string, place: number, signal: AbortSignal): Promise<void> {
    // Made while this one looked for it, and perhaps in use.
    if (await isWhole(folder)) return
    try {
      const files = await transpile({ ...this.#options, path, place }, signal)
      const draft = `${folder}.new`
      await rm(draft, { recursive: true, force: true })
      await mkdir(draft, { mode: 0o755 })
      for (const [name, bytes] of files) await writeFile(join(draft, name), bytes, WHOLE)
      await writeFile(join(draft, COMPONENT_MANIFEST), JSON.stringify(files.map(([name]) => name)), WHOLE)
      await rm(folder, { recursive: true, force: true })
      await rename(draft, folder)
    } catch (error) {
      if (kindOf(error) === 'malformed' && error instanceof Error) this.#refused.set(digest, error.message)
      throw error
    }
  }
}

async function isWhole(folder: string): Promise<boolean> {
  return (await readFile(join(folder, COMPONENT_MANIFEST)).catch(() => undefined)) !== undefined
}

/** Paths of the files in a folder that `prepare` answered. */
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
