/**
 * Reads of runs for the API: pages with every attempt, results of any size, output as text. Only the writer writes runs.
 */
import { isUtf8 } from 'node:buffer'
import { wholeCharactersLength } from '#core/bytes/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { MAX_LISTED_RESULT_BYTES, MAX_PAGE_BYTES } from '#core/page.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskState } from '#proto/index.ts'
import { visibleDomainCondition } from '../access/access.ts'
import type { VisibleDomainKeys } from '../access/access.ts'
import type { CauseType, RunCause } from '../model/cause.ts'
import type { LogStreamNumber } from '../model/log-streams.ts'
import { DEFAULT_OUTPUT_BYTES } from '../model/limits.ts'

export type AttemptRecord = {
  attempt: number
  fence: number
  workerId: string | null
  assignedAt: string | null
  runningAt: string | null
  endedAt: string
  reason: string
  error: string | null
}

export type RunRecord = {
  key: number
  id: string
  taskId: string
  taskName: string
  domainId: string | null
  /** null: started before causes were stored. */
  cause: RunCause | null
  drivesTask: boolean
  /** A broadcast; its parts refer to it. */
  isBroadcast: boolean
  parentId: string | null
  state: TaskState
  attempt: number
  fence: number | null
  workerId: string | null
  moduleDigest: string
  moduleReference: string | null
  moduleNotes: string[]
  createdAt: string
  assignedAt: string | null
  runningAt: string | null
  finishedAt: string | null
  durationMs: number | null
  prepareMs: number | null
  reason: string | null
  error: string | null
  /** Stack of the guest after a trap. */
  frames: string[]
  results: unknown
  resultDigest: string | null
  /** Size of a staged result or an omitted one. */
  resultBytes: number | null
  isResultShown: boolean
  outputTruncated: boolean
  /** Its worker started it without a task manager. */
  ranOffline: boolean
  earlier: AttemptRecord[]
}

type Row = {
  key: number
  id: string
  task_id: string
  task_name: string
  domain_id: string | null
  cause: RunCause | null
  drives_task: boolean
  is_broadcast: boolean
  parent_id: string | null
  state: TaskState
  attempt: number
  fence: number | null
  worker_id: string | null
  module_digest: string
  module_reference: string | null
  module_notes: string[] | null
  created_at: string
  assigned_at: string | null
  running_at: string | null
  finished_at: string | null
  duration_ms: number | null
  prepare_ms: number | null
  reason: string | null
  error: string | null
  frames: string[] | null
  results: unknown
  result_digest: string | null
  result_bytes: number | null
  is_result_shown: boolean
  output_truncated: boolean
  ran_offline: boolean
}

/** Size of a result of `runs r` in bytes, in the row or staged. */
export const RESULT_BYTES = sql`coalesce(r.result_bytes, octet_length(r.results::text))`

/** Results where `isShown`; otherwise, and for staged ones, the size. */
const columnsWith = (isShown: Sql<boolean>) => sql`
  r.key, r.id, k.id AS task_id, k.name AS task_name, k.domain_id, r.cause, r.drives_task, r.is_broadcast, r.parent_id, r.state, r.attempt, r.fence, w.id AS worker_id, r.module_digest,
    r.spec ->> 'module_reference' AS module_reference, r.spec -> 'module_notes' AS module_notes, r.created_at, r.assigned_at, r.running_at, r.finished_at, r.duration_ms,
    r.prepare_ms, r.reason, r.error, r.frames, CASE WHEN ${isShown} THEN r.results END AS results, (${isShown}) IS TRUE AS is_result_shown, r.result_digest,
    CASE WHEN ${isShown} THEN r.result_bytes ELSE ${RESULT_BYTES} END AS result_bytes, r.output_truncated, r.ran_offline`

const OTHERS = sql`JOIN tasks k ON k.key = r.task_key LEFT JOIN workers w ON w.key = r.worker_key`

const runsWith = (isShown: Sql<boolean>) => sql`SELECT ${columnsWith(isShown)} FROM runs r ${OTHERS}`

/** Larger results are not listed. */
const LISTED = {
  columns: columnsWith(sql<boolean>`${RESULT_BYTES} <= ${MAX_LISTED_RESULT_BYTES}`),
  from: sql`runs r`,
  joined: { alias: 'r', key: 'key', tables: OTHERS },
}

const NEWEST_KEY_FIRST = new Keyset([{ by: sql`r.key`, type: 'number' }], 'desc')

const WHOLE_RUNS = runsWith(sql<boolean>`true`)

