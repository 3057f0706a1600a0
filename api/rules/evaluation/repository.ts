/** SQL of the evaluation of rules: places, states, counts, and what the rules publish. */
import type { Place } from '#api/consumers/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { jsonArray } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { digestOfParts } from '../digest.ts'
import type { RuleFilter, RuleState } from '../engine/index.ts'
import { noteChange, placeValues } from '../repository.ts'
import type { Escalation, RuleCounts, LastSample } from './evaluation.ts'
import type { Series } from './samples.ts'

export type StepDomain = {
  domainKey: number
  domainId: string
  version: number
  place: Place
  isBehind: boolean
  /** The process that evaluated its rules last. */
  node: string
}

type Placed = { xid: string; seq: number; message: number }

/** Locks where the rules of the domain stand, and takes them over if their process is gone. Undefined: they are locked, or another process evaluates them. */
export async function takeDomain(tx: Transaction, domainKey: number, node: string): Promise<StepDomain | undefined> {
  const { rows } = await sql<Omit<StepDomain, 'place'> & Placed>`
    SELECT r.domain_key AS "domainKey", d.id AS "domainId", r.version, r.xid::text AS xid, r.seq, r.message, r.behind_since IS NOT NULL AS "isBehind", r.node
      FROM rule_domains r JOIN domains d ON d.key = r.domain_key
     WHERE r.domain_key = ${domainKey} AND (r.node = ${node} OR r.leased_until < now()) AND d.status = 'enabled'
       FOR NO KEY UPDATE OF r SKIP LOCKED`.execute(tx)
  const [row] = rows
  if (row === undefined) return undefined
  const { xid, seq, message, ...rest } = row
  return { ...rest, place: { xid: BigInt(xid), seq, message } }
}

/** Whether rules that could not be taken are left alone for longer than a short lock: another process evaluates them, or the domain is disabled. */
export async function isElsewhere(db: Queryable, domainKey: number, node: string): Promise<boolean> {
  const { rows } = await sql`SELECT FROM rule_domains r JOIN domains d ON d.key = r.domain_key
    WHERE r.domain_key = ${domainKey} AND (r.node = ${node} OR r.leased_until < now()) AND d.status = 'enabled'`.execute(
    db,
  )
  return rows.length === 0
}

/** Stores where the rules of the domain stand. Other processes leave the domain to this one for a while, which begins now: a step may take long. */
export async function storePlace(
  tx: Transaction,
  domainKey: number,
  {
    place,
    behindSinceSeconds,
    node,
    leaseSeconds,
  }: {
    place: Place
    behindSinceSeconds: number | null
    node: string
    leaseSeconds: number
  },
): Promise<void> {
  await sql`UPDATE rule_domains SET (xid, seq, message) = ROW (${placeValues(place)}), behind_since = to_timestamp(${behindSinceSeconds}::float8),
    node = ${node}, leased_until = clock_timestamp() + make_interval(secs => ${leaseSeconds}) WHERE domain_key = ${domainKey}`.execute(
    tx,
  )
}

/** This process goes on to evaluate the domain, also while no message comes. */
export async function holdDomain(
  tx: Transaction,
  domainKey: number,
  { node, leaseSeconds }: { node: string; leaseSeconds: number },
): Promise<void> {
  await sql`UPDATE rule_domains SET node = ${node}, leased_until = clock_timestamp() + make_interval(secs => ${leaseSeconds})
    WHERE domain_key = ${domainKey}`.execute(tx)
}

/** Holds these domains for longer, and returns those that this process has and that are not locked. */
export async function renewLeases(
  db: Queryable,
  domainKeys: readonly number[],
  { node, leaseSeconds }: { node: string; leaseSeconds: number },
): Promise<number[]> {
  const { rows } = await sql<{
    key: number
  }>`UPDATE rule_domains SET leased_until = now() + make_interval(secs => ${leaseSeconds})
    WHERE domain_key IN (SELECT r.domain_key FROM rule_domains r JOIN domains d ON d.key = r.domain_key
      WHERE r.domain_key = ANY (${[...domainKeys]}::bigint[]) AND r.node = ${node} AND d.status = 'enabled' FOR NO KEY UPDATE OF r SKIP LOCKED)
    RETURNING domain_key AS key`.execute(db)
  return rows.map(({ key }) => key)
}

export async function endLeases(db: Queryable, node: string): Promise<void> {
  await sql`UPDATE rule_domains SET leased_until = '-infinity' WHERE node = ${node}`.execute(db)
}

