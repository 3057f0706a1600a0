/** SQL of rules: what they are, and where they stand. */
import { allOf, contains } from '#api/identity/index.ts'
import { comparePlaces, nextPlace } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import { Keyset, hasOlderNodes, readPage, refusing } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { RuleDefinition } from './schema.ts'
import { nextTickOf } from './timetable.ts'

export type RuleFields = { name: string; description: string; definition: RuleDefinition }

/** A rule with the fields that its evaluation needs. */
export type StoredRule = RuleFields & {
  key: number
  id: string
  domainKey: number
  status: 'enabled' | 'disabled'
  userKey: number
  isBehind: boolean
  isPaused: boolean
  /** It is about state, and has not looked at all clients since it began. */
  isLooking: boolean
  /** Nothing before it is for the rule. */
  place: Place
}

export type Named = { type: 'channel' | 'client' | 'group' | 'task'; id: string; name: string }

/** A rule with the fields that users see. Its place is where it stands. */
export type RuleRecord = StoredRule & {
  named: Named[]
  actsAs: string | null
  behindSince: string | null
  paused: { at: string; reason: string } | null
  lastError: { at: string; reason: string; count: number } | null
  seen: number
  matched: number
  unmatchable: number
  raised: number
  acted: number
  openAlarms: number
  lastMatchAt: string | null
  nextTickAt: string | null
  missedTicks: number
  createdBy: string
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}

const CORE = sql`r.key, r.id, r.domain_key AS "domainKey", r.name, r.description, r.status, r.definition, r.user_key AS "userKey",
  r.is_behind AS "isBehind", r.paused_at IS NOT NULL AS "isPaused",
  r.look_after IS NOT NULL AS "isLooking"`
const OWN_PLACE = sql`r.xid::text AS xid, r.seq, r.message`

const namesOf = (type: Named['type'], table: string, ids: Sql): Sql =>
  sql`SELECT ${type}::text AS type, e.id, e.name FROM ${sql.table(table)} e WHERE e.domain_key = r.domain_key
    AND e.id IN (SELECT (jsonb_array_elements_text(${ids}))::uuid)`

const listed = (field: string) => sql`coalesce(r.definition -> 'source' -> ${field}::text, '[]')`
const inActions = (field: string) =>
  sql`jsonb_path_query_array(coalesce(r.definition -> 'own', r.definition), ${`$.actions[*].${field}`}::jsonpath)`

const NAMED = sql`(SELECT coalesce(json_agg(n), '[]') FROM (
    ${namesOf('channel', 'channels', sql`${listed('channels')} || ${inActions('channel')}`)}
    UNION ALL ${namesOf('client', 'clients', listed('clients'))}
    UNION ALL ${namesOf('group', 'groups', listed('groups'))}
    UNION ALL ${namesOf('task', 'tasks', sql`${inActions('task')} || jsonb_build_array(r.definition -> 'condition_task')`)}) n)`

// With the others of its domain, a rule stands where these stand, or waits there for its own place.
const SHOWN = sql`${CORE}, ${NAMED} AS named, (SELECT u.id FROM users u WHERE u.key = r.user_key) AS "actsAs",
  p.xid::text AS xid, p.seq, p.message, CASE WHEN r.status <> 'enabled' THEN NULL WHEN r.definition ? 'condition_task' THEN (SELECT c.since FROM rule_calls c WHERE c.rule_key = r.key)
    WHEN NOT r.is_behind THEN d.behind_since END AS "behindSince",
  CASE WHEN r.paused_at IS NOT NULL THEN json_build_object('at', r.paused_at, 'reason', r.paused_reason) END AS paused,
  CASE WHEN r.error_at IS NOT NULL THEN json_build_object('at', r.error_at, 'reason', r.error_reason, 'count', r.error_count) END AS "lastError",
  r.seen, r.matched, r.unmatchable, r.raised, r.acted, r.last_match_at AS "lastMatchAt", r.next_tick_at AS "nextTickAt",
  r.missed_ticks AS "missedTicks",
  (SELECT count(*) FROM alarms a WHERE a.rule_id = r.id AND a.cleared_at IS NULL) AS "openAlarms",
  r.created_by AS "createdBy", r.created_at AS "createdAt", r.updated_by AS "updatedBy", r.updated_at AS "updatedAt"`
