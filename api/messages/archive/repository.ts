/** SQL of the archive: what is due, its files, and the pointer to the current metadata of each table. */
import { hasOlderNodes } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { FileStatistics } from './statistics.ts'

export type TableRow = {
  domainKey: number
  tableId: string
  location: string
  sequenceNumber: number
  snapshotId: number | null
}

const TABLE = sql`t.domain_key AS "domainKey", t.table_id AS "tableId", t.location, t.sequence_number AS "sequenceNumber",
  t.snapshot_id AS "snapshotId"`

export async function ensureTable(db: Queryable, domainKey: number, base: string): Promise<TableRow> {
  await sql`
    INSERT INTO archive_tables (domain_key, table_id, location)
    SELECT d.key, gen_random_uuid(), ${base}::text || '/' || d.id::text || '/records' FROM domains d WHERE d.key = ${domainKey}
    ON CONFLICT DO NOTHING`.execute(db)
  const { rows } = await sql<TableRow>`SELECT ${TABLE} FROM archive_tables t WHERE t.domain_key = ${domainKey}`.execute(
    db,
  )
  if (rows[0] === undefined) throw new Error('the domain of an archived range is gone')
  return rows[0]
}

/** A closed range of a retention class, and the partition that holds it. */
export type ClosedRange = { retentionDays: number; from: string; to: string; leaf: string }

/**
 * Closed ranges that are not planned yet, oldest first: weeks, cut where a month begins, because a file lies in one month. Those whose
 * retention has passed already are left out.
 */
export async function findUnplanned(db: Queryable, afterSeconds: number): Promise<ClosedRange[]> {
  const { rows } = await sql<ClosedRange>`
    SELECT days::integer AS "retentionDays", part.from_time AS "from", part.to_time AS "to", leaf.relname AS leaf
      FROM pg_inherits
      JOIN pg_class leaf ON leaf.oid = inhrelid
      JOIN pg_class parent ON parent.oid = inhparent
     CROSS JOIN LATERAL substring(parent.relname FROM '^records_r(\\d+)$') AS days
     CROSS JOIN LATERAL regexp_match(pg_get_expr(leaf.relpartbound, leaf.oid), 'FROM \\(''([^'']+)''\\) TO \\(''([^'']+)''\\)') AS bounds
     CROSS JOIN LATERAL (SELECT bounds[1]::timestamptz AS from_time, bounds[2]::timestamptz AS to_time,
                                date_trunc('month', bounds[2]::timestamptz - interval '1 microsecond', 'UTC') AS month) AS week
     CROSS JOIN LATERAL (
       SELECT week.from_time, least(week.to_time, greatest(week.month, week.from_time)) AS to_time WHERE week.month > week.from_time
       UNION ALL SELECT greatest(week.month, week.from_time), week.to_time) AS part
     WHERE parent.relnamespace = current_schema()::regnamespace AND days IS NOT NULL AND NOT inhdetachpending
       AND week.to_time < now() - make_interval(secs => ${afterSeconds})
       AND (days = '0' OR part.to_time >= now() - make_interval(days => days::integer))
       AND NOT EXISTS (SELECT FROM archive_plans p WHERE p.retention_days = days::integer AND p.range_start = part.from_time)
     ORDER BY part.from_time, days::integer`.execute(db)
  return rows
}

const UNDEFINED_TABLE = '42P01'

/**
 * Domains with channels that have records in the partition, by one look at the index for each channel. Undefined when the partition was dropped,
 * as empty ones are.
 */
export async function findDomainsIn(db: Queryable, leaf: string): Promise<number[] | undefined> {
  try {
    const { rows } = await sql<{ key: number }>`
    WITH RECURSIVE held AS (
      (SELECT channel_key AS key FROM ${sql.table(leaf)} ORDER BY channel_key LIMIT 1)
      UNION ALL
      SELECT (SELECT m.channel_key FROM ${sql.table(leaf)} m WHERE m.channel_key > held.key ORDER BY m.channel_key LIMIT 1)
        FROM held WHERE held.key IS NOT NULL)
    SELECT DISTINCT c.domain_key AS key FROM held JOIN channels c ON c.key = held.key ORDER BY 1`.execute(db)
    return rows.map(({ key }) => key)
  } catch (error) {
    if ((error as { code?: string }).code === UNDEFINED_TABLE) return undefined
    throw error
  }
}