function fromRow(row: Row, earlier: AttemptRecord[]): RunRecord {
  return {
    key: row.key,
    id: row.id,
    taskId: row.task_id,
    taskName: row.task_name,
    domainId: row.domain_id,
    cause: row.cause,
    drivesTask: row.drives_task,
    isBroadcast: row.is_broadcast,
    parentId: row.parent_id,
    state: row.state,
    attempt: row.attempt,
    fence: row.fence,
    workerId: row.worker_id,
    moduleDigest: row.module_digest,
    moduleReference: row.module_reference,
    moduleNotes: row.module_notes ?? [],
    createdAt: row.created_at,
    assignedAt: row.assigned_at,
    runningAt: row.running_at,
    finishedAt: row.finished_at,
    durationMs: row.duration_ms,
    prepareMs: row.prepare_ms,
    reason: row.reason,
    error: row.error,
    frames: row.frames ?? [],
    results: row.results,
    resultDigest: row.result_digest,
    resultBytes: row.result_bytes,
    isResultShown: row.is_result_shown,
    outputTruncated: row.output_truncated,
    ranOffline: row.ran_offline,
    earlier,
  }
}

/** The newest run first. */
export async function listRuns(
  db: Queryable,
  taskKey: number,
  range: PageRange,
): Promise<{ total: number; runs: RunRecord[]; next: PageEnd }> {
  const where = sql<boolean>`r.task_key = ${taskKey}`
  const [{ rows, next }, counted] = await Promise.all([
    readPage<Row>(db, { ...LISTED, where, keyset: NEWEST_KEY_FIRST }, range),
    sql<{ total: number }>`SELECT count(*) AS total FROM runs WHERE task_key = ${taskKey}`.execute(db),
  ])
  return { total: counted.rows[0]?.total ?? 0, runs: await withAttempts(db, rows), next }
}

export type RunFilter = PageRange & {
  domains: VisibleDomainKeys
  taskId?: string | undefined
  workerId?: string | undefined
  states: readonly TaskState[]
  reason?: string | undefined
  cause?: CauseType | undefined
  channelId?: string | undefined
  message?: string | undefined
  userId?: string | undefined
  workflowId?: string | undefined
  replayId?: string | undefined
  /** Seconds since 1970 of the start: `from` inclusive, `to` exclusive. */
  from?: number | undefined
  to?: number | undefined
}

/** Rows that a total counts. */
const MAX_TOTAL = 100_000

/** Runs of any tasks, the newest first. The total is exact up to 100,000. Throws `malformed` for a cursor of another order. */
export async function searchRuns(
  db: Queryable,
  filter: RunFilter,
): Promise<{ total: number; runs: RunRecord[]; next: PageEnd }> {
  const { domains } = filter
  const where = sql<boolean>`${sql.join(runConditions(filter), sql` AND `)}`
  const [onlyDomain, ...otherDomains] = typeof domains === 'string' ? [] : domains
  // The index of runs of a domain is in the order of their starts; keys are too, over all domains.
  const isByStart = onlyDomain !== undefined && otherDomains.length === 0
  const keyset = isByStart ? NEWEST_START_FIRST : NEWEST_KEY_FIRST
  const [{ rows, next }, counted] = await Promise.all([
    readPage<Row>(db, { ...LISTED, where, keyset }, filter),
    sql<{
      total: number
    }>`SELECT count(*) AS total FROM (SELECT FROM runs r WHERE ${where} LIMIT ${MAX_TOTAL}) found`.execute(db),
  ])
  return { total: counted.rows[0]?.total ?? 0, runs: await withAttempts(db, rows), next }
}

const NEWEST_START_FIRST = new Keyset(
  [
    { by: sql`r.created_at`, type: 'time' },
    { by: sql`r.key`, type: 'number' },
  ],
  'desc',
)

