/**
 * `task_publications`: what tasks publish, on its way to the channels (task-manager.md section 5). A manager writes the row
 * in the transaction of what it reports. Some node of the platform publishes it under the name of its call, so that a
 * repeated one stores nothing twice, and removes it.
 */
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { isTemporary } from './temporary.ts'

const TABLE = 'task_publications'

/** Rows that a node takes at a time. */
const MAX_ROWS = 500
/** Another node takes the rows of one that died after this. */
const TAKEN_MS = 30_000
/** Retries wait from one second on, doubled this often at most. */
const MAX_WAIT_DOUBLINGS = 6
/** Calls of guests are numbered from 1 on. */
const RESULT_CALL = 0

type Publication = {
  domainKey: number
  /** The user that the task acts as. */
  userKey: number
  channelId: string
  subtopic: string
  taskKey: number
  runId: string
  fence: number
}

export type ResultPublication = Publication & {
  /** SenML records without a time: they get that of the transaction. */
  records: readonly object[]
}

/** The statement that writes results as messages, for the transaction that writes the results. */
export function publicationsOf(results: readonly ResultPublication[]): {
  name: string
  text: string
  values: unknown[]
} {
  return {
    name: 'write-publications',
    text: WRITE_RESULTS,
    values: [
      results.map(({ domainKey }) => domainKey),
      results.map(({ userKey }) => userKey),
      results.map(({ channelId }) => channelId),
      results.map(({ subtopic }) => subtopic),
      jsonArray(results.map(({ records }) => JSON.stringify(records))),
      results.map(({ taskKey }) => taskKey),
      results.map(({ runId }) => runId),
      results.map(({ fence }) => fence),
    ],
  }
}

// The time of the record is that of the end: both are the transaction's.
const WRITE_RESULTS = `
  INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id)
  SELECT c.domain_key, c.user_key, c.channel_id, c.subtopic,
    (SELECT jsonb_agg(record || jsonb_build_object('t', round(extract(epoch FROM now()), 6))) FROM jsonb_array_elements(c.records) record)::text,
    c.task_key, c.run_id, c.fence, ${RESULT_CALL}
  FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::jsonb[], $6::bigint[], $7::uuid[], $8::bigint[])
    AS c (domain_key, user_key, channel_id, subtopic, records, task_key, run_id, fence)
  ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING`

export type CallPublication = Omit<Publication, 'taskKey'> & {
  /** Of the guest's call, within its run and fence; 1 at least. */
  callId: number
  /** A SenML pack. */
  payload: string
  /** States in which a run may publish. */
  openStates: readonly number[]
}

/** Stores what a running guest published. False when its run has ended or has another fence; a repeated call stores nothing. */
export async function publishCall(db: Queryable, call: CallPublication): Promise<boolean> {
  const { rows } = await sql<{ is_current: boolean }>`
    WITH held AS MATERIALIZED (
      SELECT r.id, r.fence, r.task_key FROM runs r WHERE r.id = ${call.runId} AND r.fence = ${call.fence}
        AND r.state = ANY(${call.openStates}::int[]) FOR KEY SHARE),
    stored AS (
      INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id)
      SELECT ${call.domainKey}, ${call.userKey}, ${call.channelId}, ${call.subtopic}, ${call.payload}, held.task_key, held.id,
        held.fence, ${call.callId} FROM held
      ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING)
    SELECT EXISTS (SELECT 1 FROM held) AS is_current`.execute(db)
  return rows[0]?.is_current === true
}

/** To be called after the commit of what was published. */
export function hintPublications(bus: Bus): void {
  hintQueue(bus, TABLE)
}

export type QueuedPublication = {
  key: number
  domainId: string
  userKey: number
  channelId: string
  subtopic: string
  payload: string
  runId: string
  fence: number
  callId: number
  attempts: number
  createdAt: string
}

// In the order in which they were written; another node takes others.
const TAKE = sql<QueuedPublication>`
  UPDATE task_publications p SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8), attempts = least(p.attempts + 1, 1000)
  FROM (SELECT key FROM task_publications WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due
  JOIN task_publications q ON q.key = due.key JOIN domains d ON d.key = q.domain_key
  WHERE p.key = due.key
  RETURNING p.key, d.id AS "domainId", p.user_key AS "userKey", p.channel_id AS "channelId", p.subtopic, p.payload,
    p.run_id AS "runId", p.fence, p.call_id AS "callId", p.attempts, p.created_at AS "createdAt"`

export type PublicationReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Resolves when the message is stored; called again with the same row after a failure of any process. */
  publish: (publication: QueuedPublication) => Promise<void>
  /** The row is removed. */
  onRefused: (publication: QueuedPublication, refusal: ServiceError) => void
  onError: (error: unknown) => void
}

export function startPublicationReader({ database, bus, intervalMs, ...options }: PublicationReaderOptions): {
  stop(): Promise<void>
} {
  const { publish, onRefused, onError } = options
  const { db } = database

  /** The seconds until it is tried again; undefined: it is done with. */
  async function attempt(publication: QueuedPublication): Promise<number | undefined> {
    try {
      await publish(publication)
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      if (isTemporary(error)) return 2 ** Math.min(publication.attempts - 1, MAX_WAIT_DOUBLINGS)
      onRefused(publication, error)
    }
    return undefined
  }

  return startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      const { rows } = await TAKE.execute(db)
      const publications = rows.toSorted((left, right) => left.key - right.key)
      const waits = await Promise.all(publications.map(attempt))
      const settled = publications.map(({ key }, index) => ({ key, waitSeconds: waits[index] }))
      await remove(
        db,
        settled.filter(({ waitSeconds }) => waitSeconds === undefined).map(({ key }) => key),
      )
      await defer(
        db,
        settled.flatMap(({ key, waitSeconds }) => (waitSeconds === undefined ? [] : [{ key, waitSeconds }])),
      )
      return rows.length === MAX_ROWS
    },
  })
}

async function remove(db: Queryable, keys: readonly number[]): Promise<void> {
  if (keys.length === 0) return
  await sql`DELETE FROM task_publications WHERE key = ANY(${keys}::bigint[])`.execute(db)
}

async function defer(db: Queryable, rows: readonly { key: number; waitSeconds: number }[]): Promise<void> {
  if (rows.length === 0) return
  await sql`UPDATE task_publications p SET due_at = now() + make_interval(secs => c.wait)
    FROM unnest(${rows.map(({ key }) => key)}::bigint[], ${rows.map(({ waitSeconds }) => waitSeconds)}::float8[]) AS c (key, wait)
    WHERE p.key = c.key`.execute(db)
}