/** Call it under the lock of the projections: a deletion then either ended before, or sees the rows. */
export async function insertRanges(
  db: Queryable,
  { retentionDays, from, to }: ClosedRange,
  domainKeys: readonly number[],
): Promise<void> {
  await sql`
    INSERT INTO archive_ranges (domain_key, retention_days, range_start, range_end)
    SELECT key, ${retentionDays}::smallint, ${from}::timestamptz, ${to}::timestamptz FROM unnest(${domainKeys}::bigint[]) AS key
    ON CONFLICT DO NOTHING`.execute(db)
  await sql`
    INSERT INTO archive_plans (retention_days, range_start, range_end)
    VALUES (${retentionDays}, ${from}::timestamptz, ${to}::timestamptz) ON CONFLICT DO NOTHING`.execute(db)
}

export type RangeKey = { domainKey: number; retentionDays: number; from: string }
export type DueRange = RangeKey & { to: string; changes: number; leaf: string; month: number }

/** The range of each domain that waits longest, and the domain that waits longest first; the domains of `last` behind all others. */
export async function findDue(
  db: Queryable,
  {
    failed,
    withoutDomains,
    last,
    limit,
  }: { failed: readonly RangeKey[]; withoutDomains: readonly number[]; last: readonly number[]; limit: number },
): Promise<DueRange[]> {
  const { rows } = await sql<DueRange>`
    SELECT * FROM (
      SELECT DISTINCT ON (r.domain_key) r.domain_key AS "domainKey", r.retention_days::integer AS "retentionDays", r.range_start AS "from",
             r.range_end AS "to", r.changes, r.due_at,
             'records_r' || r.retention_days || '_' || to_char(date_trunc('week', r.range_start, 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD') AS leaf,
             (extract(year FROM r.range_start AT TIME ZONE 'UTC')::integer - 1970) * 12
               + extract(month FROM r.range_start AT TIME ZONE 'UTC')::integer - 1 AS month
        FROM archive_ranges r
       WHERE r.exported_changes IS DISTINCT FROM r.changes AND EXISTS (SELECT FROM domains d WHERE d.key = r.domain_key)
         AND r.domain_key <> ALL (${withoutDomains}::bigint[])
         AND NOT EXISTS (SELECT FROM json_to_recordset(${JSON.stringify(failed)}::json)
               AS f ("domainKey" bigint, "retentionDays" smallint, "from" timestamptz)
              WHERE f."domainKey" = r.domain_key AND f."retentionDays" = r.retention_days AND f."from" = r.range_start)
       ORDER BY r.domain_key, r.due_at, r.range_start, r.retention_days) AS first
     ORDER BY "domainKey" = ANY (${last}::bigint[]), due_at, "domainKey" LIMIT ${limit}`.execute(db)
  return rows
}

/** Changes of the range at the moment; undefined when it is gone. */
export async function findChanges(db: Queryable, range: RangeKey): Promise<number | undefined> {
  const { rows } = await sql<{ changes: number }>`
    SELECT changes FROM archive_ranges
     WHERE domain_key = ${range.domainKey} AND retention_days = ${range.retentionDays} AND range_start = ${range.from}::timestamptz`.execute(
    db,
  )
  return rows[0]?.changes
}

export type ArchivedChannel = { key: number; id: string }

/** Channels of the domain that have records in the partition, by id. Empty when the partition was dropped. */
export async function findChannelsIn(db: Queryable, domainKey: number, leaf: string): Promise<ArchivedChannel[]> {
  const { rows: found } = await sql<{ found: boolean }>`SELECT to_regclass(${leaf}) IS NOT NULL AS found`.execute(db)
  if (found[0]?.found !== true) return []
  const { rows } = await sql<ArchivedChannel>`
    SELECT c.key, c.id::text AS id FROM channels c
     WHERE c.domain_key = ${domainKey} AND EXISTS (SELECT FROM ${sql.table(leaf)} m WHERE m.channel_key = c.key)
     ORDER BY c.id`.execute(db)
  return rows
}

