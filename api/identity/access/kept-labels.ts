/**
 * Totals by one or two letters of a name, or by tags that many rows bear, in domains of very many entities. No index helps
 * there: PostgreSQL looks at every row, half a second for 600,000. So names, tags and groups of such domains are kept in memory
 * once somebody asked so; entities that changed are read again before the next count. Of what is not kept the database is asked.
 */
import type { Queryable } from '#core/database/index.ts'
import { createLru } from '#core/lru.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { anyChangeIn } from './any-change.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { LocatedEntity } from './entities.ts'
import { BLOCK_ROWS, createLabelBlocks } from './label-blocks.ts'
import type { FoundLabels, LabelBlocks, LabelFilter, Labelled, Within } from './label-blocks.ts'

export type { LabelFilter, Within } from './label-blocks.ts'

type Type = LocatedEntity['type']

type Bounds = {
  most?: number | undefined
  /** Finds what the caller reaches; undefined: everything. */
  within?: (() => Promise<Within>) | undefined
}

export type KeptLabels = {
  /** How many entities of the domain match, and which if they are at most `most`; undefined when that is not kept. */
  find(type: Type, domainKey: number, filter: LabelFilter, bounds?: Bounds): Promise<FoundLabels | undefined>
  /** How many rows are kept of the domain; undefined when it is not. */
  rowsOf(type: Type, domainKey: number): number | undefined
  /** Reads these domains, if they are large together, for whoever asks later. Nobody waits for it. */
  prepare(type: Type, domainKeys: readonly number[]): Promise<void>
  /** Told by the journal of everything that changed. */
  forget(entityKeys: readonly number[]): void
  clear(): void
}

/** Fewer rows, of all domains that are asked about, are counted by PostgreSQL in a few milliseconds. */
const MIN_ROWS = 20_000
/** A million entities with names of 40 letters. */
const MAX_BYTES = 80 * 1024 * 1024
/** Of more entities that changed since the last count everything is read anew, when somebody asks again. */
const MAX_CHANGED = 50_000
/** How large a domain is is not asked again before. */
const ASKED_AGAIN_MS = 60_000
/** What nobody asked for so long makes room for others; what is asked for does not, or each would drive out the other. */
const UNASKED_MS = 600_000
const MAX_ASKED = 10_000

type Kept = {
  type: Type
  domainKey: number
  labels: LabelBlocks
  isComplete: boolean
  askedMs: number
  /** Keys of entities, perhaps of other types too, that may be other than they are kept. */
  changed: Set<number>
  /** What is done with them, one after the other. */
  last: Promise<unknown>
}