const FROM = sql`rules r JOIN rule_domains d ON d.domain_key = r.domain_key
  CROSS JOIN LATERAL (SELECT x.* FROM (VALUES (r.xid, r.seq, r.message), (d.xid, d.seq, d.message)) AS x (xid, seq, message)
    WHERE (x.xid, x.seq, x.message) = (r.xid, r.seq, r.message) OR NOT r.is_behind AND r.status = 'enabled'
    ORDER BY x.xid DESC, x.seq DESC, x.message DESC LIMIT 1) p`

type Placed = { xid: string; seq: number; message: number }
type Row<T extends { place: Place }> = Omit<T, 'place'> & Placed

function fromRow<T extends { place: Place }>({ xid, seq, message, ...row }: Row<T>): T {
  return { ...row, place: { xid: BigInt(xid), seq, message } } as unknown as T
}

const ruleFromRow = <T extends StoredRule>(row: Row<T>): T => {
  const rule = fromRow<T>(row)
  return { ...rule, definition: fromStored(rule.definition) }
}

/** A build that does not know the source evaluates messages, and its condition never holds. */
const NEVER = 'false'

/** What a build that does not know the source would not compile. */
type Own = Pick<RuleDefinition, 'condition' | 'clear_when' | 'actions'>

function toStored(definition: RuleDefinition): string {
  const { condition, clear_when: clearWhen, actions, ...rest } = definition
  // A build that does not know functions evaluates a condition that never holds.
  if (rest.condition_task !== undefined) return JSON.stringify({ ...definition, condition: NEVER })
  if (rest.source.type === 'messages') return JSON.stringify(definition)
  if (rest.source.type === 'silence')
    return JSON.stringify({ ...definition, condition: NEVER, own_condition: condition })
  const own: Own = {
    condition,
    ...(clearWhen === undefined ? {} : { clear_when: clearWhen }),
    ...(actions === undefined ? {} : { actions }),
  }
  return JSON.stringify({ ...rest, condition: NEVER, actions: [], own })
}

function fromStored(definition: RuleDefinition & { own_condition?: string; own?: Own }): RuleDefinition {
  const { own_condition: condition, own, ...rest } = definition
  if (rest.condition_task !== undefined) return { ...rest, condition: '' }
  if (own === undefined) return condition === undefined ? rest : { ...rest, condition }
  const { actions: _none, ...shape } = rest
  return { ...shape, ...own }
}

/** A rule about state begins with a look at all clients. */
const lookOf = ({ source }: RuleDefinition): Sql => (source.type === 'state' ? sql`0::bigint` : sql`NULL::bigint`)
const LOOKS_AGAIN = sql`look_after = CASE WHEN definition -> 'source' ->> 'type' = 'state' THEN 0 END`

/** A schedule begins with its next time. */
const ticksOf = (definition: RuleDefinition): Sql =>
  sql`next_tick_at = ${nextTickOf(definition, new Date())?.toISOString() ?? null}::timestamptz, tick_after = NULL`
const TICKS_KEPT = sql`next_tick_at = next_tick_at`

export const placeValues = ({ xid, seq, message }: Place): Sql =>
  sql`${xid.toString()}::xid8, ${seq}::bigint, ${message}::integer`

const CONFLICTS = { rules_name_key: () => takenField('/name', 'a rule with this name exists in the domain') }