export type FileKind = 'data' | 'manifest' | 'manifest_list' | 'metadata'

/** Committed before the file is written, so that what a crash leaves behind is known. */
export async function insertFile(db: Queryable, domainKey: number, kind: FileKind, path: string): Promise<number> {
  const { rows } = await sql<{ key: number }>`
    INSERT INTO archive_files (domain_key, kind, path) VALUES (${domainKey}, ${kind}, ${path}) RETURNING key`.execute(
    db,
  )
  return (rows[0] as { key: number }).key
}

export type LiveFile = {
  key: number
  path: string
  month: number
  retentionDays: number
  from: string
  bytes: number
  records: number
  snapshotId: number
  sequenceNumber: number
  details: FileStatistics
}

export async function findDataFiles(db: Queryable, domainKey: number, months: readonly number[]): Promise<LiveFile[]> {
  const { rows } = await sql<LiveFile>`
    SELECT f.key, f.path, f.month, f.retention_days::integer AS "retentionDays", f.range_start AS "from", f.bytes, f.records,
           f.snapshot_id AS "snapshotId", f.sequence_number AS "sequenceNumber", f.details
      FROM archive_files f
     WHERE f.domain_key = ${domainKey} AND f.state = 'live' AND f.kind = 'data' AND f.month = ANY (${months}::integer[])
     ORDER BY f.range_start, f.retention_days, f.key`.execute(db)
  return rows
}

export type ManifestDetails = {
  minSequenceNumber: number
  addedFiles: number
  existingFiles: number
  addedRows: number
  existingRows: number
  dataBytes: number
}
export type LiveManifest = {
  key: number
  path: string
  month: number
  bytes: number
  records: number
  snapshotId: number
  sequenceNumber: number
  details: ManifestDetails
}

export async function findManifests(db: Queryable, domainKey: number): Promise<LiveManifest[]> {
  const { rows } = await sql<LiveManifest>`
    SELECT f.key, f.path, f.month, f.bytes, f.records, f.snapshot_id AS "snapshotId", f.sequence_number AS "sequenceNumber", f.details
      FROM archive_files f WHERE f.domain_key = ${domainKey} AND f.state = 'live' AND f.kind = 'manifest'
     ORDER BY f.month`.execute(db)
  return rows
}

export type CommittedFile = {
  key: number
  bytes: number
  records: number
  month: number | null
  retentionDays: number | null
  from: string | null
  details: object | null
}

export type TableCommit = {
  table: TableRow
  snapshotId: number
  sequenceNumber: number
  metadataPath: string
  metadata: string
  added: readonly CommittedFile[]
  /** Data files and manifests that the snapshot no longer has. */
  removedKeys: readonly number[]
}

/** Moves the pointer. False when another writer has committed since the table was read, or has swept one of the files: nothing is written then. */
export async function moveTable(tx: Queryable, commit: TableCommit): Promise<boolean> {
  const { table, snapshotId, sequenceNumber } = commit
  const { numAffectedRows: moved } = await sql`
    UPDATE archive_tables SET sequence_number = ${sequenceNumber}, snapshot_id = ${snapshotId}, metadata_path = ${commit.metadataPath},
           metadata = ${commit.metadata}::json, updated_at = now()
     WHERE domain_key = ${table.domainKey} AND sequence_number = ${table.sequenceNumber}`.execute(tx)
  if (moved !== 1n) return false
  // Lists and metadata belong to one snapshot.
  await sql`
    UPDATE archive_files SET state = 'removed', removed_at = now()
     WHERE domain_key = ${table.domainKey} AND state = 'live' AND (key = ANY (${commit.removedKeys}::bigint[]) OR kind IN ('manifest_list', 'metadata'))`.execute(
    tx,
  )
  const files = JSON.stringify(commit.added)
  const { numAffectedRows: added } = await sql`
    UPDATE archive_files f SET state = 'live', bytes = a.bytes, records = a.records, month = a.month, retention_days = a."retentionDays",
           range_start = a."from", details = a.details, snapshot_id = ${snapshotId}, sequence_number = ${sequenceNumber}
      FROM json_to_recordset(${files}::json)
           AS a (key bigint, bytes bigint, records bigint, month integer, "retentionDays" smallint, "from" timestamptz, details json)
     WHERE f.key = a.key AND f.state = 'writing'`.execute(tx)
  return added === BigInt(commit.added.length)
}