/** PostgreSQL ends a transaction that waits for its client for too long. */
export async function keepAlive(tx: Transaction): Promise<void> {
  await sql`SELECT`.execute(tx)
}

/** Stores where a rule stands that is behind. `isBehind` false: it goes on with the others. */
export async function storeOwnPlace(tx: Transaction, ruleKey: number, place: Place, isBehind: boolean): Promise<void> {
  await sql`UPDATE rules SET (xid, seq, message) = ROW (${placeValues(place)}), is_behind = ${isBehind} WHERE key = ${ruleKey}`.execute(
    tx,
  )
}

/** Rules that a function decides for always have a place of their own. */
const DECIDED_BY_TASK = sql`definition ? 'condition_task'`

/** Where the rules of the domain stand that are behind and not paused, the furthest first. */
export async function listBehind(tx: Transaction, domainKey: number): Promise<{ key: number; place: Place }[]> {
  const { rows } = await sql<{ key: number } & Placed>`SELECT key, xid::text AS xid, seq, message FROM rules
    WHERE domain_key = ${domainKey} AND is_behind AND status = 'enabled' AND paused_at IS NULL AND NOT ${DECIDED_BY_TASK} ORDER BY rules.xid, seq, message, key`.execute(
    tx,
  )
  return rows.map(({ key, xid, seq, message }) => ({ key, place: { xid: BigInt(xid), seq, message } }))
}

/** `invalid`: it does not compile. It goes on by itself when it does, as after a lack of a right. */
export type PauseKind = 'right' | 'loop' | 'costly' | 'function' | 'invalid'

/** Pauses that end by themselves. */
const PASSING = sql`pause_kind IN ('right', 'invalid')`

/** Rules that are paused do not go on with the others of their domain: they read on from their place. */
export async function pauseRule(
  tx: Transaction,
  ruleKey: number,
  { place, kind, reason }: { place: Place; kind: PauseKind; reason: string },
): Promise<void> {
  await sql`UPDATE rules SET is_behind = true, (xid, seq, message) = ROW (${placeValues(place)}), paused_at = now(), pause_kind = ${kind},
    paused_reason = ${reason}, checked_at = now(), error_at = now(), error_reason = ${reason}, error_count = error_count + 1
    WHERE key = ${ruleKey}`.execute(tx)
}

/** Says what failed. Lock the domains of the rules first: a step locks rules in an order of its own. */
export async function countErrors(
  tx: Transaction,
  errors: readonly { ruleId: string; reason: string; count: number }[],
): Promise<void> {
  if (errors.length === 0) return
  await sql`UPDATE rules r SET error_at = now(), error_reason = n.reason, error_count = r.error_count + n.count
    FROM unnest(${errors.map(({ ruleId }) => ruleId)}::uuid[], ${errors.map(({ reason }) => reason)}::text[],
      ${errors.map(({ count }) => count)}::int[]) AS n (id, reason, count) WHERE r.id = n.id`.execute(tx)
}

export async function addCounts(tx: Transaction, counts: ReadonlyMap<number, RuleCounts>): Promise<void> {
  const given = [...counts].filter(([, { seen, raised, acted }]) => seen + raised + acted > 0)
  if (given.length === 0) return
  const of = (name: keyof RuleCounts) => given.map(([, one]) => one[name])
  await sql`UPDATE rules r SET seen = r.seen + n.seen, matched = r.matched + n.matched, unmatchable = r.unmatchable + n.unmatchable,
      raised = r.raised + n.raised, acted = r.acted + n.acted, last_match_at = CASE WHEN n.matched > 0 THEN now() ELSE r.last_match_at END
    FROM unnest(${given.map(([key]) => key)}::bigint[], ${of('seen')}::bigint[], ${of('matched')}::bigint[], ${of('unmatchable')}::bigint[],
      ${of('raised')}::bigint[], ${of('acted')}::bigint[]) AS n (key, seen, matched, unmatchable, raised, acted) WHERE r.key = n.key`.execute(
    tx,
  )
}

export type StateRow = {
  ruleKey: number
  series: Series
  state: RuleState
  last: LastSample | undefined
  silencedUntilMs: number | null
  escalation: Escalation | null
  escalateAtMs: number | null
}

type StoredState = {
  rule_key: number
  publisher_id: string
  channel_key: number
  subtopic: string
  name: string
  state: { state: RuleState; last?: LastSample }
  silenced_until_ms: number | null
  escalation: Escalation | null
  escalate_at_ms: number | null
}

