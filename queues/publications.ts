/**
 * `task_publications`: messages that tasks publish, until they are stored (task-manager.md section 5). A manager writes the row in the
 * transaction of the report. A node of the platform publishes it with the id of its call as idempotency key, and removes it.
 */
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { keepLetters } from './dead-letters.ts'
import { clearRefusals } from './task-errors.ts'
import { isTemporary } from './temporary.ts'

const TABLE = 'task_publications'

/** The number of rows that a node takes at a time. */
const MAX_ROWS = 500
/** The time after which another node takes the rows of a dead one. */
const TAKEN_MS = 30_000
/** The delay of retries starts at one second and is doubled at most this often. */
const MAX_WAIT_DOUBLINGS = 6
/** Calls of guests are numbered from 1 on. */
const RESULT_CALL = 0

type Publication = {
  domainKey: number
  /** The user on whose behalf the task publishes. */
  userKey: number
  channelId: string
  subtopic: string
  taskKey: number
  runId: string
  fence: number
  /** Place of the run in its trace. */
  traceparent?: string | undefined
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
      results.map(({ traceparent }) => traceparent ?? null),
    ],
  }
}

// The time of the record is that of the run's end, which is written in the same transaction.
const WRITE_RESULTS = `
  INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id, traceparent)
  SELECT c.domain_key, c.user_key, c.channel_id, c.subtopic,
    (SELECT jsonb_agg(record || jsonb_build_object('t', round(extract(epoch FROM now()), 6))) FROM jsonb_array_elements(c.records) record)::text,
    c.task_key, c.run_id, c.fence, ${RESULT_CALL}, c.traceparent
  FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::jsonb[], $6::bigint[], $7::uuid[], $8::bigint[], $9::text[])
    AS c (domain_key, user_key, channel_id, subtopic, records, task_key, run_id, fence, traceparent)
  ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING`

export type CallPublication = Omit<Publication, 'taskKey' | 'traceparent'> & {
  /** The number of the guest's call within its run and fence; 1 at least. */
  callId: number
  /** A SenML pack. */
  payload: string
  /** States in which a run may publish. */
  openStates: readonly number[]
}

/** The tables in which calls of guests are stored, and the constraints by which a repeated call has no effect. */
const CALL_TABLES = {
  task_publications: 'task_publications_call_key',
  held_publications: 'held_publications_pkey',
} as const

/** Stores a publication of a running guest. False when its run has ended or has another fence; a repeated call has no effect. */
export const publishCall = (db: Queryable, call: CallPublication): Promise<boolean> =>
  storeCall(db, 'task_publications', call)

/** Stores a publication like `publishCall`, in either table. */
export async function storeCall(
  db: Queryable,
  table: keyof typeof CALL_TABLES,
  call: CallPublication,
): Promise<boolean> {
  const { rows } = await sql<{ is_current: boolean }>`
    WITH held AS MATERIALIZED (
      SELECT r.id, r.fence, r.task_key, r.spec ->> 'traceparent' AS traceparent FROM runs r WHERE r.id = ${call.runId} AND r.fence = ${call.fence}
        AND r.state = ANY(${call.openStates}::int[]) FOR KEY SHARE),
    stored AS (
      INSERT INTO ${sql.raw(table)} (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id, traceparent)
      SELECT ${call.domainKey}, ${call.userKey}, ${call.channelId}, ${call.subtopic}, ${call.payload}, held.task_key, held.id,
        held.fence, ${call.callId}, held.traceparent FROM held
      ON CONFLICT ON CONSTRAINT ${sql.raw(CALL_TABLES[table])} DO NOTHING)
    SELECT EXISTS (SELECT 1 FROM held) AS is_current`.execute(db)
  return rows[0]?.is_current === true
}

/** Call it after the commit of publications. */
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
  taskKey: number
  /** Null: it was deleted. */
  taskId: string | null
  fence: number
  callId: number
  traceparent: string | null
  attempts: number
  createdAt: string
}