export async function markExported(
  tx: Queryable,
  range: DueRange,
  { records, channelKeys }: { records: number; channelKeys: readonly number[] },
): Promise<void> {
  await sql`
    UPDATE archive_ranges SET exported_changes = ${range.changes}, exported_at = now(), records = ${records}, channel_keys = ${channelKeys}::bigint[],
           due_at = CASE WHEN changes = ${range.changes} THEN due_at ELSE now() END
     WHERE domain_key = ${range.domainKey} AND retention_days = ${range.retentionDays} AND range_start = ${range.from}::timestamptz`.execute(
    tx,
  )
}

/** Ranges of one domain whose retention has passed; the partitions with their records are dropped as well. */
export async function findExpired(
  db: Queryable,
  withoutDomains: readonly number[],
  limit: number,
): Promise<{ domainKey: number; ranges: RangeKey[] }[]> {
  const { rows } = await sql<RangeKey>`
    SELECT domain_key AS "domainKey", retention_days::integer AS "retentionDays", range_start AS "from" FROM archive_ranges
     WHERE retention_days > 0 AND range_end < now() - make_interval(days => retention_days::integer)
       AND domain_key <> ALL (${withoutDomains}::bigint[])
     ORDER BY domain_key, range_start LIMIT ${limit}`.execute(db)
  return [...Map.groupBy(rows, ({ domainKey }) => domainKey)].map(([domainKey, ranges]) => ({ domainKey, ranges }))
}

export async function deleteRanges(tx: Queryable, ranges: readonly RangeKey[]): Promise<void> {
  await sql`
    DELETE FROM archive_ranges r USING json_to_recordset(${JSON.stringify(ranges)}::json)
           AS a ("domainKey" bigint, "retentionDays" smallint, "from" timestamptz)
     WHERE r.domain_key = a."domainKey" AND r.retention_days = a."retentionDays" AND r.range_start = a."from"`.execute(
    tx,
  )
}

/** Plans of ranges that no partition holds any more. */
export async function deleteOldPlans(db: Queryable): Promise<void> {
  await sql`
    DELETE FROM archive_plans WHERE retention_days > 0 AND range_end < now() - make_interval(days => retention_days::integer + 14)`.execute(
    db,
  )
}

/** Ranges with records of channels that were removed lately become due. Idempotent, so that the time may be generous. */
export async function markRemovedChannels(db: Queryable, sinceSeconds: number): Promise<void> {
  await sql`
    UPDATE archive_ranges r SET changes = r.changes + 1, due_at = now()
      FROM (SELECT domain_key, array_agg(key) AS keys FROM removed_entities
             WHERE type = 'channel' AND removed_at >= now() - make_interval(secs => ${sinceSeconds}) GROUP BY domain_key) gone
     WHERE r.domain_key = gone.domain_key AND r.changes = r.exported_changes AND r.channel_keys && gone.keys`.execute(
    db,
  )
}

/**
 * Ranges whose files have records of channels that no longer exist become due, whenever the channels were removed: while the archive was off, or
 * before the database was restored. It reads the channels of every range. The number of ranges.
 */