const stateOf = (row: StoredState): StateRow => ({
  ruleKey: row.rule_key,
  series: {
    publisherId: row.publisher_id,
    channelKey: row.channel_key,
    subtopic: row.subtopic,
    name: row.name,
  },
  state: row.state.state,
  last: row.state.last,
  silencedUntilMs: row.silenced_until_ms,
  escalation: row.escalation,
  escalateAtMs: row.escalate_at_ms,
})

const COLUMNS = sql`s.rule_key, s.publisher_id, s.channel_key, s.subtopic, s.name, s.state,
  (extract(epoch FROM s.silenced_until) * 1000)::float8 AS silenced_until_ms, s.escalation,
  (extract(epoch FROM s.escalate_at) * 1000)::float8 AS escalate_at_ms`

type StateKey = { ruleKey: number; series: Series }

const digestOfSeries = ({ publisherId, channelKey, subtopic, name }: Series): Buffer =>
  digestOfParts([publisherId, channelKey, subtopic, name])

const keysOf = (states: readonly StateKey[]): Sql =>
  sql`unnest(${states.map(({ ruleKey }) => ruleKey)}::bigint[], ${states.map(({ series }) => digestOfSeries(series))}::bytea[])
    AS n (rule_key, series_digest)`

export async function readStates(tx: Transaction, wanted: readonly StateKey[]): Promise<StateRow[]> {
  if (wanted.length === 0) return []
  const { rows } = await sql<StoredState>`SELECT ${COLUMNS} FROM rule_states s
    JOIN ${keysOf(wanted)} USING (rule_key, series_digest)`.execute(tx)
  return rows.map(stateOf)
}

/**
 * States of these rules that time changes, those whose maintenance may be over, and those whose alarm may be escalated: of each at most `limit`, the
 * longest due first.
 */
export async function readDue(
  tx: Transaction,
  ruleKeys: readonly number[],
  nowMs: number,
  limit: number,
): Promise<StateRow[]> {
  const now = sql`to_timestamp(${nowMs / 1000}::float8)`
  const ofRules = sql`s.rule_key = ANY (${[...ruleKeys]}::bigint[])`
  const { rows } = await sql<StoredState>`
    (SELECT ${COLUMNS} FROM rule_states s WHERE ${ofRules} AND s.due_at <= ${now} ORDER BY s.due_at LIMIT ${limit})
    UNION ALL (SELECT ${COLUMNS} FROM rule_states s WHERE ${ofRules} AND s.silenced_until <= ${now} AND (s.due_at <= ${now}) IS NOT TRUE
      ORDER BY s.silenced_until LIMIT ${limit})
    UNION ALL (SELECT ${COLUMNS} FROM rule_states s WHERE ${ofRules} AND s.escalate_at <= ${now} AND (s.due_at <= ${now}) IS NOT TRUE
      AND (s.silenced_until <= ${now}) IS NOT TRUE ORDER BY s.escalate_at LIMIT ${limit})`.execute(tx)
  return rows.map(stateOf)
}

export type NewState = StateRow & {
  /** Epoch milliseconds. */
  dueMs: number | null
}

const secondsOf = (ms: number | null) => (ms === null ? null : ms / 1000)

export async function writeStates(tx: Transaction, states: readonly NewState[]): Promise<void> {
  if (states.length === 0) return
  const of = <Name extends keyof Series>(name: Name) => states.map(({ series }) => series[name])
  await sql`INSERT INTO rule_states (rule_key, publisher_id, channel_key, subtopic, name, series_digest, state, due_at, silenced_until, escalation,
      escalate_at)
    SELECT n.rule_key, n.publisher_id, n.channel_key, n.subtopic, n.name, n.digest, n.state, to_timestamp(n.due), to_timestamp(n.silenced),
      nullif(n.escalation, 'null'), to_timestamp(n.escalate_at)
      FROM unnest(${states.map(({ ruleKey }) => ruleKey)}::bigint[], ${of('publisherId')}::text[], ${of('channelKey')}::bigint[],
        ${of('subtopic')}::text[], ${of('name')}::text[], ${states.map(({ series }) => digestOfSeries(series))}::bytea[],
        ${jsonArray(states.map(({ state, last }) => JSON.stringify({ state, last })))}::jsonb[],
        ${states.map(({ dueMs }) => secondsOf(dueMs))}::float8[], ${states.map((one) => secondsOf(one.silencedUntilMs))}::float8[],
        ${jsonArray(states.map(({ escalation }) => JSON.stringify(escalation)))}::jsonb[],
        ${states.map((one) => secondsOf(one.escalateAtMs))}::float8[])
        AS n (rule_key, publisher_id, channel_key, subtopic, name, digest, state, due, silenced, escalation, escalate_at)
      JOIN rules r ON r.key = n.rule_key
    ON CONFLICT ON CONSTRAINT rule_states_pkey DO UPDATE SET state = excluded.state, due_at = excluded.due_at,
      silenced_until = excluded.silenced_until, escalation = excluded.escalation, escalate_at = excluded.escalate_at`.execute(
    tx,
  )
}