function runConditions(filter: RunFilter): Sql<boolean>[] {
  const { domains, states, reason, cause, message, from, to } = filter
  const [onlyDomain, ...otherDomains] = typeof domains === 'string' ? [] : domains
  const conditions: Sql<boolean>[] = [
    onlyDomain !== undefined && otherDomains.length === 0
      ? sql<boolean>`r.domain_key = ${onlyDomain}`
      : visibleDomainCondition(sql`r.domain_key`, domains),
  ]
  if (filter.taskId !== undefined)
    conditions.push(sql<boolean>`r.task_key = (SELECT t.key FROM tasks t WHERE t.id = ${filter.taskId})`)
  if (filter.workerId !== undefined)
    conditions.push(sql<boolean>`r.worker_key = (SELECT w.key FROM workers w WHERE w.id = ${filter.workerId})`)
  if (states.length > 0) conditions.push(sql<boolean>`r.state = ANY (${[...states]}::smallint[])`)
  if (reason !== undefined) conditions.push(sql<boolean>`r.reason = ${reason}`)
  if (cause !== undefined) conditions.push(sql<boolean>`r.cause ->> 'type' = ${cause}`)
  if (message !== undefined) conditions.push(sql<boolean>`r.cause ->> 'message' = ${message}`)
  for (const [name, value] of [
    ['channel_id', filter.channelId],
    ['user_id', filter.userId],
    ['workflow_id', filter.workflowId],
    ['replay_id', filter.replayId],
  ] as const)
    if (value !== undefined) conditions.push(sql<boolean>`r.cause ->> ${name} = ${value}`)
  if (from !== undefined) conditions.push(sql<boolean>`r.created_at >= to_timestamp(${from}::float8)`)
  if (to !== undefined) conditions.push(sql<boolean>`r.created_at < to_timestamp(${to}::float8)`)
  return conditions
}