export async function markAllRemovedChannels(db: Queryable): Promise<number> {
  const { rows } = await sql<{ ranges: number }>`
    WITH marked AS (
    UPDATE archive_ranges r SET changes = r.changes + 1, due_at = now()
      FROM (SELECT DISTINCT held.domain_key, held.retention_days, held.range_start
              FROM archive_ranges held CROSS JOIN LATERAL unnest(held.channel_keys) AS archived (key)
              LEFT JOIN channels c ON c.key = archived.key
             WHERE held.changes = held.exported_changes AND c.key IS NULL) gone
     WHERE r.domain_key = gone.domain_key AND r.retention_days = gone.retention_days AND r.range_start = gone.range_start
       AND r.changes = r.exported_changes RETURNING 1)
    SELECT count(*) AS ranges FROM marked`.execute(db)
  return rows[0]?.ranges ?? 0
}

export type CheckedFile = {
  key: number
  domainKey: number
  path: string
  bytes: number
  retentionDays: number | null
  from: string | null
}

/** Files of the current snapshots, by key. */
export async function findLiveAfter(db: Queryable, afterKey: number, limit: number): Promise<CheckedFile[]> {
  const { rows } = await sql<CheckedFile>`
    SELECT key, domain_key AS "domainKey", path, bytes, retention_days::integer AS "retentionDays", range_start AS "from"
      FROM archive_files WHERE state = 'live' AND key > ${afterKey} ORDER BY key LIMIT ${limit}`.execute(db)
  return rows
}

/** Those of the paths that have no row. */
export async function findUnknown(db: Queryable, paths: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ path: string }>`
    SELECT path FROM unnest(${paths}::text[]) AS given (path)
     WHERE NOT EXISTS (SELECT FROM archive_files f WHERE f.path = given.path)`.execute(db)
  return rows.map(({ path }) => path)
}

/** The word of this installation in the file `owner`, and the one before it. */
export type OwnerWords = { word: string; earlier: string | null }

/** Held during a round. */
export const ARCHIVE_LOCK = 0x5ce1_002a
const OWNER = 'archive_owner'
const ROUND = 'archive_round'

export async function findOwner(db: Queryable): Promise<OwnerWords | undefined> {
  const { rows } = await sql<{ value: OwnerWords }>`SELECT value FROM installation WHERE name = ${OWNER}`.execute(db)
  return rows[0]?.value
}

export async function storeOwner(db: Queryable, words: OwnerWords): Promise<void> {
  await sql`
    INSERT INTO installation (name, value) VALUES (${OWNER}, ${JSON.stringify(words)}::jsonb)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = now()`.execute(db)
}

export async function hasTables(db: Queryable): Promise<boolean> {
  const { rows } = await sql<{ found: boolean }>`SELECT EXISTS (SELECT FROM archive_tables) AS found`.execute(db)
  return rows[0]?.found === true
}

/** `succeededAt`: when the copy last made progress without a failure. `failure`: what failed in the last round. */
export type RoundFacts = { succeededAt: string; failure: string | null }

/** A node copies records, also if its first round never ends. */
export async function beginRound(db: Queryable): Promise<void> {
  await sql`
    INSERT INTO installation (name, value) VALUES (${ROUND}, jsonb_build_object('failure', NULL, 'succeeded_at', now()))
    ON CONFLICT (name) DO UPDATE SET updated_at = now()`.execute(db)
}

/** Rounds may take hours. No progress counts until what failed in the last one has succeeded. */
export async function storeProgress(db: Queryable): Promise<void> {
  await sql`
    UPDATE installation SET updated_at = now(), value = value || jsonb_build_object('succeeded_at', now())
     WHERE name = ${ROUND} AND value ->> 'failure' IS NULL`.execute(db)
}

/** `detail` is the failure for operators, if it says more. */
export async function storeRound(db: Queryable, failure: string | undefined, detail?: string): Promise<void> {
  await sql`
    INSERT INTO installation (name, value)
    VALUES (${ROUND}, jsonb_build_object('failure', ${failure ?? null}::text, 'detail', ${detail ?? null}::text, 'succeeded_at', now()))
    ON CONFLICT (name) DO UPDATE SET updated_at = now(), value = CASE
      WHEN ${failure === undefined} THEN excluded.value ELSE installation.value || (excluded.value - 'succeeded_at') END`.execute(
    db,
  )
}