export async function removeStates(tx: Transaction, states: readonly StateKey[]): Promise<void> {
  if (states.length === 0) return
  await sql`DELETE FROM rule_states s USING ${keysOf(states)}
    WHERE s.rule_key = n.rule_key AND s.series_digest = n.series_digest`.execute(tx)
}

/** The states behind these alarms: a condition that still holds begins again. Lock the domain first. */
export async function forgetStates(tx: Transaction, domainKey: number, alarmIds: readonly string[]): Promise<void> {
  const states = await statesOfAlarms(tx, domainKey, alarmIds)
  await removeStates(tx, states)
  // The process that evaluates the domain knows who is silent.
  if (states.some(({ series }) => series.channelKey === 0)) await noteChange(tx, domainKey)
}

/** It is looked at once whether these alarms are escalated. Lock the domain first. */
export async function revisitEscalations(
  tx: Transaction,
  domainKey: number,
  alarmIds: readonly string[],
): Promise<void> {
  const states = await statesOfAlarms(tx, domainKey, alarmIds)
  if (states.length === 0) return
  await sql`UPDATE rule_states s SET escalate_at = now() FROM ${keysOf(states)} JOIN rules r ON r.key = n.rule_key AND r.status = 'enabled'
    WHERE s.rule_key = n.rule_key AND s.series_digest = n.series_digest AND s.escalation IS NOT NULL`.execute(tx)
}

async function statesOfAlarms(tx: Transaction, domainKey: number, alarmIds: readonly string[]): Promise<StateKey[]> {
  const { rows } = await sql<
    Series & { ruleKey: number }
  >`SELECT r.key AS "ruleKey", coalesce(a.client_id::text, '') AS "publisherId",
      coalesce(c.key, 0) AS "channelKey", a.subtopic, a.name
    FROM alarms a JOIN rules r ON r.id = a.rule_id LEFT JOIN channels c ON c.domain_key = a.domain_key AND c.id = a.channel_id
    WHERE (c.key IS NOT NULL OR a.channel_id IS NULL) AND a.domain_key = ${domainKey} AND a.id::text = ANY (${[...alarmIds]}::text[]) AND a.cleared_at IS NULL`.execute(
    tx,
  )
  return rows.map(({ ruleKey, ...series }) => ({ ruleKey, series }))
}

export type ChannelRow = { key: number; id: string; name: string }

/** How many channels the domain has, and the highest key: while both are the same, its channels are. */
export async function channelMark(db: Queryable, domainKey: number): Promise<string> {
  const { rows } = await sql<{ total: number; last: number | null }>`
    SELECT count(*) AS total, max(key) AS last FROM channels WHERE domain_key = ${domainKey}`.execute(db)
  return `${rows[0]?.total ?? 0} ${rows[0]?.last ?? 0}`
}

/** Channels of the domain: all, or those of these ids. */
export async function listChannels(
  db: Queryable,
  domainKey: number,
  ids: readonly string[] | undefined,
): Promise<ChannelRow[]> {
  const among = ids === undefined ? sql`` : sql`AND id = ANY (${[...ids]}::uuid[])`
  const { rows } =
    await sql<ChannelRow>`SELECT key, id, name FROM channels WHERE domain_key = ${domainKey} ${among}`.execute(db)
  return rows
}

export async function listChannelsByKey(db: Queryable, keys: readonly number[]): Promise<ChannelRow[]> {
  if (keys.length === 0) return []
  const { rows } =
    await sql<ChannelRow>`SELECT key, id, name FROM channels WHERE key = ANY (${[...keys]}::bigint[])`.execute(db)
  return rows
}

export type ClientRow = {
  key: number
  id: string
  name: string
  tags: string[]
  metadata: Record<string, unknown>
  parentGroupKey: number | null
}

