/**
 * Transpiled components on disk, beside the module cache: one folder per component and version of the transpiler. Whoever
 * wants the same component waits for one transpilation, and only one runs at a time.
 */
import { mkdir, open, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createLru } from '#core/lru.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { readModuleKind } from '#core/wasm/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { COMPONENT_MANIFEST } from './files.ts'
import { transpile } from './transpile.ts'

export type ComponentsOptions = {
  isolation: Isolation
  folder: string
  /** Where `stageTranspilerCode` put the code; its name changes with every version of it. */
  codeFolder: string
}

/** Kinds and refusals that are remembered. */
const MAX_REMEMBERED = 1_000
const MAGIC_BYTES = 8
/** On disk before the next one is written: a folder that a crash left half written must not look whole. */
const WHOLE = { mode: 0o644, flush: true }

export class Components {
  readonly #options: ComponentsOptions
  readonly #version: string
  /** Folder, or undefined for a core module. */
  readonly #known = createLru<string, { folder: string | undefined }>(MAX_REMEMBERED)
  readonly #refused = createLru<string, string>(MAX_REMEMBERED)
  readonly #underWay = new Map<string, Promise<string>>()
  readonly #abort = new AbortController()
  #last: Promise<unknown> = Promise.resolve()

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
   * must stay until this is settled. Rejects with `malformed` when the component cannot be transpiled.
   */
  async prepare(digest: string, path: string): Promise<string | undefined> {
    const known = this.#known.get(digest)
    if (known !== undefined) return known.folder
    const refusal = this.#refused.get(digest)
    if (refusal !== undefined) throw new ServiceError('malformed', refusal)
    if ((await readKind(path)) === 'core') {
      this.#known.set(digest, { folder: undefined })
      return undefined
    }
    let work = this.#underWay.get(digest)
    if (work === undefined) {
      work = this.#make(digest, path).finally(() => this.#underWay.delete(digest))
      this.#underWay.set(digest, work)
    }
    return work
  }

  /** The module left the cache. */
  async forget(digest: string): Promise<void> {
    this.#known.delete(digest)
    await rm(join(this.#options.folder, this.#nameOf(digest)), { recursive: true, force: true })
  }

  async close(): Promise<void> {
    this.#abort.abort(new ServiceError('unavailable', 'the worker is stopping'))
    await Promise.allSettled(this.#underWay.values())
  }

  #nameOf(digest: string): string {
    return `${digest.replace(/^sha256:/, '')}-${this.#version}`
  }

  async #make(digest: string, path: string): Promise<string> {
    const folder = join(this.#options.folder, this.#nameOf(digest))
    const turn = this.#last
    const work = turn.catch(() => undefined).then(() => this.#makeIfMissing(folder, path))
    this.#last = work
    try {
      await work
    } catch (error) {
      if (kindOf(error) === 'malformed' && error instanceof Error) this.#refused.set(digest, error.message)
      throw error
    }
    this.#known.set(digest, { folder })
    return folder
  }

  async #makeIfMissing(folder: string, path: string): Promise<void> {
    this.#abort.signal.throwIfAborted()
    if (await readFile(join(folder, COMPONENT_MANIFEST)).catch(() => undefined)) return
    const files = await transpile(this.#options, path, this.#abort.signal)
    const draft = `${folder}.new`
    await rm(draft, { recursive: true, force: true })
    await mkdir(draft, { mode: 0o755 })
    for (const [name, bytes] of files) await writeFile(join(draft, name), bytes, WHOLE)
    await writeFile(join(draft, COMPONENT_MANIFEST), JSON.stringify(files.map(([name]) => name)), WHOLE)
    await rm(folder, { recursive: true, force: true })
    await rename(draft, folder)
  }
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