export async function countRules(db: Queryable, domainKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM rules WHERE domain_key = ${domainKey}`.execute(db)
  return rows[0]?.total ?? 0
}

export type RuleDomain = { domainKey: number; version: number; place: Place }

/** Where the rules of the domain stand, locked until the transaction ends. Undefined: it never had a rule. */
export async function lockDomain(tx: Transaction, domainKey: number): Promise<RuleDomain | undefined> {
  const { rows } = await sql<Row<RuleDomain>>`SELECT domain_key AS "domainKey", version, xid::text AS xid, seq, message
    FROM rule_domains WHERE domain_key = ${domainKey} FOR NO KEY UPDATE`.execute(tx)
  return rows[0] === undefined ? undefined : fromRow<RuleDomain>(rows[0])
}

/** Processes read the rules of the domain again. */
export async function noteChange(tx: Transaction, domainKey: number): Promise<void> {
  await sql`UPDATE rule_domains SET version = version + 1 WHERE domain_key = ${domainKey}`.execute(tx)
}

/**
 * The place of a rule that begins in this transaction, at `from` or with what is sent from now on, and whether the others of its domain have passed
 * it. Without others these begin where the rule does.
 */
export async function beginAt(
  tx: Transaction,
  domainKey: number,
  from: Place | undefined,
): Promise<{ place: Place; isBehind: boolean }> {
  const place = from ?? (await nextPlace(tx))
  await sql`INSERT INTO rule_domains (domain_key, xid, seq, message) VALUES (${domainKey}, ${placeValues(place)})
    ON CONFLICT ON CONSTRAINT rule_domains_pkey DO NOTHING`.execute(tx)
  const domain = await lockDomain(tx, domainKey)
  if (domain === undefined) throw new Error('the rules of the domain have no place')
  const { rows } =
    await sql`SELECT FROM rules WHERE domain_key = ${domainKey} AND status = 'enabled' AND NOT is_behind LIMIT 1`.execute(
      tx,
    )
  if (rows.length > 0) return { place, isBehind: comparePlaces(place, domain.place) < 0 }
  await sql`UPDATE rule_domains SET (xid, seq, message) = ROW (${placeValues(place)}), behind_since = NULL
    WHERE domain_key = ${domainKey}`.execute(tx)
  return { place, isBehind: false }
}

/** Returns its key. */
export async function insertRule(
  tx: Transaction,
  row: RuleFields & {
    id: string
    domainKey: number
    status: string
    userKey: number
    createdBy: string
    place: Place
    isBehind: boolean
  },
): Promise<number> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<{
      key: number
    }>`INSERT INTO rules (id, domain_key, name, description, status, definition, user_key, created_by, is_behind, look_after, next_tick_at, xid, seq, message)
      VALUES (${row.id}, ${row.domainKey}, ${row.name}, ${row.description}, ${row.status}, ${toStored(row.definition)}::jsonb, ${row.userKey},
        ${row.createdBy}, ${row.isBehind}, ${lookOf(row.definition)}, ${nextTickOf(row.definition, new Date())?.toISOString() ?? null}::timestamptz, ${placeValues(row.place)}) RETURNING key`.execute(
      tx,
    ),
  )
  const [inserted] = rows
  if (inserted === undefined) throw new Error('the rule was not inserted')
  return inserted.key
}

const UNPAUSED = sql`paused_at = NULL, paused_reason = NULL, pause_kind = NULL, error_at = NULL, error_reason = NULL, error_count = 0`

/** A change ends a pause, and the count of errors begins again. */
export async function updateRule(
  tx: Transaction,
  key: number,
  row: RuleFields & { userKey: number; updatedBy: string; isRescheduled: boolean },
): Promise<void> {
  await refusing(
    CONFLICTS,
    sql`UPDATE rules SET name = ${row.name}, description = ${row.description}, definition = ${toStored(row.definition)}::jsonb,
      user_key = ${row.userKey}, updated_by = ${row.updatedBy}, updated_at = now(), look_after = ${lookOf(row.definition)}, ${row.isRescheduled ? ticksOf(row.definition) : TICKS_KEPT}, ${UNPAUSED} WHERE key = ${key}`.execute(
      tx,
    ),
  )
}

/** What waits for `for` waits no longer: it begins again with the next message. A cooldown goes on. */
export async function forgetPending(tx: Transaction, key: number): Promise<void> {
  const isPending = sql`rule_key = ${key} AND state -> 'state' ->> 'status' = 'pending'`
  await sql`UPDATE rule_states SET due_at = NULL,
      state = jsonb_build_object('state', jsonb_build_object('status', 'idle', 'quietUntilMs', state -> 'state' -> 'quietUntilMs'))
    WHERE ${isPending} AND state #> '{state,quietUntilMs}' IS NOT NULL`.execute(tx)
  await sql`DELETE FROM rule_states WHERE ${isPending}`.execute(tx)
}

/** What waits for time is looked at again: the time may be another one. */
export async function revisitWaits(tx: Transaction, key: number): Promise<void> {
  await sql`UPDATE rule_states SET due_at = now() WHERE rule_key = ${key} AND due_at IS NOT NULL`.execute(tx)
}

/** What is active is looked at: whether its alarm is escalated, or is no longer. */
export async function revisitEscalations(tx: Transaction, key: number): Promise<void> {
  await sql`UPDATE rule_states SET escalate_at = now() WHERE rule_key = ${key} AND state -> 'state' ->> 'status' = 'active'`.execute(
    tx,
  )
}