export async function listClients(db: Queryable, keys: readonly number[]): Promise<ClientRow[]> {
  if (keys.length === 0) return []
  const { rows } =
    await sql<ClientRow>`SELECT key, id, name, tags, metadata, parent_group_key AS "parentGroupKey" FROM clients
    WHERE key = ANY (${[...keys]}::bigint[])`.execute(db)
  return rows
}

/** Clients by id, for what time alone causes. */
export async function listClientsById(db: Queryable, domainKey: number, ids: readonly string[]): Promise<ClientRow[]> {
  if (ids.length === 0) return []
  const { rows } =
    await sql<ClientRow>`SELECT key, id, name, tags, metadata, parent_group_key AS "parentGroupKey" FROM clients
    WHERE domain_key = ${domainKey} AND id = ANY (${[...ids]}::uuid[])`.execute(db)
  return rows
}

/** The groups among these that a group is in, or is: by the key of the group. */
export async function findGroupsAbove(
  db: Queryable,
  domainKey: number,
  ids: readonly string[],
): Promise<Map<number, string[]>> {
  const found = new Map<number, string[]>()
  if (ids.length === 0) return found
  const { rows } = await sql<{ id: string; key: number }>`WITH RECURSIVE below (id, key) AS (
      SELECT g.id, g.key FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ANY (${[...ids]}::uuid[])
      UNION SELECT b.id, g.key FROM groups g JOIN below b ON g.parent_key = b.key)
    SELECT id, key FROM below`.execute(db)
  for (const { id, key } of rows) found.set(key, [...(found.get(key) ?? []), id])
  return found
}

export type WatchedRow = { id: string; createdAt: string }

/**
 * Enabled clients of the domain that match, in the order of their creation: by id, tag, group, and by a channel on which they may publish. With `among`,
 * those of these ids, otherwise `limit` after `after`.
 */
export async function listWatched(
  db: Queryable,
  domainKey: number,
  { channels, clients, groups, tags }: Pick<RuleFilter, 'channels' | 'clients' | 'groups' | 'tags'>,
  { among, after, limit }: { among?: readonly string[]; after?: WatchedRow | undefined; limit: number },
): Promise<WatchedRow[]> {
  const parts = [
    ...(clients === undefined ? [] : [sql`AND c.id = ANY (${[...clients]}::uuid[])`]),
    ...(among === undefined ? [] : [sql`AND c.id = ANY (${[...among]}::uuid[])`]),
    ...(after === undefined
      ? []
      : [sql`AND (c.created_at, c.id) > (${after.createdAt}::timestamptz, ${after.id}::uuid)`]),
    ...(tags === undefined ? [] : [sql`AND c.tags && ${[...tags]}::text[]`]),
    ...(groups === undefined
      ? []
      : [
          sql`AND c.parent_group_key IN (WITH RECURSIVE below (key) AS (
            SELECT g.key FROM groups g WHERE g.domain_key = ${domainKey} AND g.id = ANY (${[...groups]}::uuid[])
            UNION SELECT g.key FROM groups g JOIN below b ON g.parent_key = b.key) SELECT key FROM below)`,
        ]),
    ...(channels === undefined
      ? []
      : [
          sql`AND EXISTS (SELECT FROM connections k JOIN channels h ON h.key = k.channel_key
            WHERE k.client_key = c.key AND h.domain_key = ${domainKey} AND h.id = ANY (${[...channels]}::uuid[]) AND k.types & 1 <> 0)`,
        ]),
  ]
  const { rows } = await sql<WatchedRow>`SELECT c.id, c.created_at::text AS "createdAt" FROM clients c
    WHERE c.domain_key = ${domainKey} AND c.status = 'enabled' ${sql.join(parts, sql` `)}
    ORDER BY c.created_at, c.id LIMIT ${limit}`.execute(db)
  return rows
}

export type RaisedRow = { ruleKey: number; publisherId: string; digest: Buffer }

/** The series without a channel that these rules raised, after a row: clients that are silent, and the empty id of an outage. */
export async function listRaised(
  db: Queryable,
  ruleKeys: readonly number[],
  { after, limit }: { after: RaisedRow | undefined; limit: number },
): Promise<RaisedRow[]> {
  if (ruleKeys.length === 0) return []
  const beyond =
    after === undefined
      ? sql``
      : sql`AND (rule_key, series_digest) > (${after.ruleKey}::bigint, ${after.digest}::bytea)`
  const { rows } = await sql<RaisedRow>`
    SELECT rule_key AS "ruleKey", publisher_id AS "publisherId", series_digest AS digest FROM rule_states
     WHERE rule_key = ANY (${[...ruleKeys]}::bigint[]) AND channel_key = 0 AND state -> 'state' ->> 'status' <> 'idle' ${beyond}
     ORDER BY rule_key, series_digest LIMIT ${limit}`.execute(db)
  return rows
}

