/**
 * Messages that start runs: taken from where the platform (or a replay) put them, each started once under its origin. The
 * task acts as its user: his right to read the channel is asked again at every run.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { startQueueReader } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { findFunction } from '#core/wasm/index.ts'
import type { DescribedExport } from '#core/wasm/index.ts'
import type { TaskAccess } from '../access.ts'
import type { RunsService } from '../runs/service.ts'
import { takesNumbers } from './trigger-message.ts'
import type { TriggerMessage } from './trigger-message.ts'

export type MessageRunsDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  intervalMs: number
}

type Row = {
  key: number
  task_key: number
  origin: string
  message: TriggerMessage
  task_id: string
  domain_id: string | null
  user_key: number | null
  name: string
  function: string | null
  input_count: number
  exports: DescribedExport[] | null
}

/** What started nothing, and why the last of it did not. */
type Dropped = { count: number; reason: string }

const MAX_ROWS = 500
/** Who takes rows and dies is followed by another manager after this. */
const TAKEN_MS = 30_000
/** While no run can be queued. */
const RETRY_MS = 1_000

const TAKE = sql<Row>`
  UPDATE task_messages m SET due_at = now() + make_interval(secs => ${TAKEN_MS / 1000}::float8)
  FROM (SELECT key FROM task_messages WHERE due_at <= now() ORDER BY due_at, key LIMIT ${MAX_ROWS} FOR UPDATE SKIP LOCKED) due,
    tasks t LEFT JOIN modules d ON d.key = t.module_key
  WHERE m.key = due.key AND t.key = m.task_key
  RETURNING m.key, m.task_key, m.origin, m.message, t.id AS task_id, t.domain_id, t.user_key, t.name, t.function,
    json_array_length(t.inputs) AS input_count, d.exports`

export function startMessageRuns({ database, bus, access, runs, logger, intervalMs }: MessageRunsDeps): {
  stop(): Promise<void>
} {
  const { db } = database

  /** Throws `forbidden` when the task may not read the channel (any more). */
  async function requireRight(row: Row): Promise<void> {
    const user = row.user_key === null ? undefined : await access.findUser(row.user_key)
    if (user === undefined || row.domain_id === null)
      throw new ServiceError('forbidden', 'the user that the task acts as is gone or disabled')
    await access.requireChannel(user, 'subscribe', row.domain_id, row.message.channel_id)
  }

  /** What was not started, record by record where they run one by one. Throws `unavailable` for what is to come again. */
  async function start(row: Row): Promise<Dropped> {
    const refused = await refusalOf(() => requireRight(row))
    if (refused !== undefined) return { count: 1, reason: refused }
    const dropped: Dropped = { count: 0, reason: '' }
    for (const [index, trigger] of partsOf(row).entries()) {
      const key = index === 0 ? row.origin : `${row.origin} ${index}`
      const { task_id: taskId, domain_id: domainId } = row
      const reason = await refusalOf(() =>
        runs.startFor({ taskId, domainId, origin: 'message', key, drivesTask: false, trigger }),
      )
      if (reason === undefined) continue
      dropped.count += 1
      dropped.reason = reason
    }
    return dropped
  }

  async function take(): Promise<boolean> {
    const { rows } = await TAKE.execute(db)
    const done: number[] = []
    const again: number[] = []
    const dropped = new Map<number, Dropped>()
    const work = rows
      .toSorted((left, right) => left.key - right.key)
      .map(async (row) => {
        try {
          const { count, reason } = await start(row)
          done.push(row.key)
          if (count === 0) return
          const before = dropped.get(row.task_key)?.count ?? 0
          dropped.set(row.task_key, { count: before + count, reason })
        } catch (error) {
          again.push(row.key)
          logger.debug({ err: error, task: row.task_id }, 'a message has not started its run yet')
        }
      })
    await Promise.all(work)
    await settle(db, done, again, dropped)
    return rows.length === MAX_ROWS && again.length === 0
  }

  return startQueueReader({
    database,
    bus,
    table: 'task_messages',
    intervalMs,
    take,
    onError: (error) => logger.warn({ err: error }, 'messages that start runs could not be taken'),
  })
}

/** Why it was refused; undefined: it was not. Throws what may be otherwise in a moment. */
async function refusalOf(work: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await work()
    return undefined
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    if (error.kind === 'unavailable' || error.kind === 'timeout' || error.kind === 'internal') throw error
    return error.message
  }
}

/** A function that takes numbers runs once for each record, any other once for the message. */
function partsOf(row: Row): TriggerMessage[] {
  const called =
    row.exports === null
      ? undefined
      : findFunction(row.exports, { explicit: row.function ?? undefined, fallback: row.name })
  const free = called?.params.slice(0, Math.max(called.params.length - row.input_count, 0)) ?? []
  if (!takesNumbers(free)) return [row.message]
  return row.message.records.map((record) => ({ ...row.message, records: [record] }))
}

async function settle(
  db: Queryable,
  done: readonly number[],
  again: readonly number[],
  dropped: ReadonlyMap<number, Dropped>,
): Promise<void> {
  if (done.length > 0) await sql`DELETE FROM task_messages WHERE key = ANY(${done}::bigint[])`.execute(db)
  if (again.length > 0) {
    await sql`UPDATE task_messages SET due_at = now() + make_interval(secs => ${RETRY_MS / 1000}::float8)
      WHERE key = ANY(${again.toSorted((left, right) => left - right)}::bigint[])`.execute(db)
  }
  if (dropped.size === 0) return
  const counts = [...dropped].toSorted(([left], [right]) => left - right)
  await sql`UPDATE task_triggers g SET dropped = g.dropped + c.count, dropped_reason = c.reason
    FROM unnest(${counts.map(([key]) => key)}::bigint[], ${counts.map(([, { count }]) => count)}::int[],
      ${counts.map(([, { reason }]) => reason)}::text[]) AS c (task_key, count, reason)
    WHERE g.task_key = c.task_key`.execute(db)
}
