/** SQL of alarms and their history. */
import { allOf, anyOf, contains } from '#api/identity/index.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { digestOfParts } from '../digest.ts'
import type { ALARM_CHANGES, AlarmStatus, Severity } from './schema.ts'

export type AlarmRecord = {
  key: number
  id: string
  ruleId: string
  ruleName: string
  clientId: string | null
  clientName: string
  channelId: string | null
  channelName: string
  subtopic: string
  name: string
  unit: string
  severity: Severity
  value: unknown
  text: string
  condition: string
  cause: string
  count: number
  escalations: number
  comments: number
  firstAt: string
  lastAt: string
  acknowledgedAt: string | null
  acknowledgedBy: string | null
  acknowledgedByName: string | null
  assigneeId: string | null
  assigneeName: string | null
  clearedAt: string | null
  clearedBy: string | null
  clearedByName: string | null
  maintenanceId: string | null
  maintenanceName: string
  silencedUntil: string | null
  updatedAt: string
}

export type AlarmChange = {
  at: string
  change: (typeof ALARM_CHANGES)[number]
  actorId: string | null
  actorName: string | null
  assigneeId: string | null
  assigneeName: string | null
  comment: string
}

const nameOf = (reference: string): Sql =>
  sql`(SELECT coalesce(u.username, u.name, '') FROM users u WHERE u.id = ${sql.ref(reference)})`

// Entities may be deleted: then the names of the moment when the alarm was raised remain.
const COLUMNS = sql`a.key, a.id, a.rule_id AS "ruleId", a.rule_name AS "ruleName", a.client_id AS "clientId", coalesce(c.name, a.client_name) AS "clientName",
  a.channel_id AS "channelId", coalesce(h.name, a.channel_name) AS "channelName", a.subtopic, a.name, a.unit, a.severity, a.value, a.text, a.condition,
  a.cause, a.count, a.escalations, a.comments, a.first_at AS "firstAt", a.last_at AS "lastAt", a.acknowledged_at AS "acknowledgedAt",
  a.acknowledged_by AS "acknowledgedBy", ${nameOf('a.acknowledged_by')} AS "acknowledgedByName", a.assignee_id AS "assigneeId",
  ${nameOf('a.assignee_id')} AS "assigneeName", a.cleared_at AS "clearedAt", a.cleared_by AS "clearedBy", ${nameOf('a.cleared_by')} AS "clearedByName",
  a.maintenance_id AS "maintenanceId", a.maintenance_name AS "maintenanceName", a.silenced_until AS "silencedUntil", a.updated_at AS "updatedAt"`
const FROM = sql`alarms a LEFT JOIN clients c ON c.domain_key = a.domain_key AND c.id = a.client_id
  LEFT JOIN channels h ON h.domain_key = a.domain_key AND h.id = a.channel_id`

const NEWEST_FIRST = new Keyset(
  [
    { by: sql`a.first_at`, type: 'time' },
    { by: sql`a.key`, type: 'number' },
  ],
  'desc',
)

export type AlarmFilter = {
  domainKey: number
  status: AlarmStatus | 'open' | undefined
  severities: readonly Severity[] | undefined
  ruleId: string | undefined
  clientId: string | undefined
  groupId: string | undefined
  tag: string | undefined
  /** Null: nobody. */
  assigneeId: string | null | undefined
  from: string | undefined
  to: string | undefined
  text: string | undefined
  isSilenced: boolean | undefined
}

const IN_STATUS = {
  open: sql<boolean>`a.cleared_at IS NULL`,
  active: sql<boolean>`a.cleared_at IS NULL AND a.acknowledged_at IS NULL`,
  acknowledged: sql<boolean>`a.cleared_at IS NULL AND a.acknowledged_at IS NOT NULL`,
  cleared: sql<boolean>`a.cleared_at IS NOT NULL`,
} as const