export type StoredValue = {
  channelKey: number
  publisherId: string
  subtopic: string
  name: string
  timeMs: number
  arrivalMs: number
  value: number
}

/** Values of these series before the place, or that arrived until then, in the order of their arrival: of each the newest `perSeries`, of all the newest `limit`. */
export async function readValues(
  db: Queryable,
  series: readonly (Series & { sinceSeconds: number })[],
  {
    before,
    untilSeconds,
    perSeries,
    limit,
  }: { before?: Place; untilSeconds?: number; perSeries: number; limit: number },
): Promise<StoredValue[]> {
  const ends = [
    ...(before === undefined ? [] : [sql`AND (b.xid, b.seq, m.message) < (${placeValues(before)})`]),
    ...(untilSeconds === undefined ? [] : [sql`AND m.arrived_at <= to_timestamp(${untilSeconds}::float8)`]),
  ]
  const channelKeys = [...new Set(series.map(({ channelKey }) => channelKey))]
  const sinceSeconds = Math.min(...series.map((one) => one.sinceSeconds))
  const { rows } = await sql<StoredValue>`
    WITH wanted AS MATERIALIZED (
      SELECT s.key, s.channel_key, s.publisher_id, s.subtopic, s.name, to_timestamp(n.since) AS since FROM series s
        JOIN unnest(${series.map(({ channelKey }) => channelKey)}::bigint[], ${series.map(({ publisherId }) => publisherId)}::text[],
          ${series.map(({ subtopic }) => subtopic)}::text[], ${series.map(({ name }) => name)}::text[],
          ${series.map((one) => one.sinceSeconds)}::float8[]) AS n (channel_key, publisher_id, subtopic, name, since)
          USING (channel_key, publisher_id, subtopic, name)),
    opened AS (
      SELECT m.arrived_at, m.batch_seq, m.message, m.chunk, unnest(m.series_keys) AS series_key, unnest(m.times) AS time,
        unnest(m."values") AS value, generate_subscripts(m.series_keys, 1) AS place
      FROM records m JOIN ingest_batches b ON b.seq = m.batch_seq
      WHERE m.channel_key = ANY (${channelKeys}::bigint[]) AND m.arrived_at > to_timestamp(${sinceSeconds}::float8)
        AND m.series_keys && (SELECT array_agg(key) FROM wanted)
        AND b.arrived_at > to_timestamp(${sinceSeconds - 60}::float8) ${sql.join(ends, sql` `)}),
    numbered AS (
      SELECT w.channel_key, w.publisher_id, w.subtopic, w.name, o.*,
        row_number() OVER (PARTITION BY o.series_key ORDER BY o.arrived_at DESC, o.batch_seq DESC, o.message DESC, o.chunk DESC, o.place DESC) AS age
      FROM opened o JOIN wanted w ON w.key = o.series_key AND o.arrived_at > w.since WHERE o.value IS NOT NULL)
    SELECT channel_key AS "channelKey", publisher_id AS "publisherId", subtopic, name, extract(epoch FROM time)::float8 * 1000 AS "timeMs",
      extract(epoch FROM arrived_at)::float8 * 1000 AS "arrivalMs", value FROM numbered WHERE age <= ${perSeries}
    ORDER BY arrived_at DESC, batch_seq DESC, message DESC, chunk DESC, place DESC LIMIT ${limit}`.execute(db)
  return rows.toReversed()
}

export type NewPublication = {
  domainKey: number
  ruleKey: number
  ruleId: string
  userKey: number
  channelId: string
  subtopic: string
  contentType: string
  payload: string
  depth: number
  origin: string
}