/** Undefined: the run was deleted. */
export async function findRunKey(db: Queryable, runId: string): Promise<number | undefined> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM runs WHERE id = ${runId}`.execute(db)
  return rows[0]?.key
}

export async function findRun(db: Queryable, taskKey: number, runId: string): Promise<RunRecord | undefined> {
  const { rows } = await sql<Row>`${WHOLE_RUNS} WHERE r.task_key = ${taskKey} AND r.id = ${runId}`.execute(db)
  return (await withAttempts(db, rows))[0]
}

/** The newest runs of a task, at most `RECENT_RUNS`. */
export type RecentRuns = {
  runs: number
  failed: number
  /** The time from the start of the oldest of them to now; 0: there are none. */
  seconds: number
}
export const RECENT_RUNS = 100

export async function countRecentRuns(db: Queryable, taskKey: number): Promise<RecentRuns> {
  const { rows } = await sql<RecentRuns>`
    SELECT count(*)::integer AS runs, count(*) FILTER (WHERE state = ${TASK_STATE.failed})::integer AS failed,
           coalesce(greatest(extract(epoch FROM now() - min(created_at)), 0), 0)::float8 AS seconds
      FROM (SELECT r.state, r.created_at FROM runs r WHERE r.task_key = ${taskKey} ORDER BY r.key DESC LIMIT ${RECENT_RUNS}) newest`.execute(
    db,
  )
  return rows[0] as RecentRuns
}

/** What a run was started with. */
export type RunInputs = {
  /** Null: the module was not read before the start, and the task names no function. */
  called: string | null
  /** Null: they are larger than `MAX_SHOWN_INPUT_BYTES`. */
  inputs: unknown
  /** Null: none, or they are larger. */
  cliArgs: string[] | null
  inputBytes: number
}

/** Larger inputs are only measured. */
const MAX_SHOWN_INPUT_BYTES = 262_144

/**
 * Undefined for a run that a message or a command started: its inputs are these, which only those who may read the channel or the client read
 * there.
 */
export async function findRunInputs(db: Queryable, runKey: number): Promise<RunInputs | undefined> {
  const { rows } = await sql<RunInputs>`
    SELECT coalesce(r.spec ->> 'function', r.spec ->> 'called') AS called, given.bytes AS "inputBytes",
           CASE WHEN given.bytes <= ${MAX_SHOWN_INPUT_BYTES} THEN r.spec -> 'inputs' END AS inputs,
           CASE WHEN given.bytes <= ${MAX_SHOWN_INPUT_BYTES} AND json_typeof(r.spec -> 'cli_args') = 'array'
                THEN r.spec -> 'cli_args' END AS "cliArgs"
      FROM runs r, LATERAL (
        SELECT octet_length(coalesce(r.spec ->> 'inputs', '')) + octet_length(coalesce(r.spec ->> 'cli_args', '')) AS bytes) given
     WHERE r.key = ${runKey} AND r.spec -> 'trigger' IS NULL AND r.cause ->> 'type' IS DISTINCT FROM 'command'`.execute(
    db,
  )
  return rows[0]
}

/**
 * The runs of a broadcast, each with its target worker, whether or not it is assigned to it. Results are included as far
 * as they fit on a page together.
 */
export async function listParts(db: Queryable, parentId: string): Promise<RunRecord[]> {
  const [{ rows }, meant] = await Promise.all([
    sql<Row>`
      WITH fitting AS MATERIALIZED (
        SELECT r.key FROM (SELECT r.key, sum(coalesce(${RESULT_BYTES}, 0)) OVER (ORDER BY r.key) AS bytes FROM runs r
                           WHERE r.parent_id = ${parentId}) r WHERE r.bytes <= ${MAX_PAGE_BYTES})
      ${runsWith(sql<boolean>`r.key IN (SELECT key FROM fitting)`)} WHERE r.parent_id = ${parentId} ORDER BY r.key`.execute(
      db,
    ),
    sql<{ key: number; worker_id: string }>`
      SELECT r.key, n.definition ->> 'workerId' AS worker_id FROM runs r JOIN run_needs n ON n.hash = r.needs
      WHERE r.parent_id = ${parentId}`.execute(db),
  ])
  const workers = new Map(meant.rows.map((row) => [row.key, row.worker_id]))
  const parts = await withAttempts(db, rows)
  return parts.map((part) => ({ ...part, workerId: part.workerId ?? workers.get(part.key) ?? null }))
}

/** The run that sets the task's result; undefined if the task was never started, or edited since. */
export async function findDrivingRun(db: Queryable, taskKey: number): Promise<RunRecord | undefined> {
  const { rows } = await sql<Row>`${WHOLE_RUNS} JOIN tasks t ON t.run_key = r.key WHERE t.key = ${taskKey}`.execute(db)
  return (await withAttempts(db, rows))[0]
}

/** The newest run of any kind: a start, an invocation, or a part of a broadcast; undefined if there is none. */
export async function findNewestRun(db: Queryable, taskKey: number): Promise<RunRecord | undefined> {
  const { rows } = await sql<Row>`${WHOLE_RUNS} WHERE r.task_key = ${taskKey} ORDER BY r.key DESC LIMIT 1`.execute(db)
  return (await withAttempts(db, rows))[0]
}

async function withAttempts(db: Queryable, rows: readonly Row[]): Promise<RunRecord[]> {
  if (rows.length === 0) return []
  const attempts = await sql<AttemptRecord & { runKey: number }>`
    SELECT a.run_key AS "runKey", a.attempt, a.fence, w.id AS "workerId", a.assigned_at AS "assignedAt", a.running_at AS "runningAt",
      a.ended_at AS "endedAt", a.reason, a.error
    FROM run_attempts a LEFT JOIN workers w ON w.key = a.worker_key
    WHERE a.run_key = ANY(${rows.map((row) => row.key)}::bigint[]) ORDER BY a.run_key, a.fence`.execute(db)
  const earlier = Map.groupBy(attempts.rows, (row) => row.runKey)
  return rows.map((row) =>
    fromRow(
      row,
      (earlier.get(row.key) ?? []).map(({ runKey: _runKey, ...attempt }) => attempt),
    ),
  )
}

/** The result of a run as a value, joined from its parts if it was staged. */
export async function readResult(
  db: Queryable,
  run: { results: unknown; resultDigest: string | null },
): Promise<unknown> {
  if (run.resultDigest === null) return run.results
  const { rows } = await sql<{ data: Buffer }>`
    SELECT data FROM staged_results WHERE digest = ${run.resultDigest} ORDER BY byte_offset`.execute(db)
  return JSON.parse(Buffer.concat(rows.map((row) => row.data)).toString('utf8')) as unknown
}

export type EndedRow = {
  key: number
  id: string
  state: TaskState
  worker_id: string | null
  reason: string | null
  error: string | null
  frames: string[] | null
  results: string | null
  result_digest: string | null
  result_bytes: number | null
  duration_ms: number | null
  prepare_ms: number | null
  output_truncated: boolean
}

/** The ended runs among these. */
export async function findEnded(db: Queryable, runKeys: readonly number[]): Promise<EndedRow[]> {
  const { rows } = await sql<EndedRow>`
    SELECT r.key, r.id, r.state, w.id AS worker_id, r.reason, r.error, r.frames, r.results::text AS results, r.result_digest, r.result_bytes,
      r.duration_ms, r.prepare_ms, r.output_truncated
    FROM runs r LEFT JOIN workers w ON w.key = r.worker_key
    WHERE r.key = ANY(${runKeys}::bigint[]) AND r.next_check_at IS NULL`.execute(db)
  return rows
}

/** As `findEnded`, without what they returned. */
export async function findEndedKeys(db: Queryable, runKeys: readonly number[]): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM runs
    WHERE key = ANY(${runKeys}::bigint[]) AND next_check_at IS NULL`.execute(db)
  return rows.map(({ key }) => key)
}