/** A round begins every ten minutes, and holds the lock for as long as it takes. */
const FORGOTTEN_AFTER = sql`interval '30 minutes'`

/** Forgets the rounds when no node copies records any more, so that nobody waits for one. */
export async function forgetRounds(db: Queryable): Promise<void> {
  await sql`
    DELETE FROM installation WHERE name = ${ROUND}
       AND CASE WHEN updated_at < now() - ${FORGOTTEN_AFTER} THEN pg_try_advisory_xact_lock(${ARCHIVE_LOCK}) ELSE false END`.execute(
    db,
  )
}

/** Undefined while no node copies records. */
export async function findRound(db: Queryable): Promise<RoundFacts | undefined> {
  const { rows } = await sql<RoundFacts>`
    SELECT (value ->> 'succeeded_at')::timestamptz AS "succeededAt", value ->> 'failure' AS failure
      FROM installation WHERE name = ${ROUND}`.execute(db)
  return rows[0]
}

/** `overdueFiles` should have been deleted for an hour or longer. */
export type ArchiveState = RoundFacts & {
  waiting: number
  behindSeconds: number
  overdueFiles: number
  roundAgeSeconds: number
}

/** What an operator watches, with the detail of a failure; undefined while no node copies records. */
export async function findState(db: Queryable): Promise<ArchiveState | undefined> {
  const { rows } = await sql<ArchiveState>`
    SELECT (round.value ->> 'succeeded_at')::timestamptz AS "succeededAt",
           coalesce(round.value ->> 'detail', round.value ->> 'failure') AS failure,
           extract(epoch FROM now() - (round.value ->> 'succeeded_at')::timestamptz)::float8 AS "roundAgeSeconds", due.*,
           (SELECT count(*) FROM archive_files
             WHERE (state = 'removed' AND removed_at < now() - ${OVERDUE}) OR (state = 'writing' AND created_at < now() - ${OVERDUE})) AS "overdueFiles"
      FROM installation round,
           (SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(due_at)), 0)::float8 AS "behindSeconds"
              FROM archive_ranges WHERE exported_changes IS DISTINCT FROM changes) due
     WHERE round.name = ${ROUND}`.execute(db)
  return rows[0]
}

/** Files stay for a day, and a round follows within minutes. */
const OVERDUE = sql`interval '25 hours'`

/** Whether a node lives that does not know the archive, and where a table lies that is not below the URL; NULL: all are. */
export async function findObstacles(
  db: Queryable,
  url: string,
): Promise<{ hasOlder: boolean; elsewhere: string | null }> {
  const { rows } = await sql<{ hasOlder: boolean; elsewhere: string | null }>`
    SELECT ${hasOlderNodes('archive')} AS "hasOlder",
      (SELECT t.location FROM archive_tables t WHERE NOT starts_with(t.location, ${`${url}/`}) LIMIT 1) AS elsewhere`.execute(
    db,
  )
  return rows[0] ?? { hasOlder: true, elsewhere: null }
}

/** Domains that are removed, with their tables. */
export async function findGone(db: Queryable): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`
    SELECT domain_key AS key FROM (SELECT domain_key FROM archive_tables UNION SELECT domain_key FROM archive_ranges) known
     WHERE NOT EXISTS (SELECT FROM domains d WHERE d.key = known.domain_key)`.execute(db)
  return rows.map(({ key }) => key)
}

/** Files of a removed domain are deleted in the next sweep: nobody can read them any more. */
export async function removeTable(tx: Queryable, domainKey: number): Promise<void> {
  await sql`DELETE FROM archive_ranges WHERE domain_key = ${domainKey}`.execute(tx)
  await sql`DELETE FROM archive_tables WHERE domain_key = ${domainKey}`.execute(tx)
  await sql`
    UPDATE archive_files SET state = 'removed', removed_at = '-infinity' WHERE domain_key = ${domainKey}`.execute(tx)
}