// Takes the publications that are due first, in insertion order among equals; concurrent nodes take other rows.
const TAKE = sql<QueuedPublication>`
  UPDATE task_publications p SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8), attempts = least(p.attempts + 1, 1000)
  FROM (SELECT key FROM task_publications WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due
  JOIN task_publications q ON q.key = due.key JOIN domains d ON d.key = q.domain_key LEFT JOIN tasks t ON t.key = q.task_key
  WHERE p.key = due.key
  RETURNING p.key, d.id AS "domainId", p.user_key AS "userKey", p.channel_id AS "channelId", p.subtopic, p.payload,
    p.run_id AS "runId", p.task_key AS "taskKey", t.id AS "taskId", p.fence, p.call_id AS "callId", p.traceparent, p.attempts, p.created_at AS "createdAt"`

export type RefusedPublication = { publication: QueuedPublication; refusal: ServiceError }

/** It waits for its next attempt, or becomes a dead letter for the reason, or is removed, because its task was deleted. */
export type RefusedFate = { waitSeconds: number } | { reason: string } | 'remove'

export type PublicationReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Resolves when the message is stored; may be called again with the same row after a crash. */
  publish: (publication: QueuedPublication) => Promise<void>
  /** Called with rows that were rejected; returns what becomes of each, in their order. */
  onRefused: (refused: readonly RefusedPublication[]) => Promise<readonly RefusedFate[]>
  onError: (error: unknown) => void
}

/** Without `refusal` and `waitSeconds`, the seconds until the next attempt, it was published. */
type Attempt = { publication: QueuedPublication; refusal?: ServiceError; waitSeconds?: number }

export function startPublicationReader({ database, bus, intervalMs, ...options }: PublicationReaderOptions): {
  stop(): Promise<void>
} {
  const { publish, onRefused, onError } = options
  const { db } = database

  async function attempt(publication: QueuedPublication): Promise<Attempt> {
    try {
      await publish(publication)
      return { publication }
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      if (!isTemporary(error)) return { publication, refusal: error }
      return { publication, waitSeconds: 2 ** Math.min(publication.attempts - 1, MAX_WAIT_DOUBLINGS) }
    }
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
      const attempts = await Promise.all(publications.map(attempt))
      await remove(
        db,
        attempts.flatMap(({ publication, refusal, waitSeconds }) =>
          refusal === undefined && waitSeconds === undefined ? [publication] : [],
        ),
        'published',
      )
      const refused = attempts.flatMap(({ publication, refusal }) =>
        refusal === undefined ? [] : [{ publication, refusal }],
      )
      const fates = refused.length === 0 ? [] : await onRefused(refused)
      const [gone, letters]: [QueuedPublication[], { key: number; reason: string }[]] = [[], []]
      const waits = attempts.map(({ publication: { key }, waitSeconds }) => ({ key, waitSeconds }))
      for (const [index, { publication }] of refused.entries()) {
        const { key } = publication
        const fate = fates[index] ?? { waitSeconds: 1 }
        if (fate === 'remove') gone.push(publication)
        else if ('reason' in fate) letters.push({ key, reason: fate.reason })
        else waits.push({ key, waitSeconds: fate.waitSeconds })
      }
      await remove(db, gone, 'refused')
      await keepLetters(db, 'publication', letters)
      await defer(
        db,
        waits.flatMap(({ key, waitSeconds }) => (waitSeconds === undefined ? [] : [{ key, waitSeconds }])),
      )
      return rows.length === MAX_ROWS
    },
  })
}

/** A publication that was published ends the refusals of its task. */
async function remove(
  db: Queryable,
  rows: readonly QueuedPublication[],
  outcome: 'published' | 'refused',
): Promise<void> {
  if (rows.length === 0) return
  const keys = rows.map(({ key }) => key)
  const taskKeys = outcome === 'refused' ? [] : rows.map(({ taskKey }) => taskKey)
  await sql`WITH cleared AS (${clearRefusals('publication', taskKeys)})
    DELETE FROM task_publications WHERE key = ANY(${keys}::bigint[])`.execute(db)
}

async function defer(db: Queryable, rows: readonly { key: number; waitSeconds: number }[]): Promise<void> {
  if (rows.length === 0) return
  await sql`UPDATE task_publications p SET due_at = now() + make_interval(secs => c.wait)
    FROM unnest(${rows.map(({ key }) => key)}::bigint[], ${rows.map(({ waitSeconds }) => waitSeconds)}::float8[]) AS c (key, wait)
    WHERE p.key = c.key`.execute(db)
}