/** A stream of a run, in the order it was written; undefined: stdout and stderr. Text if it is UTF-8. */
export async function readLogs(
  db: Queryable,
  runKey: number,
  stream: LogStreamNumber | undefined,
): Promise<string | Buffer> {
  const { rows } = await sql<{ data: Buffer; truncated: boolean; max_bytes: number | null }>`
    SELECT l.data, l.truncated, CASE WHEN l.truncated THEN (r.spec ->> 'max_output_bytes')::float8 END AS max_bytes
    FROM run_logs l JOIN runs r ON r.key = l.run_key
    WHERE l.run_key = ${runKey} AND l.stream = ANY(${stream === undefined ? [1, 2] : [stream]}::smallint[])
    ORDER BY l.stream, l.byte_offset LIMIT ${MAX_LOG_ROWS}`.execute(db)
  const written = rows.length > 0 ? undefined : await readOutputOfResult(db, runKey)
  const parts = written?.filter((part) => stream === undefined || part.stream === stream) ?? rows
  const data = Buffer.concat(parts.map((part) => part.data))
  const cut = rows.find((row) => row.truncated)
  const whole = cut === undefined ? data : data.subarray(0, wholeCharactersLength(data))
  if (!isUtf8(whole)) return data
  const text = whole.toString('utf8')
  return cut === undefined ? text : `${text}\n[truncated at ${cut.max_bytes ?? DEFAULT_OUTPUT_BYTES} bytes]\n`
}

/** The outputs of an ended command that are not stored apart, because its result has all of them; undefined: they are, or it is none. */
export async function readOutputOfResult(
  db: Queryable,
  runKey: number,
): Promise<{ stream: LogStreamNumber; data: Buffer }[] | undefined> {
  const { rows } = await sql<{ results: unknown; resultDigest: string | null }>`
    SELECT r.results, r.result_digest AS "resultDigest" FROM runs r
    WHERE r.key = ${runKey} AND r.next_check_at IS NULL AND NOT r.output_truncated AND coalesce(r.results::text, r.result_digest) IS NOT NULL
      AND NOT EXISTS (SELECT FROM run_logs l WHERE l.run_key = r.key)`.execute(db)
  const [run] = rows
  const results = run === undefined ? undefined : await readResult(db, run)
  if (typeof results !== 'object' || results === null || !('exit_code' in results)) return undefined
  const { stdout, stderr } = results as { stdout?: unknown; stderr?: unknown }
  const outputs = [stdout, stderr].map(writtenBytes)
  return outputs.flatMap((data, index) => (data === undefined ? [] : [{ stream: index === 0 ? 1 : 2, data }]))
}

function writtenBytes(output: unknown): Buffer | undefined {
  if (typeof output === 'string') return Buffer.from(output)
  if (typeof output !== 'object' || output === null || !('base64' in output)) return undefined
  return typeof output.base64 === 'string' ? Buffer.from(output.base64, 'base64') : undefined
}

/** The position of a reader in one stream, and the begin of a character before it whose end was not read. */
export type LogPlace = { stream: LogStreamNumber; offset: number; begun: Buffer }
export type LogPart = { stream: number; offset: number; data: Buffer; truncated: boolean }

const MAX_PARTS = 500
/** Approximate size of one read; more is read when the reader has taken it. */
const MAX_READ_BYTES = 64 * 1024

/** The next parts of each stream, and the final state of the run if it has ended. */
export async function readLogParts(
  db: Queryable,
  runKey: number,
  places: readonly LogPlace[],
): Promise<{ parts: LogPart[]; state: TaskState | undefined; isGone: boolean }> {
  // The state is read first: the next read finds output that comes afterwards.
  const { rows: states } = await sql<{ state: TaskState; has_ended: boolean }>`
    SELECT state, next_check_at IS NULL AS has_ended FROM runs WHERE key = ${runKey}`.execute(db)
  const { rows: parts } = await sql<LogPart>`
    SELECT stream, "offset", data, truncated FROM (
      SELECT l.stream, l.byte_offset AS "offset", l.data, l.truncated,
        sum(length(l.data)) OVER (ORDER BY l.stream, l.byte_offset) - length(l.data) AS bytes_before
      FROM unnest(${places.map(({ stream }) => stream)}::smallint[], ${places.map(({ offset }) => offset)}::bigint[]) AS p (stream, byte_offset)
      JOIN run_logs l ON l.run_key = ${runKey} AND l.stream = p.stream AND l.byte_offset >= p.byte_offset) l
    WHERE bytes_before < ${MAX_READ_BYTES} ORDER BY stream, "offset" LIMIT ${MAX_PARTS}`.execute(db)
  const [run] = states
  return { parts, state: run?.has_ended === true ? run.state : undefined, isGone: run === undefined }
}

/** A guest that writes single bytes creates many rows of a bounded output. */
const MAX_LOG_ROWS = 100_000
