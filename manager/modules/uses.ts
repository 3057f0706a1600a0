/** Uses of modules, from registries and uploaded: the SQL of `GET /modules`. */
import { BoundedCache } from '#core/bounded-cache.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { visibleDomainCondition, type TaskCaller, type VisibleDomainKeys } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { domainRecord, writeRecords } from '../store/journal.ts'
import type { ResolvedReference } from './proxy-client.ts'

/** The use of a module by one domain. */
export type ModuleUse = {
  digest: string
  domainKey: number | null
  domainId: string | null
  source: 'registry' | 'upload'
  /** Null for uploads, as are `imageUrl` and `signed`. */
  reference: string | null
  imageUrl: string | null
  signed: boolean | null
  sizeBytes: number
  tasks: number
  createdAt: string
  lastUsedAt: string | null
}

/** Keys of domains, 0 for tasks of no domain; `all`: no restriction. */

export type UseFilter = PageRange & {
  domains: VisibleDomainKeys
  digest?: string
  source?: 'registry' | 'upload'
  /** The recorded reference with the digest of the manifest; an upload has none. */
  reference?: string | undefined
}

const NOTED_EVERY_MS = 60_000
const MAX_CACHED_USES = 20_000
/** The largest number of uses per domain; the least recently used ones are removed. */
const MAX_USES = 1_000

export type UseRecorder = (domainId: string | null, imageUrl: string, found: ResolvedReference) => Promise<void>

/** Records that a domain uses a module, at most once a minute each, because starts are frequent. */
export function createUseRecorder(database: Database): UseRecorder {
  const noted = new BoundedCache<string, number>({ maxEntries: MAX_CACHED_USES })
  return async (domainId, imageUrl, found) => {
    const key = `${domainId ?? ''} ${imageUrl} ${found.reference} ${found.signed}`
    const nowMs = monotonicMs()
    if (nowMs - (noted.get(key) ?? -Infinity) < NOTED_EVERY_MS) return
    noted.set(key, nowMs)
    await writeUse(database, domainId, imageUrl, found)
  }
}

async function writeUse(
  database: Database,
  domainId: string | null,
  imageUrl: string,
  { digest, reference, sizeBytes, signed }: ResolvedReference,
): Promise<void> {
  const { rows } = await sql<{ domain_key: number; is_new: boolean }>`
    INSERT INTO module_uses (domain_key, domain_id, digest, reference, image_url, size_bytes, signed)
    SELECT d.key, d.id, ${digest}, ${reference}, ${imageUrl}, ${sizeBytes}, ${signed}
    FROM (SELECT 1) AS one LEFT JOIN domains d ON d.id = ${domainId}::uuid
    WHERE ${domainId}::uuid IS NULL OR d.key IS NOT NULL
    ON CONFLICT ON CONSTRAINT module_uses_domain_module_key
    DO UPDATE SET image_url = excluded.image_url, signed = excluded.signed, last_used_at = now()
    RETURNING coalesce(domain_key, 0) AS domain_key, xmax = 0 AS is_new`.execute(database.db)
  const [row] = rows
  if (row?.is_new !== true) return
  await sql`
    DELETE FROM module_uses WHERE key IN (
      SELECT key FROM module_uses WHERE coalesce(domain_key, 0) = ${row.domain_key}
      ORDER BY last_used_at DESC, key DESC OFFSET ${MAX_USES} LIMIT 100)`.execute(database.db)
}

type UseRow = {
  digest: string
  domain_key: number | null
  domain_id: string | null
  source: 'registry' | 'upload'
  reference: string | null
  image_url: string | null
  signed: boolean | null
  size_bytes: number
  tasks: number
  created_at: string
  last_used_at: string | null
}

