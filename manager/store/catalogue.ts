/**
 * Facts about modules by digest: kind, exports, imports. They never change, so they are cached; the bytes stay in the
 * database.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { DescribedExport, DescribedImport } from '#guests/wasm/index.ts'

export type ModuleFacts = {
  key: number
  digest: string
  sizeBytes: number
  kind: 'core' | 'component'
  runtime: string
  exports: DescribedExport[]
  imports: DescribedImport[]
}

export type ModuleRow = {
  key: number
  digest: string
  size_bytes: number
  kind: 'core' | 'component'
  runtime: string
  exports: DescribedExport[]
  imports: DescribedImport[]
}

export const MODULE_COLUMNS = 'm.key, m.digest, m.size_bytes, m.kind, m.runtime, m.exports, m.imports'

/** Size of the cached descriptions as JSON. */
const MAX_CACHED_BYTES = 16 * 1024 * 1024
/** Overhead of a cached module besides its description. */
const FACTS_BYTES = 1024

/** The approximate size of a cached module in bytes. */
export function sizeOfModule({ exports, imports }: ModuleFacts): number {
  return FACTS_BYTES + JSON.stringify(exports).length + JSON.stringify(imports).length
}

export class ModuleCatalogue {
  readonly #known = new BoundedCache<number, ModuleFacts>({ maxSize: MAX_CACHED_BYTES, sizeOf: sizeOfModule })

  /** The modules of these keys; `read` loads those that are not cached. */
  async find(
    keys: readonly number[],
    read: (missing: number[]) => Promise<ModuleRow[]>,
  ): Promise<Map<number, ModuleFacts>> {
    const found = new Map<number, ModuleFacts>()
    const missing: number[] = []
    for (const key of new Set(keys)) {
      const known = this.#known.get(key)
      if (known === undefined) missing.push(key)
      else found.set(key, known)
    }
    if (missing.length === 0) return found
    for (const row of await read(missing)) {
      const facts = fromModuleRow(row)
      this.#known.set(facts.key, facts)
      found.set(facts.key, facts)
    }
    return found
  }
}

export function fromModuleRow(row: ModuleRow): ModuleFacts {
  return {
    key: row.key,
    digest: row.digest,
    sizeBytes: row.size_bytes,
    kind: row.kind,
    runtime: row.runtime,
    exports: row.exports,
    imports: row.imports,
  }
}