/** Nothing is escalated, until it is looked at again. */
export async function stopEscalations(tx: Transaction, key: number): Promise<void> {
  await sql`UPDATE rule_states SET escalate_at = NULL WHERE rule_key = ${key} AND escalate_at IS NOT NULL`.execute(tx)
}

/** Neither `for` nor `clear_for` goes on: it is not known what the messages were that the rule did not read. */
export async function forgetWaits(tx: Transaction, key: number): Promise<void> {
  await forgetPending(tx, key)
  await sql`UPDATE rule_states SET due_at = NULL, state = state #- '{state,clearingSinceMs}' #- '{state,clearCause}'
    WHERE rule_key = ${key} AND due_at IS NOT NULL`.execute(tx)
}

/** What its function was asked does not count: it is asked again. */
export async function forgetCall(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM rule_calls WHERE rule_key = ${key}`.execute(tx)
}

/** From now on it goes on by itself. */
export async function leaveOthers(tx: Transaction, key: number, place: Place): Promise<void> {
  await sql`UPDATE rules SET is_behind = true, (xid, seq, message) = ROW (${placeValues(place)}) WHERE key = ${key}`.execute(
    tx,
  )
}

/** Nothing of another source goes on. */
export async function forgetAll(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM rule_states WHERE rule_key = ${key}`.execute(tx)
}

export async function enableRule(
  tx: Transaction,
  key: number,
  at: { place: Place; isBehind: boolean; userKey: number; updatedBy: string; definition: RuleDefinition },
): Promise<void> {
  await sql`UPDATE rules SET status = 'enabled', is_behind = ${at.isBehind}, (xid, seq, message) = ROW (${placeValues(at.place)}),
    user_key = ${at.userKey}, updated_by = ${at.updatedBy}, updated_at = now(), ${LOOKS_AGAIN}, ${ticksOf(at.definition)}, ${UNPAUSED} WHERE key = ${key}`.execute(
    tx,
  )
}

/** Ends a pause. The rule goes on at its place. */
export async function resumeRule(
  tx: Transaction,
  key: number,
  by: { userKey: number; updatedBy: string },
): Promise<void> {
  await sql`UPDATE rules SET user_key = ${by.userKey}, updated_by = ${by.updatedBy}, updated_at = now(), ${LOOKS_AGAIN}, ${UNPAUSED}
    WHERE key = ${key}`.execute(tx)
}

/** `place`: where the rule stands. */
export async function disableRule(tx: Transaction, key: number, place: Place, updatedBy: string): Promise<void> {
  await sql`UPDATE rules SET status = 'disabled', is_behind = false, (xid, seq, message) = ROW (${placeValues(place)}), updated_by = ${updatedBy},
    updated_at = now() WHERE key = ${key}`.execute(tx)
}

export async function deleteRule(tx: Transaction, key: number): Promise<void> {
  await sql`DELETE FROM rules WHERE key = ${key}`.execute(tx)
}

/** Clears the open alarms of a rule that is deleted: nothing else would. */
export async function clearAlarmsOf(tx: Transaction, ruleId: string, userId: string): Promise<void> {
  await sql`WITH cleared AS (
      UPDATE alarms SET cleared_at = now(), cleared_by = ${userId}::uuid, updated_at = now()
       WHERE rule_id = ${ruleId}::uuid AND cleared_at IS NULL RETURNING key)
    INSERT INTO alarm_history (alarm_key, change, actor_id) SELECT key, 'clear', ${userId}::uuid FROM cleared`.execute(
    tx,
  )
}

/** Alarms show the name of their rule: it is stored with them, because a rule may be deleted. */
export async function renameInAlarms(tx: Transaction, ruleId: string, name: string): Promise<void> {
  await sql`UPDATE alarms SET rule_name = ${name} WHERE rule_id = ${ruleId}::uuid AND rule_name <> ${name}`.execute(tx)
}

/** The rule, locked until the transaction ends. Lock its domain first. */
export async function lockRule(tx: Transaction, domainKey: number, id: string): Promise<StoredRule | undefined> {
  const { rows } = await sql<Row<StoredRule>>`SELECT ${CORE}, ${OWN_PLACE} FROM rules r
    WHERE r.domain_key = ${domainKey} AND r.id = ${id}::uuid FOR NO KEY UPDATE`.execute(tx)
  return rows[0] === undefined ? undefined : ruleFromRow<StoredRule>(rows[0])
}