function usesOf({ domains, digest, source, reference }: Omit<UseFilter, keyof PageRange>): Sql<unknown> {
  const isDigest = (column: Sql<unknown>) => (digest === undefined ? sql`true` : sql`${column} = ${digest}`)
  const isReference = reference === undefined ? sql`true` : sql`u.reference = ${reference}`
  return sql`
    (SELECT u.digest, u.domain_key, u.domain_id, 'registry' AS source, u.reference, u.image_url, u.signed, u.size_bytes,
       0 AS tasks, u.created_at, u.last_used_at
     FROM module_uses u
     WHERE ${source !== 'upload'} AND ${visibleDomainCondition(sql`u.domain_key`, domains)} AND ${isDigest(sql`u.digest`)} AND ${isReference}
     UNION ALL
     SELECT m.digest, t.domain_key, t.domain_id, 'upload', NULL, NULL, NULL, m.size_bytes, t.tasks,
       m.created_at, t.last_used_at
     FROM (SELECT module_key, domain_key, domain_id, count(*)::integer AS tasks, max(start_time) AS last_used_at FROM tasks t
           WHERE module_key IS NOT NULL AND ${visibleDomainCondition(sql`t.domain_key`, domains)}
           GROUP BY module_key, domain_key, domain_id) AS t
     JOIN modules m ON m.key = t.module_key
     WHERE ${source !== 'registry' && reference === undefined} AND ${isDigest(sql`m.digest`)}) AS uses`
}

/** Lists the uses, the most recent first. */
export async function listUses(
  database: Database,
  filter: UseFilter,
): Promise<{ total: number; uses: ModuleUse[]; next: PageEnd }> {
  const from = usesOf(filter)
  const [counted, listed] = await Promise.all([
    sql<{ total: number }>`SELECT count(*)::integer AS total FROM ${from}`.execute(database.db),
    readPage<UseRow>(
      database.db,
      { columns: COLUMNS, from, where: sql<boolean>`true`, keyset: LAST_USED_FIRST },
      filter,
    ),
  ])
  return { total: counted.rows[0]?.total ?? 0, uses: listed.rows.map(fromRow), next: listed.next }
}

const COLUMNS = sql`digest, domain_key, domain_id, source, reference, image_url, signed, size_bytes, tasks,
  created_at::text, last_used_at::text`
/** Modules that were never used are the last. */
const LAST_USED_FIRST = new Keyset([
  { by: sql`coalesce(uses.last_used_at, 'epoch')`, type: 'time', dir: 'desc' },
  { by: sql`uses.digest`, type: 'text' },
  { by: sql`coalesce(uses.domain_id::text, '')`, type: 'text' },
  { by: sql`coalesce(uses.reference, '')`, type: 'text' },
])

/** Removes the uses of the module by these domains; true if no other domain uses it. */
export async function deleteUses(
  database: Database,
  digest: string,
  { domains, caller }: { domains: VisibleDomainKeys; caller: TaskCaller },
): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const { rows } = await sql<{ is_unused: boolean; domain_keys: (number | null)[] }>`
      WITH gone AS (
        DELETE FROM module_uses u WHERE u.digest = ${digest} AND ${visibleDomainCondition(sql`u.domain_key`, domains)}
        RETURNING key, domain_key)
      SELECT NOT EXISTS (SELECT 1 FROM module_uses u WHERE u.digest = ${digest} AND u.key NOT IN (SELECT key FROM gone))
        AS is_unused, to_jsonb(ARRAY(SELECT DISTINCT domain_key FROM gone)) AS domain_keys`.execute(tx)
    const { is_unused: isUnused = false, domain_keys: keys = [] } = rows[0] ?? {}
    const change = { operation: 'module.remove', attributes: { digest } }
    await writeRecords(
      tx,
      keys.map((domainKey) => domainRecord(actorOf(caller), domainKey, change)),
    )
    return isUnused
  })
}

function fromRow(row: UseRow): ModuleUse {
  return {
    digest: row.digest,
    domainKey: row.domain_key,
    domainId: row.domain_id,
    source: row.source,
    reference: row.reference,
    imageUrl: row.image_url,
    signed: row.signed,
    sizeBytes: row.size_bytes,
    tasks: row.tasks,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
  }
}
