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

/** A message that is worked on. */
type Work = {
  row: Row
  /** Asked once: why the task may not have the message, if it may not. */
  refused: Promise<string | undefined> | undefined
  /** Nothing more of it is to be started now. */
  isOver: boolean
  /** It comes again: what was started of it is then found started. */
  isBlocked: boolean
  /** Record by record where they run one by one. */
  dropped: Dropped
}

/** One run of a message, and the key under which it is started once. */
type Part = { work: Work; trigger: TriggerMessage; key: string }

const MAX_ROWS = 500
/** Runs that are started at a time. */
const MAX_STARTS = 500
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

  async function start({ work, trigger, key }: Part): Promise<void> {
    const { row, dropped } = work
    try {
      work.refused ??= refusalOf(() => requireRight(row))
      const refused = await work.refused
      if (refused !== undefined) {
        work.isOver = true
        work.dropped = { count: 1, reason: refused }
        return
      }
      const { task_id: taskId, domain_id: domainId } = row
      const reason = await refusalOf(() =>
        runs.startFor({ taskId, domainId, origin: 'message', key, drivesTask: false, trigger }),
      )
      if (reason === undefined) return
      dropped.count += 1
      dropped.reason = reason
    } catch (error) {
      if (!work.isOver) logger.debug({ err: error, task: row.task_id }, 'a message has not started its runs yet')
      work.isOver = true
      work.isBlocked = true
    }
  }

  async function take(): Promise<boolean> {
    const { rows } = await TAKE.execute(db)
    const works = rows.toSorted((left, right) => left.key - right.key).map(workOf)
    // One message may be thousands of runs: they are started side by side too, or all others would wait for the last of them.
    const parts = partsOf(works)
    const startSome = async () => {
      for (const part of parts) await start(part)
    }
    await Promise.all(Array.from({ length: MAX_STARTS }, startSome))
    await settle(db, works)
    return rows.length === MAX_ROWS && !works.some(({ isBlocked }) => isBlocked)
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

function workOf(row: Row): Work {
  return { row, refused: undefined, isOver: false, isBlocked: false, dropped: { count: 0, reason: '' } }
}

function* partsOf(works: readonly Work[]): Generator<Part> {
  for (const work of works) {
    const { origin } = work.row
    for (const [index, trigger] of triggersOf(work.row).entries()) {
      if (work.isOver) break
      yield { work, trigger, key: index === 0 ? origin : `${origin} ${index}` }
    }
  }
}

/** A function that takes numbers runs once for each record, any other once for the message. */
function triggersOf(row: Row): TriggerMessage[] {
  const called =
    row.exports === null
      ? undefined
      : findFunction(row.exports, { explicit: row.function ?? undefined, fallback: row.name })
  const free = called?.params.slice(0, Math.max(called.params.length - row.input_count, 0)) ?? []
  if (!takesNumbers(free)) return [row.message]
  return row.message.records.map((record) => ({ ...row.message, records: [record] }))
}

async function settle(db: Queryable, works: readonly Work[]): Promise<void> {
  const [again, done] = [works.filter(({ isBlocked }) => isBlocked), works.filter(({ isBlocked }) => !isBlocked)]
  const keysOf = (some: readonly Work[]) => some.map(({ row }) => row.key)
  if (done.length > 0) await sql`DELETE FROM task_messages WHERE key = ANY(${keysOf(done)}::bigint[])`.execute(db)
  if (again.length > 0) {
    await sql`UPDATE task_messages SET due_at = now() + make_interval(secs => ${RETRY_MS / 1000}::float8)
      WHERE key = ANY(${keysOf(again)}::bigint[])`.execute(db)
  }
  const droppedWorks = done.filter(({ dropped }) => dropped.count > 0)
  if (droppedWorks.length === 0) return
  const byTask = Map.groupBy(droppedWorks, ({ row }) => row.task_key)
  const counts = [...byTask]
    .map(([key, some]) => ({
      key,
      count: some.reduce((sum, { dropped }) => sum + dropped.count, 0),
      reason: some.at(-1)?.dropped.reason ?? '',
    }))
    .toSorted((left, right) => left.key - right.key)
  await sql`UPDATE task_triggers g SET dropped = g.dropped + c.count, dropped_reason = c.reason
    FROM unnest(${counts.map(({ key }) => key)}::bigint[], ${counts.map(({ count }) => count)}::int[],
      ${counts.map(({ reason }) => reason)}::text[]) AS c (task_key, count, reason)
    WHERE g.task_key = c.task_key`.execute(db)
}