/** What a failed export or commit of the domain has written is swept at once. Call it under the lock of the archive. */
export async function discardFiles(db: Queryable, domainKey: number): Promise<void> {
  await sql`
    UPDATE archive_files SET state = 'removed', removed_at = '-infinity' WHERE domain_key = ${domainKey} AND state = 'writing'`.execute(
    db,
  )
}

/** `isPartial`: a data file that was never committed, and may not be complete. */
export type SweptFile = { key: number; path: string; isPartial: boolean }

/** Files that no current snapshot refers to, since so long that no reader reads them. */
export async function findSwept(
  db: Queryable,
  { afterKey, graceSeconds, limit }: { afterKey: number; graceSeconds: number; limit: number },
): Promise<SweptFile[]> {
  const { rows } = await sql<SweptFile>`
    SELECT key, path, kind = 'data' AND bytes = 0 AS "isPartial" FROM archive_files
     WHERE key > ${afterKey} AND ((state = 'removed' AND removed_at < now() - make_interval(secs => ${graceSeconds}))
        OR (state = 'writing' AND created_at < now() - make_interval(secs => ${graceSeconds})))
     ORDER BY key LIMIT ${limit}`.execute(db)
  return rows
}

export async function deleteFiles(db: Queryable, keys: readonly number[]): Promise<void> {
  await sql`DELETE FROM archive_files WHERE key = ANY (${keys}::bigint[]) AND state <> 'live'`.execute(db)
}

export type CatalogueTable = { metadataPath: string; metadata: unknown }

/** The table of a domain as engines see it; undefined before the first export. */
export async function findCatalogueTable(db: Queryable, domainKey: number): Promise<CatalogueTable | undefined> {
  const { rows } = await sql<CatalogueTable>`
    SELECT metadata_path AS "metadataPath", metadata FROM archive_tables WHERE domain_key = ${domainKey} AND metadata IS NOT NULL`.execute(
    db,
  )
  return rows[0]
}

export type ArchiveFacts = {
  location: string | null
  records: number
  files: number
  bytes: number
  ranges: number
  waiting: number
  oldest: string | null
  until: string | null
  exportedAt: string | null
  waitingSince: string | null
}

export async function findFacts(db: Queryable, domainKey: number): Promise<ArchiveFacts> {
  const { rows } = await sql<ArchiveFacts>`
    SELECT (SELECT location FROM archive_tables WHERE domain_key = ${domainKey}) AS location, files.*, ranges.*
      FROM (SELECT coalesce(sum(records) FILTER (WHERE kind = 'data'), 0)::bigint AS records, count(*) FILTER (WHERE kind = 'data') AS files,
                   coalesce(sum(bytes), 0)::bigint AS bytes
              FROM archive_files WHERE domain_key = ${domainKey} AND state = 'live') files,
           (SELECT count(*) FILTER (WHERE exported_changes IS NOT NULL) AS ranges,
                   count(*) FILTER (WHERE exported_changes IS DISTINCT FROM changes) AS waiting,
                   min(range_start) FILTER (WHERE records > 0) AS oldest, max(range_end) FILTER (WHERE records > 0) AS until,
                   max(exported_at) AS "exportedAt",
                   min(due_at) FILTER (WHERE exported_changes IS DISTINCT FROM changes) AS "waitingSince"
              FROM archive_ranges WHERE domain_key = ${domainKey}) ranges`.execute(db)
  return rows[0] as ArchiveFacts
}

export type ExportedRangeFacts = RangeKey & { to: string; leaf: string; records: number; changes: number }

/** The first range behind the cursor whose files have all changes. */
export async function findExportedAfter(
  db: Queryable,
  domainKey: number,
  after: { from: string; retentionDays: number } | undefined,
): Promise<ExportedRangeFacts | undefined> {
  const behind =
    after === undefined
      ? sql`true`
      : sql`(range_start, retention_days) > (${after.from}::timestamptz, ${after.retentionDays}::smallint)`
  const { rows } = await sql<ExportedRangeFacts>`
    SELECT domain_key AS "domainKey", retention_days::integer AS "retentionDays", range_start AS "from", range_end AS "to", records, changes,
           'records_r' || retention_days || '_' || to_char(date_trunc('week', range_start, 'UTC') AT TIME ZONE 'UTC', 'YYYYMMDD') AS leaf
      FROM archive_ranges WHERE domain_key = ${domainKey} AND exported_changes = changes AND ${behind}
     ORDER BY range_start, retention_days LIMIT 1`.execute(db)
  return rows[0]
}

