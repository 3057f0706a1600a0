/** Replays: stored messages handed to the task managers as if they came now, record by record, the oldest first. */
import { findActingUser } from '#api/identity/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import type { Messages, StoredMessage } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { jsonArray } from '#core/database/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { hintQueue, startQueueReader } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'

export type ReplayDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'read'>
  logger: Logger
  intervalMs: number
}

type Row = {
  key: number
  id: string
  task_key: number
  user_key: number
  domain_id: string | null
  channel_id: string
  /** Of the record that was handed last, once one was. */
  from_time: number
  to_time: number
  /** Records of that time that were handed. */
  next_offset: number
}

const PAGE = 200
/** So many records of a replay wait for runs at a time. */
const MAX_WAITING = 500

export function startReplays({ database, bus, gate, messages, logger, intervalMs }: ReplayDeps): {
  stop(): Promise<void>
} {
  const { db } = database

  async function step(row: Row): Promise<'more' | 'later' | 'done'> {
    const principal = await findActingUser(db, row.user_key)
    if (principal === undefined || row.domain_id === null) return 'done'
    const path = { domain: row.domain_id, channel: row.channel_id }
    const access = await gate.authorize({ kind: 'user', principal }, path, 'subscribe')
    const page = await messages.read(access, {
      offset: row.next_offset,
      limit: PAGE,
      format: 'messages',
      from: row.from_time,
      to: row.to_time,
      dir: 'asc',
    })
    const given: Given[] = []
    let { from_time: time, next_offset: place } = row
    for (const message of page.messages) {
      place = message.time === time ? place : 0
      time = message.time ?? 0
      given.push({
        origin: `replay ${row.id} ${time} ${place}`,
        message: JSON.stringify(toMessage(message, row.channel_id)),
      })
      place += 1
    }
    const next = page.messages.length < PAGE ? undefined : { time, place }
    await database.transaction(async (tx) => await hand(tx, row, given, next))
    hintQueue(bus, 'task_messages')
    return next === undefined ? 'done' : 'more'
  }

  async function round(): Promise<boolean> {
    const row = await takeNext(database)
    if (row === undefined) return false
    try {
      const outcome = await step(row)
      if (outcome === 'done') await sql`DELETE FROM task_replays WHERE key = ${row.key}`.execute(db)
      return true
    } catch (error) {
      if (!(error instanceof ServiceError) || error.kind === 'unavailable' || error.kind === 'timeout') throw error
      logger.info({ replay: row.id, reason: error.message }, 'a replay was ended')
      await sql`DELETE FROM task_replays WHERE key = ${row.key}`.execute(db)
      return true
    }
  }

  return startQueueReader({
    database,
    bus,
    table: 'task_replays',
    intervalMs,
    take: round,
    onError: (error) => logger.warn({ err: error }, 'a replay could not be gone on with'),
  })
}

/** Who takes a page and dies is followed by another node after this. */
const TAKEN_SECONDS = 30

/** A replay whose task has room; taken for a while. */
async function takeNext({ db }: Database): Promise<Row | undefined> {
  const { rows } = await sql<Row>`
    UPDATE task_replays p SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS})
    FROM tasks t WHERE t.key = p.task_key AND p.key = (
      SELECT key FROM task_replays r WHERE due_at <= now()
        AND (SELECT count(*) FROM task_messages m WHERE m.task_key = r.task_key) < ${MAX_WAITING}
      ORDER BY due_at, key LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING p.key, p.id, p.task_key, p.user_key, t.domain_id, p.channel_id, p.from_time, p.to_time, p.next_offset`.execute(
    db,
  )
  return rows[0]
}

type Given = { origin: string; message: string }

/** `next`: where it goes on, by time and not by number: records that come or go meanwhile move no other. */
async function hand(
  tx: Transaction,
  row: Row,
  given: readonly Given[],
  next: { time: number; place: number } | undefined,
): Promise<void> {
  await sql`INSERT INTO task_messages (task_key, origin, message)
    SELECT ${row.task_key}, m.origin, m.message
    FROM unnest(${given.map(({ origin }) => origin)}::text[], ${jsonArray(given.map(({ message }) => message))}::json[]) AS m (origin, message)
    ON CONFLICT ON CONSTRAINT task_messages_origin_key DO NOTHING`.execute(tx)
  if (next !== undefined) {
    await sql`UPDATE task_replays SET from_time = ${next.time}, next_offset = ${next.place}, due_at = now()
      WHERE key = ${row.key}`.execute(tx)
  }
}

/** A stored record as SenML names its fields. */
function toMessage(stored: StoredMessage, channelId: string) {
  const record = {
    n: stored.name ?? '',
    ...(stored.unit === undefined ? {} : { u: stored.unit }),
    t: stored.time ?? 0,
    ...(stored.value === undefined ? {} : { v: stored.value }),
    ...(stored.string_value === undefined ? {} : { vs: stored.string_value }),
    ...(stored.bool_value === undefined ? {} : { vb: stored.bool_value }),
    ...(stored.data_value === undefined ? {} : { vd: stored.data_value }),
    ...(stored.sum === undefined ? {} : { s: stored.sum }),
  }
  const { subtopic = '', publisher, protocol } = stored
  return { channel_id: channelId, subtopic, publisher, protocol, records: [record] }
}
