/**
 * `task_replays`: time ranges of stored messages that a task processes again (task-manager.md section 5). A manager creates a replay;
 * nodes of the platform read it page by page into the queue of messages, oldest first, and remove it at its end.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { hintQueue, startQueueReader } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { MESSAGE_COUNT } from './packs.ts'
import { hintMessages, queueMessages } from './messages.ts'
import { clearRefusals } from './task-errors.ts'
import type { NewMessage } from './messages.ts'

const TABLE = 'task_replays'

/** The limit of replays of one task. */
export const MAX_OPEN_REPLAYS = 10
/** A replay pauses while this many messages of its task wait for runs. */
const MAX_WAITING = 500
/** The time after which another node takes a replay of a dead one. */
const TAKEN_SECONDS = 30

export type NewReplay = {
  id: string
  taskKey: number
  /** The user whose right to read the channel is checked. */
  userKey: number
  channelId: string
  /** Seconds since 1970, inclusive. */
  from: number
  /** Seconds since 1970, exclusive. */
  to: number
}

/** False when the task has `MAX_OPEN_REPLAYS` replays or was deleted. */
export async function openReplay({ db }: Database, bus: Bus, replay: NewReplay): Promise<boolean> {
  const { rows } = await sql`
    INSERT INTO task_replays (id, task_key, user_key, channel_id, from_time, to_time)
    SELECT ${replay.id}, t.key, ${replay.userKey}, ${replay.channelId}, ${replay.from}, ${replay.to} FROM tasks t
    WHERE t.key = ${replay.taskKey} AND (SELECT count(*) FROM task_replays r WHERE r.task_key = t.key) < ${MAX_OPEN_REPLAYS}
    RETURNING id`.execute(db)
  if (rows.length === 0) return false
  hintQueue(bus, TABLE)
  return true
}

export type OpenReplay = {
  key: number
  id: string
  taskKey: number
  userKey: number
  domainId: string | null
  channelId: string
  /** The time of the last delivered record; initially the start of the range. */
  fromTime: number
  toTime: number
  /** The number of delivered records with that time. */
  nextOffset: number
}

export type ReplayStep = {
  messages: readonly NewMessage[]
  /** The position of the next page, by time: inserted or deleted records do not move it. Undefined at the end. */
  next: { fromTime: number; nextOffset: number } | undefined
  /** Why it ends before its end. */
  refused?: string
}

export type ReplayReaderOptions = {
  database: Database
  bus: Bus
  intervalMs: number
  /** Reads the next page. Errors are reported to `onError`, and the replay is retried later. */
  read: (replay: OpenReplay) => Promise<ReplayStep>
  /** Called in the transaction that removes a replay that was refused. */
  onRefused: (tx: Transaction, replay: OpenReplay, reason: string) => Promise<void>
  onError: (error: unknown) => void
}

export function startReplayReader({ database, bus, intervalMs, read, onRefused, onError }: ReplayReaderOptions): {
  stop(): Promise<void>
} {
  return startQueueReader({
    database,
    bus,
    table: TABLE,
    intervalMs,
    onError,
    async take() {
      const replay = await takeNext(database.db)
      if (replay === undefined) return false
      const { messages, next, refused } = await read(replay)
      await database.transaction(async (tx) => {
        await queueMessages(tx, replay.taskKey, messages)
        await (
          next === undefined
            ? sql`WITH cleared AS (${clearRefusals('replay', refused === undefined ? [replay.taskKey] : [])})
              DELETE FROM task_replays WHERE key = ${replay.key}`
            : sql`UPDATE task_replays SET from_time = ${next.fromTime}, next_offset = ${next.nextOffset}, due_at = now()
              WHERE key = ${replay.key}`
        ).execute(tx)
        if (refused !== undefined) await onRefused(tx, replay, refused)
      })
      hintMessages(bus)
      return true
    },
  })
}

/** Takes a replay whose task has room. */
async function takeNext(db: Queryable): Promise<OpenReplay | undefined> {
  const { rows } = await sql<OpenReplay>`
    UPDATE task_replays p SET due_at = now() + make_interval(secs => ${TAKEN_SECONDS})
    FROM tasks t WHERE t.key = p.task_key AND p.key = (
      SELECT key FROM task_replays r WHERE due_at <= now()
        AND (SELECT coalesce(sum(${MESSAGE_COUNT}), 0) FROM task_messages m WHERE m.task_key = r.task_key) < ${MAX_WAITING}
      ORDER BY due_at, key LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING p.key, p.id, p.task_key AS "taskKey", p.user_key AS "userKey", t.domain_id AS "domainId",
      p.channel_id AS "channelId", p.from_time AS "fromTime", p.to_time AS "toTime", p.next_offset AS "nextOffset"`.execute(
    db,
  )
  return rows[0]
}