/** Records of the domain's channels in the range, counted one by one. Undefined when the range has changed meanwhile, or its partition is gone. */
export async function countRange(db: Queryable, range: ExportedRangeFacts): Promise<number | undefined> {
  const { rows: found } = await sql<{ found: boolean }>`SELECT to_regclass(${range.leaf}) IS NOT NULL AS found`.execute(
    db,
  )
  if (found[0]?.found !== true) return undefined
  const { rows } = await sql<{ records: number; changes: number | null }>`
    SELECT (SELECT coalesce(sum(cardinality(m.times)), 0)::bigint FROM channels c JOIN ${sql.table(range.leaf)} m ON m.channel_key = c.key
             WHERE c.domain_key = ${range.domainKey} AND m.arrived_at >= ${range.from}::timestamptz AND m.arrived_at < ${range.to}::timestamptz) AS records,
           (SELECT changes FROM archive_ranges WHERE domain_key = ${range.domainKey} AND retention_days = ${range.retentionDays}
               AND range_start = ${range.from}::timestamptz) AS changes`.execute(db)
  return rows[0]?.changes === range.changes ? rows[0].records : undefined
}

export async function findFilesOfRange(
  db: Queryable,
  range: RangeKey,
): Promise<{ path: string; bytes: number; records: number }[]> {
  const { rows } = await sql<{ path: string; bytes: number; records: number }>`
    SELECT path, bytes, records FROM archive_files
     WHERE domain_key = ${range.domainKey} AND state = 'live' AND kind = 'data' AND retention_days = ${range.retentionDays}
       AND range_start = ${range.from}::timestamptz ORDER BY key`.execute(db)
  return rows
}

/** Manifests, the manifest list and the metadata of the current snapshot. */
export async function findMetadataFiles(db: Queryable, domainKey: number): Promise<{ path: string; bytes: number }[]> {
  const { rows } = await sql<{ path: string; bytes: number }>`
    SELECT path, bytes FROM archive_files WHERE domain_key = ${domainKey} AND state = 'live' AND kind <> 'data' ORDER BY key`.execute(
    db,
  )
  return rows
}

/** The range is exported again, with files and metadata of its own. */
export async function markDamaged(db: Queryable, range: RangeKey): Promise<void> {
  await sql`
    UPDATE archive_ranges SET changes = changes + 1, due_at = now()
     WHERE domain_key = ${range.domainKey} AND retention_days = ${range.retentionDays} AND range_start = ${range.from}::timestamptz`.execute(
    db,
  )
}

/**
 * Every range of the domain is exported again, with new metadata. Of a table without records nothing is exported, so it goes until it has some.
 * The lock is that of a commit, which ends before or begins the table again.
 */
export async function markAllDamaged(tx: Queryable, domainKey: number): Promise<void> {
  await sql`SELECT FROM archive_tables WHERE domain_key = ${domainKey} FOR UPDATE`.execute(tx)
  await sql`UPDATE archive_ranges SET changes = changes + 1, due_at = now() WHERE domain_key = ${domainKey}`.execute(tx)
  await sql`
    UPDATE archive_tables SET snapshot_id = NULL, metadata_path = NULL, metadata = NULL, updated_at = NULL
     WHERE domain_key = ${domainKey}
       AND NOT EXISTS (SELECT FROM archive_files WHERE domain_key = ${domainKey} AND state = 'live' AND kind = 'data')`.execute(
    tx,
  )
  await sql`
    UPDATE archive_files SET state = 'removed', removed_at = now()
     WHERE domain_key = ${domainKey} AND state = 'live'
       AND EXISTS (SELECT FROM archive_tables WHERE domain_key = ${domainKey} AND snapshot_id IS NULL)`.execute(tx)
}
