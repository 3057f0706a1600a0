/**
 * What tasks publish, on its way to the channels (task-manager.md section 5). A row was written in the transaction of what
 * it reports; here it is stored under its own name, so that whoever repeats it stores nothing twice, and then removed.
 */
import { createHash } from 'node:crypto'
import { findActingUser } from '#api/identity/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import { SENML_JSON, parseContent } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { startQueueReader } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'

export type PublicationDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'publish'>
  logger: Logger
  intervalMs: number
}

type Row = {
  key: number
  domain_id: string
  user_key: number
  channel_id: string
  subtopic: string
  payload: string
  run_id: string
  fence: number
  call_id: number
  tries: number
  created_at: string
}

const MAX_ROWS = 500
/** Who takes rows and dies is followed by another node after this. */
const TAKEN_MS = 30_000
/** Waits double from a second on while the store has no room. */
const MAX_WAIT_DOUBLINGS = 6

// Taken for a while, in the order in which they were written; another node takes others.
const take = sql<Row>`
  UPDATE task_publications p SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8), tries = least(p.tries + 1, 1000)
  FROM (SELECT key FROM task_publications WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due
  JOIN task_publications q ON q.key = due.key JOIN domains d ON d.key = q.domain_key
  WHERE p.key = due.key
  RETURNING p.key, d.id AS domain_id, p.user_key, p.channel_id, p.subtopic, p.payload, p.run_id, p.fence, p.call_id, p.tries,
    p.created_at`

export function startPublications({ database, bus, gate, messages, logger, intervalMs }: PublicationDeps): {
  stop(): Promise<void>
} {
  const { db } = database

  async function publish(row: Row): Promise<void> {
    const principal = await findActingUser(db, row.user_key)
    if (principal === undefined)
      throw new ServiceError('forbidden', 'the user that the task acts as is gone or disabled')
    const path = { domain: row.domain_id, channel: row.channel_id }
    const access = await gate.authorize({ kind: 'user', principal }, path, 'publish')
    const body = Buffer.from(row.payload)
    const receivedAtSeconds = Date.parse(row.created_at) / 1000
    const name = `task publication ${row.run_id} ${row.fence} ${row.call_id}`
    await messages.publish({
      access,
      subtopic: row.subtopic,
      protocol: 'task',
      receivedAtSeconds,
      content: parseContent(SENML_JSON, body, { subtopic: row.subtopic, receivedAtSeconds }),
      original: { contentType: SENML_JSON, body },
      idempotency: { scope: digest(name), requestDigest: digest(row.payload) },
    })
  }

  /** The keys of rows that are done with, and what is to come again. */
  async function settle(rows: readonly Row[]): Promise<void> {
    const done: number[] = []
    const again: { key: number; waitSeconds: number }[] = []
    await Promise.all(
      rows.map(async (row) => {
        try {
          await publish(row)
          done.push(row.key)
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error
          if (error.kind === 'unavailable' || error.kind === 'timeout' || error.kind === 'internal') {
            again.push({ key: row.key, waitSeconds: 2 ** Math.min(row.tries - 1, MAX_WAIT_DOUBLINGS) })
            return
          }
          logger.warn(
            { run: row.run_id, channel: row.channel_id, reason: error.message },
            'what a task published was refused',
          )
          done.push(row.key)
        }
      }),
    )
    if (done.length > 0) await remove(db, done)
    if (again.length > 0) await defer(db, again)
  }

  return startQueueReader({
    database,
    bus,
    table: 'task_publications',
    intervalMs,
    async take() {
      const { rows } = await take.execute(db)
      if (rows.length > 0) await settle(rows.toSorted((left, right) => left.key - right.key))
      return rows.length === MAX_ROWS
    },
    onError: (error) => logger.warn({ err: error }, 'what tasks publish could not be taken to its channels'),
  })
}

async function remove(db: Queryable, keys: readonly number[]): Promise<void> {
  await sql`DELETE FROM task_publications WHERE key = ANY(${keys}::bigint[])`.execute(db)
}

async function defer(db: Queryable, rows: readonly { key: number; waitSeconds: number }[]): Promise<void> {
  const sorted = rows.toSorted((left, right) => left.key - right.key)
  await sql`UPDATE task_publications p SET due_at = now() + make_interval(secs => c.wait)
    FROM unnest(${sorted.map(({ key }) => key)}::bigint[], ${sorted.map(({ waitSeconds }) => waitSeconds)}::float8[]) AS c (key, wait)
    WHERE p.key = c.key`.execute(db)
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
