/** Reads of the workers table. Registration and leases write it. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { recordManaged } from '#api/identity/index.ts'
import { visibleDomainCondition, type TaskCaller, type VisibleDomainKeys } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { domainRecord, writeRecords } from './journal.ts'
import { noteWorkers } from './notes.ts'

export type WorkerRecord = {
  key: number
  id: string
  domainId: string | null
  name: string
  version: string
  labels: Record<string, string>
  os: string
  arch: string
  cpuCores: number
  memoryBytes: number
  slots: number
  backlog: number
  runtimes: string[]
  isolation: string
  isPlatformOnly: boolean
  isDraining: boolean
  isAlive: boolean
  isRevoked: boolean
  aliveHistory: string[]
  lastAliveAt: string
  createdAt: string
  taskCount: number
}

// Alive: a manager holds its session and its lease has not expired, by the clock of the database.
const ALIVE = sql<boolean>`(w.manager_id IS NOT NULL AND w.lease_until > now())`

const COLUMNS = sql`
  w.key, w.id, w.domain_id AS "domainId", w.name, w.version, w.labels, w.os, w.arch, w.cpu_cores AS "cpuCores",
    w.memory_bytes AS "memoryBytes", w.slots, w.backlog, w.runtimes, w.isolation, w.platform_only AS "isPlatformOnly", w.draining AS "isDraining",
    w.revoked_at IS NOT NULL AS "isRevoked", ${ALIVE} AS "isAlive",
    to_jsonb(w.alive_history) AS "aliveHistory", w.last_alive_at AS "lastAliveAt", w.created_at AS "createdAt",
    (SELECT count(*) FROM runs r WHERE r.worker_key = w.key AND r.next_check_at IS NOT NULL) AS "taskCount"`

const OLDEST_FIRST = new Keyset([{ by: sql`w.key`, type: 'number' }])

export type WorkerFilter = PageRange & {
  /** Domains whose workers are visible in addition to the platform's. */
  domains: VisibleDomainKeys
  status?: 'alive' | 'dead' | 'draining' | undefined
  /** Only the lease decides this. */
  alive?: boolean | undefined
  label?: { name: string; value: string } | undefined
}

export async function listWorkers(
  db: Queryable,
  filter: WorkerFilter,
): Promise<{ total: number; workers: WorkerRecord[]; next: PageEnd }> {
  const conditions: Sql<boolean>[] = [
    sql`(w.domain_key IS NULL OR ${visibleDomainCondition(sql`w.domain_key`, filter.domains)})`,
  ]
  if (filter.status === 'alive') conditions.push(sql`${ALIVE} AND NOT w.draining`)
  if (filter.status === 'dead') conditions.push(sql`NOT ${ALIVE}`)
  if (filter.status === 'draining') conditions.push(sql`${ALIVE} AND w.draining`)
  if (filter.alive !== undefined) conditions.push(filter.alive ? ALIVE : sql`NOT ${ALIVE}`)
  if (filter.label !== undefined)
    conditions.push(sql`w.labels @> ${JSON.stringify({ [filter.label.name]: filter.label.value })}::jsonb`)
  const where = sql<boolean>`${sql.join(conditions, sql` AND `)}`
  const source = { columns: COLUMNS, from: sql`workers w`, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<WorkerRecord>(db, source, filter)
  // The last page determines the total itself; a worker that joins meanwhile is not counted without being shown.
  const found = rows[0]?.page_rows ?? 0
  const isLastPage = found <= filter.limit && (found > 0 || filter.offset === 0)
  if (isLastPage && filter.cursor === undefined) return { total: filter.offset + found, workers: rows, next }
  const counted = await sql<{ total: number }>`SELECT count(*) AS total FROM workers w WHERE ${where}`.execute(db)
  return { total: counted.rows[0]?.total ?? 0, workers: rows, next }
}

export async function findWorker(db: Queryable, id: string): Promise<WorkerRecord | undefined> {
  const { rows } = await sql<WorkerRecord>`SELECT ${COLUMNS} FROM workers w WHERE w.id = ${id}`.execute(db)
  return rows[0]
}

export type PlacedRun = { runId: string; state: number; needs: unknown; workerId: string | null; isQueued: boolean }

/** The newest run of the task with its needs. */
export async function findNewestRun(db: Queryable, taskKey: number): Promise<PlacedRun | undefined> {
  const { rows } = await sql<PlacedRun>`
    SELECT r.id AS "runId", r.state, n.definition AS needs, w.id AS "workerId", r.queue_seq IS NOT NULL AS "isQueued"
    FROM runs r LEFT JOIN run_needs n ON n.hash = r.needs LEFT JOIN workers w ON w.key = r.worker_key
    WHERE r.task_key = ${taskKey} ORDER BY r.key DESC LIMIT 1`.execute(db)
  return rows[0]
}

/** False if it does not exist. A call without a change creates no event and no record; for a dead worker, no event. */
export async function setDraining(
  db: Queryable,
  key: number,
  isDraining: boolean,
  caller: TaskCaller,
): Promise<boolean> {
  const change = isDraining ? 'drain' : 'resume'
  const { rows } = await sql`
    WITH before AS (SELECT key, draining FROM workers WHERE key = ${key} FOR UPDATE),
      updated AS (UPDATE workers w SET draining = ${isDraining} FROM before WHERE w.key = before.key
        RETURNING w.key, w.id, w.name, w.domain_key, before.draining <> w.draining AS is_changed, ${ALIVE} AS is_alive),
      changed AS (SELECT * FROM updated WHERE is_changed),
      seen AS (SELECT key, ${isDraining ? 'draining' : 'alive'}::text AS state FROM changed WHERE is_alive),
      noted AS (${sql.raw(noteWorkers('seen'))}),
      recorded AS (${recordManaged(actorOf(caller), { type: 'worker', change })})
    SELECT key FROM updated`.execute(db)
  return rows.length === 1
}

export type NewToken = {
  id: string
  hash: Buffer
  domain: { key: number; id: string } | null
  uses: number
  validForMs: number
  caller: TaskCaller
}

/** Returns its expiry. */
export async function insertToken(tx: Transaction, token: NewToken): Promise<string> {
  const { id, uses, domain, caller } = token
  const { rows } = await sql<{ expires_at: string }>`
    INSERT INTO worker_tokens (id, token_hash, domain_key, domain_id, uses_left, expires_at, created_by)
    VALUES (${id}, ${token.hash}, ${domain?.key ?? null}, ${domain?.id ?? null}, ${uses},
      now() + make_interval(secs => ${token.validForMs / 1000}::float8), ${caller?.id ?? null})
    RETURNING expires_at`.execute(tx)
  const [row] = rows
  if (row === undefined) throw new Error('the token was not inserted')
  const change = { operation: 'worker.token.create', attributes: { id, uses, expires_at: row.expires_at } }
  await writeRecords(tx, [domainRecord(actorOf(caller), domain?.key ?? null, change)])
  return row.expires_at
}