/** Rules that are read at once: the rows that have arrived are parsed in one turn of the event loop. */
const MAX_LISTED = 500

/** The rules of a domain that are evaluated, paused ones too. Lock the domain first. */
export async function listEnabled(tx: Transaction, domainKey: number): Promise<StoredRule[]> {
  const found: StoredRule[] = []
  for (;;) {
    const { rows } = await sql<Row<StoredRule>>`SELECT ${CORE}, ${OWN_PLACE} FROM rules r
      WHERE r.domain_key = ${domainKey} AND r.status = 'enabled' AND r.key > ${found.at(-1)?.key ?? 0} ORDER BY r.key LIMIT ${MAX_LISTED}`.execute(
      tx,
    )
    for (const row of rows) found.push(ruleFromRow<StoredRule>(row))
    if (rows.length < MAX_LISTED) return found
  }
}

/** Undefined: it was deleted or disabled. */
export async function findEnabled(db: Queryable, key: number): Promise<StoredRule | undefined> {
  const { rows } = await sql<
    Row<StoredRule>
  >`SELECT ${CORE}, ${OWN_PLACE} FROM rules r WHERE r.key = ${key} AND r.status = 'enabled'`.execute(db)
  return rows[0] === undefined ? undefined : ruleFromRow<StoredRule>(rows[0])
}

export async function findRule(db: Queryable, domainKey: number, id: string): Promise<RuleRecord | undefined> {
  const { rows } = await sql<Row<RuleRecord>>`SELECT ${SHOWN} FROM ${FROM}
    WHERE r.domain_key = ${domainKey} AND r.id = ${id}::uuid`.execute(db)
  return rows[0] === undefined ? undefined : ruleFromRow<RuleRecord>(rows[0])
}

const OLDEST_FIRST = new Keyset([
  { by: sql`r.created_at`, type: 'time' },
  { by: sql`r.key`, type: 'number' },
])

export async function listRules(
  db: Queryable,
  {
    domainKey,
    name,
    status,
    channel,
    ...range
  }: PageRange & {
    domainKey: number
    name: string | undefined
    status: 'enabled' | 'disabled' | 'all'
    channel: string | undefined
  },
): Promise<{ total: number; rules: RuleRecord[]; next: PageEnd }> {
  const where = allOf([
    sql<boolean>`r.domain_key = ${domainKey}`,
    ...(name === undefined ? [] : [contains('r.name', name)]),
    ...(status === 'all' ? [] : [sql<boolean>`r.status = ${status}`]),
    ...(channel === undefined
      ? []
      : [sql<boolean>`r.definition -> 'source' -> 'channels' @> ${JSON.stringify([channel])}::jsonb`]),
  ])
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM rules r WHERE ${where}`.execute(
    db,
  )
  const source = { columns: SHOWN, from: FROM, where, keyset: OLDEST_FIRST }
  const { rows, next } = await readPage<Row<RuleRecord>>(db, source, range)
  return { total: counted[0]?.total ?? 0, rules: rows.map((row) => ruleFromRow<RuleRecord>(row)), next }
}

/** Whether a process is alive that does not know the rules that came with this migration. */
export async function hasNodesBefore(db: Queryable, migration: string): Promise<boolean> {
  const { rows } = await sql<{ found: boolean }>`SELECT ${hasOlderNodes(migration)} AS found`.execute(db)
  return rows[0]?.found === true
}

/** Clients and groups of the domain among these ids. */
export async function findKnown(
  db: Queryable,
  domainKey: number,
  { clients, groups, tasks }: { clients: readonly string[]; groups: readonly string[]; tasks: readonly string[] },
): Promise<ReadonlySet<string>> {
  const part = (table: string, among: readonly string[]) =>
    sql`SELECT id FROM ${sql.table(table)} WHERE domain_key = ${domainKey} AND id = ANY (${[...among]}::uuid[])`
  const { rows } = await sql<{ id: string }>`${part('clients', clients)} UNION ALL ${part('groups', groups)}
    UNION ALL ${part('tasks', tasks)}`.execute(db)
  return new Set(rows.map(({ id }) => id))
}
