/** SQL of the gate, for decisions that are not cached. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/**
 * A client that matches the credentials, in the domain of the path or in any, and the channel of the path if it belongs
 * to the same domain.
 */
export type Candidate = {
  domainKey: number
  domainId: string
  domainStatus: string
  clientKey: number
  clientId: string
  clientStatus: string
  channelKey: number | null
  channelId: string | null
  channelStatus: string | null
  /** Bits of the connection types. 0 means not connected. */
  types: number
  retentionDays: number | null
}

type Row = {
  domain_key: number
  domain_id: string
  domain_status: string
  client_key: number
  client_id: string
  client_status: string
  channel_key: number | null
  channel_id: string | null
  channel_status: string | null
  types: number | null
  retention_days: number | null
}

export type CandidateQuery = {
  client:
    | { secretMac: Buffer; id: string | undefined }
    /** The certificate with this fingerprint, in hex, must belong to the client and be valid. */
    | { key: number; certificate: string | undefined }
  /** Domain of the path as an id, or as a route. Without both, every domain is searched. */
  domainId: string | undefined
  domainRoute: string | undefined
  /** Channel of the path as an id, or as a route. */
  channelId: string | undefined
  channelRoute: string | undefined
}

/** Clients of different domains can share a secret. More than this number is an attack or an accident. */
const MAX_CANDIDATES = 100

/** The candidates of each query, in order. One statement looks all of them up, because devices reconnect together. */
export async function findCandidates(db: Queryable, queries: readonly CandidateQuery[]): Promise<Candidate[][]> {
  const found: Candidate[][] = queries.map(() => [])
  await Promise.all([
    addCandidates(db, queries, found, sql`c.secret_mac = asked.secret_mac`, ({ client }) => 'secretMac' in client),
    addCandidates(db, queries, found, sql`c.key = asked.client_key`, ({ client }) => 'key' in client),
  ])
  return found
}

/**
 * Adds the candidates of the queries that name their client in this way. If other queries were in the same statement, no index could be
 * used.
 */
async function addCandidates(
  db: Queryable,
  queries: readonly CandidateQuery[],
  found: Candidate[][],
  isClient: Sql<unknown>,
  isAsked: (query: CandidateQuery) => boolean,
): Promise<void> {
  const places = [...queries.keys()].filter((place) => isAsked(queries[place] as CandidateQuery))
  if (places.length === 0) return
  const column = <T>(of: (query: CandidateQuery) => T | undefined) =>
    places.map((place) => of(queries[place] as CandidateQuery) ?? null)
  // Planning costs more than the look-up of a few: tables that no query needs are not joined.
  const hasCertificates = places.some((place) => {
    const { client } = queries[place] as CandidateQuery
    return 'key' in client && client.certificate !== undefined
  })
  const hasChannels = places.some((place) => {
    const { channelId, channelRoute } = queries[place] as CandidateQuery
    return channelId !== undefined || channelRoute !== undefined
  })
  const { rows } = await sql<Row & { place: number }>`
    SELECT asked.place, candidate.* FROM unnest(
      ${places}::integer[],
      ${column(({ client }) => ('secretMac' in client ? client.secretMac : undefined))}::bytea[],
      ${column(({ client }) => ('secretMac' in client ? client.id : undefined))}::uuid[],
      ${column(({ client }) => ('key' in client ? client.key : undefined))}::bigint[],
      ${column(({ client }) => ('key' in client && client.certificate !== undefined ? Buffer.from(client.certificate, 'hex') : undefined))}::bytea[],
      ${column(({ domainId }) => domainId)}::uuid[], ${column(({ domainRoute }) => domainRoute)}::text[],
      ${column(({ channelId }) => channelId)}::uuid[], ${column(({ channelRoute }) => channelRoute)}::text[])
      AS asked (place, secret_mac, client_id, client_key, fingerprint, domain_id, domain_route, channel_id, channel_route)
    CROSS JOIN LATERAL (
      SELECT d.key AS domain_key, d.id AS domain_id, d.status AS domain_status, c.key AS client_key, c.id AS client_id, c.status AS client_status,
             ${hasChannels ? CHANNEL_COLUMNS : NO_CHANNEL_COLUMNS}
        FROM clients c JOIN domains d ON d.key = c.domain_key ${hasChannels ? CHANNELS : sql``}
       WHERE ${isClient} AND (asked.client_id IS NULL OR c.id = asked.client_id)
         AND (asked.domain_id IS NULL OR d.id = asked.domain_id)
         AND (asked.domain_route IS NULL OR lower(d.route) = lower(asked.domain_route))
         ${hasCertificates ? HAS_GOOD_CERTIFICATE : sql``}
       ORDER BY c.key LIMIT ${MAX_CANDIDATES}) candidate
     ORDER BY asked.place, candidate.client_key`.execute(db)
  for (const row of rows) found[row.place]?.push(toCandidate(row))
}

