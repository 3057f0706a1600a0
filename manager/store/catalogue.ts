/**
 * What is known about modules by digest: kind, exports, imports. It never changes, so it is remembered; the bytes stay
 * in the database.
 */
import { LRUCache } from 'lru-cache'
import type { DescribedExport, DescribedImport } from '#core/wasm/index.ts'

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

/** Descriptions as JSON that are remembered. */
const REMEMBERED_BYTES = 16 * 1024 * 1024
/** Of what is known of a module beside its description. */
const FACTS_BYTES = 1024

/** Of a module as it is remembered, in about as many bytes. */
export function sizeOfModule({ exports, imports }: ModuleFacts): number {
  return FACTS_BYTES + JSON.stringify(exports).length + JSON.stringify(imports).length
}

export class ModuleCatalogue {
  readonly #known = new LRUCache<number, ModuleFacts>({ maxSize: REMEMBERED_BYTES, sizeCalculation: sizeOfModule })

  /** The modules of these keys; `read` is asked for those that are not remembered. */
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
