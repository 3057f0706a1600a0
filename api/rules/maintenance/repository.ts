/** SQL of maintenance windows, and which clients they are about. */
import { allOf, contains } from '#api/identity/index.ts'
import { Keyset, readPage, refusing } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { createTurns } from '#core/turns.ts'
import { PlannedTimes } from './planned-times.ts'
import type { Plan } from './planned-times.ts'

export type WindowFields = {
  name: string
  description: string
  plan: Plan
  /** Null: all. */
  rules: readonly string[] | null
  clients: readonly string[] | null
  groups: readonly string[] | null
  tags: readonly string[] | null
}

export type StoredWindow = WindowFields & { key: number; id: string; domainKey: number }

export type WindowRecord = StoredWindow & {
  named: { type: 'rule' | 'client' | 'group'; id: string; name: string }[]
  activeUntilMs: number | undefined
  nextAtMs: number | undefined
  createdBy: string
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}

type Row<T extends WindowFields> = Omit<T, 'plan' | 'activeUntilMs' | 'nextAtMs'> & {
  startsAtMs: number | null
  endsAtMs: number | null
  expression: string | null
  timezone: string | null
  durationMs: number | null
}

const CORE = sql`w.key, w.id, w.domain_key AS "domainKey", w.name, w.description,
  (extract(epoch FROM w.starts_at) * 1000)::float8 AS "startsAtMs", (extract(epoch FROM w.ends_at) * 1000)::float8 AS "endsAtMs",
  w.schedule AS expression, w.timezone, w.duration_seconds * 1000 AS "durationMs", w.rule_ids AS rules, w.client_ids AS clients,
  w.group_ids AS groups, w.tags`

const namesOf = (type: string, column: string): Sql =>
  sql`SELECT ${type}::text AS type, e.id, e.name FROM ${sql.table(`${type}s`)} e
    WHERE e.domain_key = w.domain_key AND e.id = ANY (${sql.ref(`w.${column}`)})`

const SHOWN = sql`${CORE}, (SELECT coalesce(json_agg(n), '[]') FROM (${namesOf('rule', 'rule_ids')}
    UNION ALL ${namesOf('client', 'client_ids')} UNION ALL ${namesOf('group', 'group_ids')}) n) AS named,
  w.created_by AS "createdBy", w.created_at AS "createdAt", w.updated_by AS "updatedBy", w.updated_at AS "updatedAt"`

function fromRow<T extends WindowFields>(row: Row<T>): T {
  const { startsAtMs, endsAtMs, expression, timezone, durationMs, ...rest } = row
  const schedule =
    expression === null || timezone === null || durationMs === null ? null : { expression, timezone, durationMs }
  return { ...rest, plan: { startsAtMs, endsAtMs, schedule } } as unknown as T
}

function shownFromRow(row: Row<WindowRecord>): WindowRecord {
  const window = fromRow<WindowRecord>(row)
  const times = new PlannedTimes(window.plan)
  const nowMs = Date.now()
  return { ...window, activeUntilMs: times.endAt(nowMs), nextAtMs: times.nextStart(nowMs) }
}

const CONFLICTS = {
  maintenance_windows_name_key: () => takenField('/name', 'a maintenance window with this name exists in the domain'),
}

export async function countWindows(db: Queryable, domainKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM maintenance_windows WHERE domain_key = ${domainKey}`.execute(db)
  return rows[0]?.total ?? 0
}

const list = (values: readonly string[] | null) => (values === null ? null : [...values])

/** The columns that users write, in the order of `WRITTEN`. */
const WRITTEN = sql`name, description, starts_at, ends_at, schedule, timezone, duration_seconds, rule_ids, client_ids, group_ids, tags`
const written = ({ name, description, plan, rules, clients, groups, tags }: WindowFields): Sql => {
  const { startsAtMs, endsAtMs, schedule } = plan
  const at = (ms: number | null) => sql`to_timestamp(${ms === null ? null : ms / 1000}::float8)`
  return sql`${name}::text, ${description}::text, ${at(startsAtMs)}, ${at(endsAtMs)}, ${schedule?.expression ?? null}::text, ${schedule?.timezone ?? null}::text,
    ${schedule === null ? null : Math.round(schedule.durationMs / 1000)}::bigint, ${list(rules)}::uuid[], ${list(clients)}::uuid[],
    ${list(groups)}::uuid[], ${list(tags)}::text[]`
}

export async function insertWindow(
  tx: Transaction,
  row: WindowFields & { id: string; domainKey: number; createdBy: string },
): Promise<void> {
  await refusing(
    CONFLICTS,
    sql`INSERT INTO maintenance_windows (id, domain_key, created_by, ${WRITTEN})
      VALUES (${row.id}, ${row.domainKey}, ${row.createdBy}, ${written(row)})`.execute(tx),
  )
}

export async function updateWindow(
  tx: Transaction,
  key: number,
  row: WindowFields & { updatedBy: string },
): Promise<void> {
  await refusing(
    CONFLICTS,
    sql`UPDATE maintenance_windows SET (${WRITTEN}) = ROW (${written(row)}), updated_by = ${row.updatedBy}, updated_at = now()
      WHERE key = ${key}`.execute(tx),
  )
}

export async function deleteWindow(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM maintenance_windows WHERE key = ${key}`.execute(tx)
}