const CHANNEL_COLUMNS = sql`h.key AS channel_key, h.id AS channel_id, h.status AS channel_status, n.types,
             coalesce(h.retention_days, d.retention_days) AS retention_days`
const NO_CHANNEL_COLUMNS = sql`NULL::bigint AS channel_key, NULL::uuid AS channel_id, NULL AS channel_status, NULL::smallint AS types,
             d.retention_days`
/** The channel is looked up by id and by route separately: a condition on both could use neither index. */
const CHANNELS = sql`
        LEFT JOIN LATERAL (
          SELECT key, id, status, retention_days FROM channels
           WHERE domain_key = c.domain_key AND id = asked.channel_id
          UNION ALL
          SELECT key, id, status, retention_days FROM channels
           WHERE domain_key = c.domain_key AND lower(route) = lower(asked.channel_route)) h ON true
        LEFT JOIN connections n ON n.client_key = c.key AND n.channel_key = h.key`
const HAS_GOOD_CERTIFICATE = sql`AND (asked.fingerprint IS NULL OR EXISTS (
           SELECT FROM certificates f WHERE f.fingerprint = asked.fingerprint AND f.client_key = c.key
              AND f.revoked_at IS NULL AND now() BETWEEN f.not_before AND f.not_after))`

const toCandidate = (row: Row): Candidate => ({
  domainKey: row.domain_key,
  domainId: row.domain_id,
  domainStatus: row.domain_status,
  clientKey: row.client_key,
  clientId: row.client_id,
  clientStatus: row.client_status,
  channelKey: row.channel_key,
  channelId: row.channel_id,
  channelStatus: row.channel_status,
  types: row.types ?? 0,
  retentionDays: row.retention_days,
})

/** A channel that a path of a user matches. */
export type ChannelFacts = {
  domainKey: number
  domainId: string
  domainStatus: string
  key: number
  id: string
  status: string
  parentGroupKey: number | null
  retentionDays: number | null
}

export type ChannelPathQuery = Pick<CandidateQuery, 'domainId' | 'domainRoute' | 'channelId' | 'channelRoute'>

export async function findChannels(db: Queryable, query: ChannelPathQuery): Promise<ChannelFacts[]> {
  const inDomain =
    query.domainId !== undefined
      ? sql`AND d.id = ${query.domainId}`
      : query.domainRoute !== undefined
        ? sql`AND lower(d.route) = lower(${query.domainRoute})`
        : sql``
  const channel =
    query.channelId !== undefined
      ? sql`h.id = ${query.channelId}`
      : sql`lower(h.route) = lower(${query.channelRoute ?? ''})`
  const { rows } = await sql<{
    domain_key: number
    domain_id: string
    domain_status: string
    key: number
    id: string
    status: string
    parent_group_key: number | null
    retention_days: number | null
  }>`
    SELECT d.key AS domain_key, d.id AS domain_id, d.status AS domain_status, h.key, h.id, h.status, h.parent_group_key,
           coalesce(h.retention_days, d.retention_days) AS retention_days
      FROM channels h JOIN domains d ON d.key = h.domain_key WHERE ${channel} ${inDomain} ORDER BY h.key LIMIT ${MAX_CANDIDATES}`.execute(
    db,
  )
  return rows.map((row) => ({
    domainKey: row.domain_key,
    domainId: row.domain_id,
    domainStatus: row.domain_status,
    key: row.key,
    id: row.id,
    status: row.status,
    parentGroupKey: row.parent_group_key,
    retentionDays: row.retention_days,
  }))
}

export async function findDomainByRoute(db: Queryable, route: string): Promise<string | undefined> {
  const { rows } = await sql<{ id: string }>`SELECT id FROM domains WHERE lower(route) = lower(${route})`.execute(db)
  return rows[0]?.id
}