export async function insertPublications(tx: Transaction, rows: readonly NewPublication[]): Promise<void> {
  if (rows.length === 0) return
  await sql`INSERT INTO rule_publications (domain_key, rule_key, rule_id, user_key, channel_id, subtopic, content_type, payload, depth, origin)
    SELECT n.* FROM unnest(${rows.map((row) => row.domainKey)}::bigint[], ${rows.map((row) => row.ruleKey)}::bigint[],
      ${rows.map((row) => row.ruleId)}::uuid[], ${rows.map((row) => row.userKey)}::bigint[], ${rows.map((row) => row.channelId)}::uuid[],
      ${rows.map((row) => row.subtopic)}::text[], ${rows.map((row) => row.contentType)}::text[], ${rows.map((row) => row.payload)}::text[],
      ${rows.map((row) => row.depth)}::int[], ${rows.map((row) => row.origin)}::text[]) AS n
    ON CONFLICT ON CONSTRAINT rule_publications_origin_key DO NOTHING`.execute(tx)
}

/** How many publications of the domain wait, counted up to the limit. */
export async function countPublications(tx: Transaction, domainKey: number, limit: number): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM
    (SELECT FROM rule_publications WHERE domain_key = ${domainKey} LIMIT ${limit}) w`.execute(tx)
  return rows[0]?.total ?? 0
}

/** The tasks of the domain among these, by id. */
export async function findTaskKeys(
  tx: Transaction,
  domainKey: number,
  ids: readonly string[],
): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map()
  const { rows } = await sql<{
    id: string
    key: number
  }>`SELECT id, key FROM tasks WHERE domain_key = ${domainKey} AND id = ANY (${[...ids]}::uuid[])`.execute(tx)
  return new Map(rows.map(({ id, key }) => [id, key]))
}

/** Domains with rules that are evaluated. */
export async function listServed(db: Queryable): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT d.domain_key AS key FROM rule_domains d
    WHERE EXISTS (SELECT FROM rules r WHERE r.domain_key = d.domain_key AND r.status = 'enabled' AND r.paused_at IS NULL)`.execute(
    db,
  )
  return rows.map(({ key }) => key)
}

/** The domains of these channels that have rules. */
export async function domainsOf(db: Queryable, channelKeys: readonly number[]): Promise<number[]> {
  if (channelKeys.length === 0) return []
  const { rows } = await sql<{
    key: number
  }>`SELECT DISTINCT c.domain_key AS key FROM channels c JOIN rule_domains d ON d.domain_key = c.domain_key
    WHERE c.key = ANY (${[...channelKeys]}::bigint[])`.execute(db)
  return rows.map(({ key }) => key)
}