function conditionOf({ domainKey, ...filter }: AlarmFilter): Sql<boolean> {
  const where = [sql<boolean>`a.domain_key = ${domainKey}`]
  const { status, severities, ruleId, clientId, groupId, tag, assigneeId, from, to, text, isSilenced } = filter
  if (status !== undefined) where.push(IN_STATUS[status])
  if (severities !== undefined) where.push(sql<boolean>`a.severity = ANY (${[...severities]}::text[])`)
  if (ruleId !== undefined) where.push(sql<boolean>`a.rule_id = ${ruleId}::uuid`)
  if (clientId !== undefined) where.push(sql<boolean>`a.client_id = ${clientId}::uuid`)
  if (groupId !== undefined)
    where.push(sql<boolean>`c.parent_group_key IN (WITH RECURSIVE below (key) AS (
        SELECT g.key FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ${groupId}::uuid
        UNION SELECT g.key FROM groups g JOIN below b ON g.parent_key = b.key) SELECT key FROM below)`)
  if (tag !== undefined) where.push(sql<boolean>`c.tags @> ARRAY[${tag}::text]`)
  if (assigneeId !== undefined) where.push(sql<boolean>`a.assignee_id IS NOT DISTINCT FROM ${assigneeId}::uuid`)
  if (from !== undefined) where.push(sql<boolean>`a.last_at >= ${from}::timestamptz`)
  if (to !== undefined) where.push(sql<boolean>`a.first_at < ${to}::timestamptz`)
  if (isSilenced !== undefined)
    where.push(isSilenced ? sql<boolean>`a.silenced_until IS NOT NULL` : sql<boolean>`a.silenced_until IS NULL`)
  if (text !== undefined)
    where.push(anyOf(['a.text', 'a.rule_name', 'a.client_name', 'a.name'].map((column) => contains(column, text))))
  return allOf(where)
}