/** The window, locked until the transaction ends. Lock the rules of the domain first. */
export async function lockWindow(tx: Transaction, domainKey: number, id: string): Promise<StoredWindow | undefined> {
  const { rows } = await sql<Row<StoredWindow>>`SELECT ${CORE} FROM maintenance_windows w
    WHERE w.domain_key = ${domainKey} AND w.id = ${id}::uuid FOR NO KEY UPDATE`.execute(tx)
  return rows[0] === undefined ? undefined : fromRow<StoredWindow>(rows[0])
}

/** Those of the domain that have not ended for ever when `sinceMs` was, for the evaluation of its rules. */
export async function listPlanned(db: Queryable, domainKey: number, sinceMs: number): Promise<StoredWindow[]> {
  const { rows } = await sql<Row<StoredWindow>>`SELECT ${CORE} FROM maintenance_windows w
    WHERE w.domain_key = ${domainKey} AND (w.ends_at IS NULL OR w.ends_at > to_timestamp(${sinceMs / 1000}::float8))
    ORDER BY w.key`.execute(db)
  return rows.map((row) => fromRow<StoredWindow>(row))
}

export async function findWindow(db: Queryable, domainKey: number, id: string): Promise<WindowRecord | undefined> {
  const { rows } = await sql<Row<WindowRecord>>`SELECT ${SHOWN} FROM maintenance_windows w
    WHERE w.domain_key = ${domainKey} AND w.id = ${id}::uuid`.execute(db)
  return rows[0] === undefined ? undefined : shownFromRow(rows[0])
}

const OLDEST_FIRST = new Keyset([
  { by: sql`w.created_at`, type: 'time' },
  { by: sql`w.key`, type: 'number' },
])

export async function listWindows(
  db: Queryable,
  { domainKey, name, ...range }: PageRange & { domainKey: number; name: string | undefined },
): Promise<{ total: number; windows: WindowRecord[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`w.domain_key = ${domainKey}`,
    ...(name === undefined ? [] : [contains('w.name', name)]),
  ])
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM maintenance_windows w WHERE ${where}`.execute(db)
  const source = { columns: SHOWN, from: sql`maintenance_windows w`, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<Row<WindowRecord>>(db, source, range)
  const windows: WindowRecord[] = []
  const turns = createTurns()
  for (const row of rows) {
    // To find the times of a rare schedule takes milliseconds.
    if (turns.isOver) await turns.next()
    windows.push(shownFromRow(row))
  }
  return { total: counted[0]?.total ?? 0, windows, next }
}

/** Rules, clients and groups of the domain among these ids. */
export async function findNamed(
  db: Queryable,
  domainKey: number,
  { rules, clients, groups }: Pick<WindowFields, 'rules' | 'clients' | 'groups'>,
): Promise<ReadonlySet<string>> {
  const part = (table: string, among: readonly string[] | null) =>
    sql`SELECT id FROM ${sql.table(table)} WHERE domain_key = ${domainKey} AND id = ANY (${[...(among ?? [])]}::uuid[])`
  const { rows } = await sql<{ id: string }>`${part('rules', rules)} UNION ALL ${part('clients', clients)}
    UNION ALL ${part('groups', groups)}`.execute(db)
  return new Set(rows.map(({ id }) => id))
}

/**
 * What was silenced is looked at again: its maintenance may be over, or be another one. So are escalations, which wait for its end too. Lock the rules
 * of the domain first.
 */
export async function revisitSilenced(tx: Transaction, domainKey: number): Promise<void> {
  await sql`UPDATE rule_states s SET silenced_until = least(s.silenced_until, now()) FROM rules r
    WHERE r.domain_key = ${domainKey} AND s.rule_key = r.key AND s.silenced_until IS NOT NULL`.execute(tx)
  await sql`UPDATE rule_states s SET escalate_at = least(s.escalate_at, now()) FROM rules r
    WHERE r.domain_key = ${domainKey} AND r.status = 'enabled' AND s.rule_key = r.key AND s.escalate_at IS NOT NULL`.execute(
    tx,
  )
}

/** Which of these windows are about which of these clients. */
export async function findAbout(
  tx: Transaction,
  domainKey: number,
  { windowKeys, clientIds }: { windowKeys: readonly number[]; clientIds: readonly string[] },
): Promise<{ windowKey: number; clientId: string }[]> {
  if (windowKeys.length === 0 || clientIds.length === 0) return []
  // The groups of a window are found once, and not for each client.
  const { rows } = await sql<{ windowKey: number; clientId: string }>`
    WITH RECURSIVE asked AS (SELECT key, client_ids, group_ids, tags FROM maintenance_windows
        WHERE domain_key = ${domainKey} AND key = ANY (${[...windowKeys]}::bigint[])),
      below (window_key, key) AS (
        SELECT w.key, g.key FROM asked w JOIN groups g ON g.domain_key = ${domainKey} AND g.id = ANY (w.group_ids)
        UNION SELECT b.window_key, g.key FROM groups g JOIN below b ON g.parent_key = b.key)
    SELECT w.key AS "windowKey", c.id AS "clientId" FROM clients c CROSS JOIN asked w
     WHERE c.domain_key = ${domainKey} AND c.id = ANY (${[...clientIds]}::uuid[])
       AND (w.client_ids IS NULL OR c.id = ANY (w.client_ids)) AND (w.tags IS NULL OR c.tags && w.tags)
       AND (w.group_ids IS NULL OR (w.key, c.parent_group_key) IN (SELECT window_key, key FROM below))`.execute(tx)
  return rows
}