export function createKeptLabels({
  db,
  isFresh,
  minRows = MIN_ROWS,
  maxBytes = MAX_BYTES,
}: {
  db: Queryable
  isFresh: () => boolean
  minRows?: number
  maxBytes?: number
}): KeptLabels {
  const keptOnes = new Map<string, Kept>()
  const askedUntilMs = createLru<string, number>(MAX_ASKED)
  let isPreparing = false
  const nameOf = (type: Type, domainKey: number) => `${type}/${domainKey}`

  function drop(kept: Kept): void {
    const name = nameOf(kept.type, kept.domainKey)
    if (keptOnes.get(name) === kept) keptOnes.delete(name)
  }

  function findKept(type: Type, domainKey: number): Kept | undefined {
    const kept = keptOnes.get(nameOf(type, domainKey))
    return kept?.isComplete === true && isFresh() ? kept : undefined
  }

  /** Whether there is room for it, once those that nobody asks for are gone. */
  function makeRoomFor(kept: Kept): boolean {
    let bytes = 0
    for (const { labels } of keptOnes.values()) bytes += labels.bytes
    for (const other of keptOnes.values()) {
      if (bytes <= maxBytes) break
      if (other === kept || monotonicMs() - other.askedMs < UNASKED_MS) continue
      bytes -= other.labels.bytes
      drop(other)
    }
    return bytes <= maxBytes
  }

  /** Registered before the first row is read, so that no change is missed. */
  async function load(type: Type, domainKey: number): Promise<void> {
    const kept: Kept = {
      type,
      domainKey,
      labels: createLabelBlocks(),
      isComplete: false,
      askedMs: monotonicMs(),
      changed: new Set(),
      last: Promise.resolve(),
    }
    const name = nameOf(type, domainKey)
    keptOnes.set(name, kept)
    try {
      let rows: Labelled[]
      let after = 0
      do {
        rows = await readLabels(db, kept, sql`key > ${after} ORDER BY key LIMIT ${BLOCK_ROWS}`)
        if (rows.length > 0) kept.labels.add(rows)
        after = rows.at(-1)?.key ?? after
        if (!makeRoomFor(kept)) drop(kept)
      } while (rows.length === BLOCK_ROWS && keptOnes.get(name) === kept)
      kept.isComplete = true
    } catch (error) {
      drop(kept)
      throw error
    }
  }

  async function readChanged(kept: Kept): Promise<void> {
    const keys = [...kept.changed]
    if (keys.length === 0) return
    kept.changed = new Set()
    try {
      kept.labels.replace(keys, await readLabels(db, kept, sql`key = ANY (${keys}::bigint[])`))
      if (!makeRoomFor(kept)) drop(kept)
    } catch (error) {
      drop(kept)
      throw error
    }
  }

  return {
    rowsOf: (type, domainKey) => findKept(type, domainKey)?.labels.rows,
    async find(type, domainKey, filter, { most, within } = {}) {
      const kept = findKept(type, domainKey)
      if (kept === undefined) return undefined
      kept.askedMs = monotonicMs()
      const found = kept.last.then(async () => {
        await readChanged(kept)
        return await kept.labels.find(filter, { most, within: await within?.() })
      })
      kept.last = found.catch(() => {})
      return await found
    },
    async prepare(type, domainKeys) {
      const nowMs = monotonicMs()
      const wanted = domainKeys.filter((key) => {
        const name = nameOf(type, key)
        return !keptOnes.has(name) && (askedUntilMs.get(name) ?? 0) <= nowMs
      })
      if (isPreparing || wanted.length === 0) return
      isPreparing = true
      for (const key of wanted) askedUntilMs.set(nameOf(type, key), nowMs + ASKED_AGAIN_MS)
      try {
        const { rows } = await sql<{ domain_key: number; total: number }>`
          SELECT domain_key, count(*)::int AS total FROM ${sql.table(ENTITY_TABLES[type].table)}
           WHERE domain_key = ANY (${wanted}::bigint[]) GROUP BY domain_key ORDER BY total DESC`.execute(db)
        if (rows.reduce((sum, { total }) => sum + total, 0) < minRows) return
        for (const { domain_key: key } of rows) await load(type, key)
      } finally {
        isPreparing = false
      }
    },
    forget(entityKeys) {
      for (const kept of keptOnes.values()) {
        if (!entityKeys.includes(anyChangeIn(kept.domainKey))) continue
        for (const key of entityKeys) if (key > 0) kept.changed.add(key)
        if (kept.changed.size > MAX_CHANGED) drop(kept)
      }
    },
    clear() {
      keptOnes.clear()
      askedUntilMs.clear()
    },
  }
}

/** In the order that the condition gives. As arrays in JSON: as rows they take the driver three times as long. */
async function readLabels(
  db: Queryable,
  { type, domainKey }: Pick<Kept, 'type' | 'domainKey'>,
  condition: ReturnType<typeof sql>,
): Promise<Labelled[]> {
  const { table, parent } = ENTITY_TABLES[type]
  const { rows } = await sql<Record<'keys' | 'statuses' | 'names' | 'tags' | 'groups', string | null>>`
    SELECT json_agg(key)::text AS keys, json_agg(status)::text AS statuses, json_agg(name)::text AS names, json_agg(tags)::text AS tags,
           json_agg(above)::text AS groups
      FROM (SELECT key, status, name, tags, ${sql.ref(parent)} AS above FROM ${sql.table(table)}
             WHERE domain_key = ${domainKey} AND ${condition}) labelled`.execute(db)
  const listOf = <T>(text: string | null | undefined) => JSON.parse(text ?? '[]') as T[]
  const [found] = rows
  const [statuses, names] = [listOf<string>(found?.statuses), listOf<string>(found?.names)]
  const [tags, groups] = [listOf<string[]>(found?.tags), listOf<number | null>(found?.groups)]
  return listOf<number>(found?.keys).map((key, row) => ({
    key,
    status: statuses[row] ?? '',
    name: names[row] ?? '',
    tags: tags[row] ?? [],
    group: groups[row] ?? 0,
  }))
}