export async function listAlarms(
  db: Queryable,
  filter: AlarmFilter,
  range: PageRange,
): Promise<{ total: number; alarms: AlarmRecord[]; next: PageEnd }> {
  const where = conditionOf(filter)
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${FROM} WHERE ${where}`.execute(
    db,
  )
  const { rows, next } = await readPage<AlarmRecord>(
    db,
    { columns: COLUMNS, from: FROM, where, keyset: NEWEST_FIRST },
    range,
  )
  return { total: counted[0]?.total ?? 0, alarms: rows, next }
}

export async function findAlarms(db: Queryable, domainKey: number, ids: readonly string[]): Promise<AlarmRecord[]> {
  const { rows } = await sql<AlarmRecord>`SELECT ${COLUMNS} FROM ${FROM}
    WHERE a.domain_key = ${domainKey} AND a.id = ANY (${[...ids]}::uuid[]) ORDER BY a.first_at DESC, a.key DESC`.execute(
    db,
  )
  return rows
}

/** The alarms, locked until the transaction ends. */
export async function lockAlarms(tx: Transaction, domainKey: number, ids: readonly string[]): Promise<AlarmRecord[]> {
  const { rows } = await sql<AlarmRecord>`SELECT ${COLUMNS} FROM ${FROM}
    WHERE a.domain_key = ${domainKey} AND a.id = ANY (${[...ids]}::uuid[]) ORDER BY a.key FOR NO KEY UPDATE OF a`.execute(
    tx,
  )
  return rows
}

const OLDEST_FIRST = new Keyset([{ by: sql`t.key`, type: 'number' }])

export async function listHistory(
  db: Queryable,
  alarmKey: number,
  range: PageRange,
): Promise<{ total: number; changes: AlarmChange[]; next: PageEnd }> {
  const where = sql<boolean>`t.alarm_key = ${alarmKey}`
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM alarm_history t WHERE ${where}`.execute(db)
  const columns = sql`t.at, t.change, t.actor_id AS "actorId", ${nameOf('t.actor_id')} AS "actorName", t.assignee_id AS "assigneeId",
    ${nameOf('t.assignee_id')} AS "assigneeName", t.comment`
  const source = { columns, from: sql`alarm_history t`, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<AlarmChange>(db, source, range)
  return { total: counted[0]?.total ?? 0, changes: rows, next }
}

export type AlarmFields = {
  key: number
  isAcknowledged: boolean
  isCleared: boolean
  assigneeId: string | null
  /** Comments that are added. */
  comments: number
}

/** Stores what a user changed. `actorId`: who acknowledges and clears. */
export async function updateAlarms(tx: Transaction, alarms: readonly AlarmFields[], actorId: string): Promise<void> {
  await sql`UPDATE alarms a SET
      acknowledged_at = CASE WHEN n.acknowledged THEN coalesce(a.acknowledged_at, now()) END,
      acknowledged_by = CASE WHEN n.acknowledged THEN coalesce(a.acknowledged_by, ${actorId}::uuid) END,
      cleared_by = CASE WHEN n.cleared AND a.cleared_at IS NULL THEN ${actorId}::uuid ELSE a.cleared_by END,
      cleared_at = CASE WHEN n.cleared THEN coalesce(a.cleared_at, now()) ELSE a.cleared_at END,
      assignee_id = n.assignee, comments = a.comments + n.comments, updated_at = now()
    FROM unnest(${alarms.map(({ key }) => key)}::bigint[], ${alarms.map((one) => one.isAcknowledged)}::boolean[],
      ${alarms.map((one) => one.isCleared)}::boolean[], ${alarms.map((one) => one.assigneeId)}::uuid[],
      ${alarms.map((one) => one.comments)}::int[]) AS n (key, acknowledged, cleared, assignee, comments)
    WHERE a.key = n.key`.execute(tx)
}

export type NewChange = {
  alarmKey: number
  change: AlarmChange['change']
  assigneeId: string | null
  comment: string
}

/** `actorId` null: the rule. */
export async function insertHistory(
  tx: Transaction,
  changes: readonly NewChange[],
  actorId: string | null,
): Promise<void> {
  if (changes.length === 0) return
  await sql`INSERT INTO alarm_history (alarm_key, change, actor_id, assignee_id, comment)
    SELECT n.key, n.change, ${actorId}::uuid, n.assignee, n.comment
      FROM unnest(${changes.map(({ alarmKey }) => alarmKey)}::bigint[], ${changes.map(({ change }) => change)}::text[],
        ${changes.map(({ assigneeId }) => assigneeId)}::uuid[], ${changes.map(({ comment }) => comment)}::text[])
        WITH ORDINALITY AS n (key, change, assignee, comment, place) ORDER BY n.place`.execute(tx)
}

export async function deleteAlarm(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM alarms WHERE key = ${key}`.execute(tx)
}

export async function countOpenAlarms(db: Queryable, domainKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM alarms WHERE domain_key = ${domainKey} AND cleared_at IS NULL`.execute(db)
  return rows[0]?.total ?? 0
}

/**
 * Deletes alarms that were cleared longer ago than their domains keep them, at most `limit`. Returns their number. `days`: of the domains that do not
 * say it.
 */
export async function removeOldAlarms(db: Queryable, days: number, limit: number): Promise<number> {
  // Domain by domain: the oldest of all may belong to domains that keep them for longer, and would be read each time.
  const { rows } = await sql`DELETE FROM alarms WHERE key IN (
    SELECT o.key FROM domains d CROSS JOIN LATERAL (SELECT a.key FROM alarms a WHERE a.domain_key = d.key
        AND a.cleared_at < now() - make_interval(days => coalesce(d.alarm_retention_days, ${days}::int))
      ORDER BY a.cleared_at LIMIT ${limit} FOR UPDATE SKIP LOCKED) o LIMIT ${limit}) RETURNING key`.execute(db)
  return rows.length
}

/** Whose alarm it is: there is one open alarm for each. */
export type AlarmSeries = {
  ruleId: string
  clientId: string | null
  channelId: string | null
  subtopic: string
  name: string
}

/** A time during which the condition held for a series, or the part of it that one step of the rules saw. */
export type Episode = AlarmSeries & {
  /** False: it began before. */
  isNew: boolean
  ruleName: string
  clientName: string
  channelName: string
  unit: string
  severity: Severity
  value: unknown
  text: string
  condition: string
  cause: string
  /** How often the condition was found to hold in this part. */
  count: number
  firstAtSeconds: number
  lastAtSeconds: number
  clearedAtSeconds: number | null
  /** Null: its contacts are notified. */
  silence: AlarmSilence | null
}

/** The maintenance in which an alarm is raised. `id` null: it was raised before, and its window is not known. */
export type AlarmSilence = { id: string | null; name: string; untilMs: number }

export type ToldAlarm = Pick<AlarmRecord, 'key' | 'id' | 'ruleId' | 'ruleName' | 'clientId' | 'severity' | 'name'> & {
  isSilenced: boolean
}

const TOLD = sql`a.key, a.id, a.rule_id AS "ruleId", a.rule_name AS "ruleName", a.client_id AS "clientId", a.severity, a.name,
  a.silenced_until IS NOT NULL AS "isSilenced"`

const digestOfSeries = ({ clientId, channelId, subtopic, name }: AlarmSeries): string =>
  `\\x${digestOfParts([clientId, channelId, subtopic, name]).toString('hex')}`

const given = (episodes: readonly Episode[]): Sql =>
  sql`jsonb_to_recordset(${JSON.stringify(
    episodes.map(({ silence, ...episode }, place) => ({
      ...episode,
      digest: digestOfSeries(episode),
      maintenanceId: silence?.id,
      maintenanceName: silence?.name ?? '',
      silencedUntilSeconds: silence === null ? null : silence.untilMs / 1000,
      place,
    })),
  )}::jsonb) AS n ("ruleId" uuid, "ruleName" text,
    "clientId" uuid, "clientName" text, "channelId" uuid, "channelName" text, subtopic text, name text, digest bytea, unit text, severity text, value jsonb,
    text text, condition text, cause text, count bigint, "firstAtSeconds" float8, "lastAtSeconds" float8, "clearedAtSeconds" float8, "maintenanceId" uuid,
    "maintenanceName" text, "silencedUntilSeconds" float8, place int)`

/** Adds to the open alarms of these series, and clears those that ended. Returns the places of the episodes that have one. */
export async function continueAlarms(
  tx: Transaction,
  episodes: readonly Episode[],
): Promise<(ToldAlarm & { place: number; isCleared: boolean })[]> {
  const { rows } = await sql<ToldAlarm & { place: number; isCleared: boolean }>`
    UPDATE alarms a SET count = a.count + n.count, updated_at = now(),
      last_at = CASE WHEN n.count > 0 THEN greatest(a.last_at, to_timestamp(n."lastAtSeconds")) ELSE a.last_at END,
      value = CASE WHEN n.count > 0 THEN n.value ELSE a.value END, severity = CASE WHEN n.count > 0 THEN n.severity ELSE a.severity END,
      cleared_at = to_timestamp(n."clearedAtSeconds")
    FROM ${given(episodes)}
    WHERE a.cleared_at IS NULL AND a.rule_id = n."ruleId" AND a.series_digest = n.digest
    RETURNING n.place, n."clearedAtSeconds" IS NOT NULL AS "isCleared", ${TOLD}`.execute(tx)
  return rows
}

/** Inserts alarms; one of a series that has an open alarm adds to it. */
export async function insertAlarms(
  tx: Transaction,
  domainKey: number,
  episodes: readonly (Episode & { id: string })[],
): Promise<(ToldAlarm & { isInserted: boolean; isCleared: boolean })[]> {
  const ids = episodes.map(({ id }) => id)
  const { rows } = await sql<ToldAlarm & { isInserted: boolean; isCleared: boolean }>`
    INSERT INTO alarms AS a (id, domain_key, rule_id, rule_name, client_id, client_name, channel_id, channel_name, subtopic, name, series_digest, unit, severity,
        value, text, condition, cause, count, first_at, last_at, cleared_at, maintenance_id, maintenance_name, silenced_until)
      SELECT (${ids}::uuid[])[n.place + 1], ${domainKey}, n."ruleId", n."ruleName", n."clientId", n."clientName", n."channelId", n."channelName",
        n.subtopic, n.name, n.digest, n.unit, n.severity, n.value, n.text, n.condition, n.cause, n.count, to_timestamp(n."firstAtSeconds"),
        to_timestamp(n."lastAtSeconds"), to_timestamp(n."clearedAtSeconds"), n."maintenanceId", n."maintenanceName",
        to_timestamp(n."silencedUntilSeconds") FROM ${given(episodes)} ORDER BY n.place
    ON CONFLICT (rule_id, series_digest) WHERE cleared_at IS NULL DO UPDATE SET count = a.count + excluded.count,
      last_at = greatest(a.last_at, excluded.last_at), value = excluded.value, severity = excluded.severity, updated_at = now()
    RETURNING ${TOLD}, a.id = ANY (${ids}::uuid[]) AS "isInserted", a.cleared_at IS NOT NULL AS "isCleared"`.execute(tx)
  return rows
}

export type SilencedAlarm = ToldAlarm & { place: number; isAcknowledged: boolean }

/**
 * The open alarms of these series are no longer silenced, or by another window. Returns those that were silenced.
 */
export async function resilenceAlarms(
  tx: Transaction,
  series: readonly (AlarmSeries & { silence: AlarmSilence | null })[],
): Promise<SilencedAlarm[]> {
  if (series.length === 0) return []
  const { rows } =
    await sql<SilencedAlarm>`UPDATE alarms a SET silenced_until = to_timestamp(n.until), updated_at = now(),
      maintenance_id = coalesce(n.window_id, a.maintenance_id), maintenance_name = coalesce(n.window_name, a.maintenance_name)
    FROM unnest(${series.map(({ ruleId }) => ruleId)}::uuid[], ${series.map(digestOfSeries)}::bytea[],
      ${series.map(({ silence }) => (silence === null ? null : silence.untilMs / 1000))}::float8[], ${series.map(({ silence }) => silence?.id ?? null)}::uuid[],
      ${series.map(({ silence }) => silence?.name ?? null)}::text[]) WITH ORDINALITY AS n (rule_id, digest, until, window_id, window_name, place)
    WHERE a.cleared_at IS NULL AND a.silenced_until IS NOT NULL AND a.rule_id = n.rule_id AND a.series_digest = n.digest
    RETURNING (n.place - 1)::int AS place, a.acknowledged_at IS NOT NULL AS "isAcknowledged", ${TOLD}`.execute(tx)
  return rows
}

/**
 * Counts escalations of the open alarms of these series that nobody has acknowledged, and returns those, by their places. Name each series once.
 */
export async function escalateAlarms(
  tx: Transaction,
  series: readonly (AlarmSeries & { count: number })[],
): Promise<(ToldAlarm & { place: number })[]> {
  if (series.length === 0) return []
  const { rows } = await sql<ToldAlarm & { place: number }>`
    UPDATE alarms a SET escalations = a.escalations + n.count, updated_at = now()
    FROM unnest(${series.map(({ ruleId }) => ruleId)}::uuid[], ${series.map(digestOfSeries)}::bytea[],
      ${series.map(({ count }) => count)}::int[]) WITH ORDINALITY AS n (rule_id, digest, count, place)
    WHERE a.cleared_at IS NULL AND a.acknowledged_at IS NULL AND a.rule_id = n.rule_id AND a.series_digest = n.digest
    RETURNING (n.place - 1)::int AS place, ${TOLD}`.execute(tx)
  return rows.toSorted((one, other) => one.place - other.place)
}

export async function findUserKey(db: Queryable, id: string): Promise<number | undefined> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM users WHERE id = ${id}::uuid`.execute(db)
  return rows[0]?.key
}