/** Domains where time changes a state, maintenance may be over or an alarm may be escalated, those with rules that are behind, look at clients or have results of a function, those where the state of a client changed, and those with rules whose scheduled time has come. */
export async function listDueDomains(db: Queryable, nowMs: number, limit: number): Promise<number[]> {
  const now = sql`to_timestamp(${nowMs / 1000}::float8)`
  // Those of rules that are not evaluated or wait for a function, which stay due, must not take the places of others.
  const isDecided = sql`(${DECIDED_BY_TASK} AND NOT EXISTS (SELECT FROM rule_calls c WHERE c.rule_key = r.key AND c.status = 'open'))`
  const evaluated = sql`JOIN rules r ON r.key = s.rule_key AND r.status = 'enabled' AND r.paused_at IS NULL AND (NOT r.is_behind OR ${isDecided})
    AND r.look_after IS NULL JOIN domains d ON d.key = r.domain_key AND d.status = 'enabled'`
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM (SELECT r.domain_key AS key FROM rule_states s ${evaluated} WHERE s.due_at <= ${now} ORDER BY s.due_at LIMIT ${limit}) due
    UNION SELECT key FROM (SELECT r.domain_key AS key FROM rule_states s ${evaluated} WHERE s.silenced_until <= ${now}
      ORDER BY s.silenced_until LIMIT ${limit}) silenced
    UNION SELECT key FROM (SELECT r.domain_key AS key FROM rule_states s ${evaluated} WHERE s.escalate_at <= ${now}
      ORDER BY s.escalate_at LIMIT ${limit}) escalated
    UNION SELECT domain_key FROM rules WHERE is_behind AND status = 'enabled' AND paused_at IS NULL AND NOT ${DECIDED_BY_TASK}
    UNION SELECT c.domain_key FROM rule_calls c JOIN domains d ON d.key = c.domain_key AND d.status = 'enabled' WHERE c.status <> 'open'
    UNION SELECT r.domain_key FROM rules r JOIN domains d ON d.key = r.domain_key AND d.status = 'enabled'
      WHERE r.next_tick_at <= ${now} AND r.status = 'enabled' AND r.paused_at IS NULL AND NOT r.is_behind
    UNION SELECT domain_key FROM rules WHERE look_after IS NOT NULL AND status = 'enabled' AND paused_at IS NULL
    UNION (WITH RECURSIVE changed (key) AS (SELECT min(domain_key) FROM rule_changes
        UNION ALL SELECT (SELECT min(c.domain_key) FROM rule_changes c WHERE c.domain_key > changed.key) FROM changed WHERE changed.key IS NOT NULL)
      SELECT key FROM changed WHERE key IS NOT NULL)`.execute(db)
  return rows.map(({ key }) => key)
}

/**
 * Moves domains on that got no messages: those that stand at `from` or behind it, and are not among `seen`, at most `limit`. Those that are locked
 * are left. Returns their number.
 */
export async function passDomains(
  db: Queryable,
  { from, to, seen, limit }: { from: Place; to: Place; seen: readonly number[]; limit: number },
): Promise<number> {
  const { rows } = await sql`UPDATE rule_domains SET (xid, seq, message) = ROW (${placeValues(to)}), behind_since = NULL
    WHERE domain_key IN (SELECT domain_key FROM rule_domains
      WHERE (xid, seq, message) >= (${placeValues(from)}) AND (xid, seq, message) < (${placeValues(to)})
        AND domain_key <> ALL (${[...seen]}::bigint[]) LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING domain_key`.execute(db)
  return rows.length
}

/** Paused rules that lack a right or do not compile, and were not looked at for a while, with their domains. */
export async function listPaused(
  db: Queryable,
  { afterSeconds, limit }: { afterSeconds: number; limit: number },
): Promise<{ key: number; domainKey: number; domainId: string }[]> {
  const { rows } = await sql<{ key: number; domainKey: number; domainId: string }>`
    UPDATE rules r SET checked_at = now() FROM domains d WHERE d.key = r.domain_key AND r.key IN (
      SELECT key FROM rules WHERE paused_at IS NOT NULL AND status = 'enabled' AND ${PASSING}
         AND checked_at < now() - make_interval(secs => ${afterSeconds}) ORDER BY checked_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING r.key, r.domain_key AS "domainKey", d.id AS "domainId"`.execute(db)
  return rows
}

/** Ends the pause of a rule whose right is back, or that compiles again. False: it is not paused for that any more. */
export async function endPause(tx: Transaction, key: number): Promise<boolean> {
  const { rows } = await sql`UPDATE rules SET paused_at = NULL, paused_reason = NULL, pause_kind = NULL,
      look_after = CASE WHEN definition -> 'source' ->> 'type' = 'state' THEN 0 END WHERE key = ${key} AND ${PASSING} RETURNING key`.execute(
    tx,
  )
  return rows.length > 0
}

/**
 * Notes that a process is there. After a time in which none was, what waits for time waits as much longer: it was not seen whether the condition
 * held.
 */
export async function noteAlive(tx: Transaction, longestGapSeconds: number): Promise<void> {
  await sql`INSERT INTO rule_clock (key, alive_at) VALUES (1, now()) ON CONFLICT ON CONSTRAINT rule_clock_pkey DO NOTHING`.execute(
    tx,
  )
  const { rows } = await sql<{
    gap: number
  }>`SELECT extract(epoch FROM now() - alive_at)::float8 AS gap FROM rule_clock FOR UPDATE`.execute(tx)
  const gap = rows[0]?.gap ?? 0
  if (gap > longestGapSeconds)
    await sql`UPDATE rule_states s SET due_at = due_at + make_interval(secs => ${gap}::float8), state = jsonb_set(s.state, ARRAY['state', f.field],
        to_jsonb((s.state -> 'state' ->> f.field)::float8 + ${gap * 1000}::float8))
      FROM (SELECT t.ctid AS place, CASE WHEN t.state -> 'state' ->> 'status' = 'pending' THEN 'sinceMs' ELSE 'clearingSinceMs' END AS field
        FROM rule_states t WHERE t.due_at IS NOT NULL) f WHERE s.ctid = f.place`.execute(tx)
  await sql`UPDATE rule_clock SET alive_at = now()`.execute(tx)
}

/** Whether messages that arrived so long ago are stored and cannot be read yet, because a transaction that began before them has not ended. */
export async function isLogHeld(db: Queryable, seconds: number): Promise<boolean> {
  const { rows } = await sql<{ held: boolean }>`SELECT EXISTS (SELECT FROM ingest_batches
    WHERE xid >= position_xmin() AND arrived_at < now() - make_interval(secs => ${seconds})) AS held`.execute(db)
  return rows[0]?.held === true
}
