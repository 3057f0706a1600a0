/**
 * Dead letters of tasks: messages of a trigger that no run could be started for, and publications that no channel took. They are rows of
 * `task_messages` and `task_publications` that are never due. A retry makes them due again, with the same identity as before.
 */
import { countLetters, isSelected } from '#core/changelog/index.ts'
import type { LetterBounds, LetterSelection } from '#core/changelog/index.ts'
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { MESSAGE_BYTES } from './message-contents.ts'
import type { TriggerMessage } from './trigger-message.ts'

/** The most dead letters of a task and source; further messages that are refused are only counted. */
const MAX_LETTERS = 10_000
const MAX_LETTER_BYTES = 64 * 1024 * 1024
const DEAD_LETTERS_KEPT_DAYS = 30
/** Rows that one statement deletes. */
const STEP_ROWS = 10_000
/** This is above the key of every task. */
const MAX_KEY = '9223372036854775807'

export const LETTER_SOURCES = ['message', 'publication'] as const
export type LetterSource = (typeof LETTER_SOURCES)[number]

const TABLES = { message: 'task_messages', publication: 'task_publications' } as const
const BYTES = {
  message: MESSAGE_BYTES,
  publication: sql`pg_column_size(m.payload)`,
} as const

// Messages of a batch are never due: see batches.ts.
const DUE = { message: sql`CASE WHEN lane IS NULL THEN now() ELSE 'infinity' END`, publication: sql`now()` } as const

export type StoredLetter = {
  id: string
  source: LetterSource
  reason: string
  refused_at: string
  /** The time when it was queued. */
  created_at: string
  channel_id: string
  subtopic: string
  /** The run of a publication. */
  run_id: string | null
  /** What a message carried, or the SenML pack of a publication. */
  content: TriggerMessage | readonly object[]
}

/** The letters of a task, of both sources or one, the newest first. */
export async function listLetters(
  db: Queryable,
  taskKey: number,
  source: LetterSource | undefined,
  range: PageRange,
): Promise<{ total: number; letters: StoredLetter[]; next: PageEnd }> {
  const from = lettersOf(taskKey, source)
  const { rows: counted } = await sql<{ total: number }>`SELECT count(*) AS total FROM ${from}`.execute(db)
  const newestFirst = [
    { by: sql`l.refused_at`, type: 'time' as const },
    { by: sql`l.id`, type: 'uuid' as const },
  ]
  const columns = sql`l.id, l.source, l.reason, l.refused_at, l.created_at, l.channel_id, l.subtopic, l.run_id, l.content`
  const page = { columns, from, where: sql<boolean>`true`, keyset: new Keyset(newestFirst, 'desc') }
  const { rows, next } = await readPage<StoredLetter>(db, page, range)
  return { total: counted[0]?.total ?? 0, letters: rows, next }
}

function lettersOf(taskKey: number, source: LetterSource | undefined): Sql {
  const parts = {
    message: sql`SELECT letter_id AS id, 'message' AS source, refused_reason AS reason, refused_at, created_at,
      message ->> 'channel_id' AS channel_id, coalesce(message ->> 'subtopic', '') AS subtopic, NULL::uuid AS run_id,
      coalesce((SELECT c.content FROM message_contents c WHERE c.key = content_key), message) AS content
      FROM task_messages WHERE task_key = ${taskKey} AND refused_at IS NOT NULL`,
    publication: sql`SELECT letter_id, 'publication', refused_reason, refused_at, created_at, channel_id::text, subtopic, run_id, payload::json
      FROM task_publications WHERE task_key = ${taskKey} AND refused_at IS NOT NULL`,
  }
  const wanted = source === undefined ? [parts.message, parts.publication] : [parts[source]]
  return sql`(${sql.join(wanted, sql` UNION ALL `)}) AS l (id, source, reason, refused_at, created_at, channel_id, subtopic, run_id, content)`
}

const REFUSED = { isLetter: sql`l.refused_at IS NOT NULL`, order: [sql`l.task_key`, sql`l.refused_at`] } as const
/** Domain of the task: a task publishes to channels of its domain. */
const LETTER_DOMAINS = { message: sql`l.letter_domain_key`, publication: sql`l.domain_key` } as const

/**
 * A part of a statement: the tasks of a domain that have dead letters, the newest tasks first, as `kind`, `id`, `name` and `count`. It goes
 * from one task with letters to the next, so that tasks without letters are not read. The row comparison is a range of one index alone: see
 * `countLetters`.
 */
export function tasksWithLetters(domainKey: number, bounds: LetterBounds): Sql {
  const next = LETTER_SOURCES.map((source) => {
    const domain = LETTER_DOMAINS[source]
    return sql`(SELECT l.task_key FROM ${sql.raw(TABLES[source])} l WHERE l.refused_at IS NOT NULL AND ${domain} >= ${domainKey}
      AND (${domain}, l.task_key) < (${domainKey}::bigint, f.task_key) ORDER BY ${domain} DESC, l.task_key DESC LIMIT 1)`
  })
  const counts = LETTER_SOURCES.map((source) =>
    countLetters({ table: sql.raw(TABLES[source]), ...REFUSED }, sql`t.key`, bounds),
  )
  return sql`WITH RECURSIVE found (task_key, place) AS (
      SELECT ${MAX_KEY}::bigint, 0 UNION ALL
      SELECT greatest(${sql.join(next)}), f.place + 1 FROM found f WHERE f.task_key IS NOT NULL AND f.place < ${bounds.sources}::integer)
    SELECT 'task' AS kind, t.id, t.name, least(${sql.join(counts, sql` + `)}, ${bounds.letters}) AS count
      FROM found f JOIN tasks t ON t.key = f.task_key AND t.domain_key = ${domainKey}`
}

/**
 * Keeps refused rows as dead letters, of each task as long as it has fewer than the limit. The others are removed. Each row has its own reason.
 */
export async function keepLetters(
  db: Queryable,
  source: LetterSource,
  refused: readonly { key: number; reason: string }[],
): Promise<void> {
  if (refused.length === 0) return
  const table = sql.raw(TABLES[source])
  const bytes = BYTES[source]
  const keys = refused.map(({ key }) => key)
  const reasons = refused.map(({ reason }) => reason)
  await sql`
    WITH given AS (
      SELECT m.key, m.task_key, g.reason, row_number() OVER each AS place, sum(${bytes}) OVER each AS bytes
        FROM unnest(${keys}::bigint[], ${reasons}::text[]) AS g (key, reason) JOIN ${table} m ON m.key = g.key
      WINDOW each AS (PARTITION BY m.task_key ORDER BY m.key)),
    held AS (
      SELECT t.task_key, l.letters, l.bytes FROM (SELECT DISTINCT task_key FROM given) t CROSS JOIN LATERAL (
        SELECT count(*) AS letters, coalesce(sum(${bytes}), 0) AS bytes FROM ${table} m
         WHERE m.task_key = t.task_key AND m.refused_at IS NOT NULL) l),
    judged AS (
      SELECT g.key, g.reason, h.letters + g.place <= ${MAX_LETTERS} AND h.bytes + g.bytes <= ${MAX_LETTER_BYTES} AS is_kept
        FROM given g JOIN held h ON h.task_key = g.task_key),
    kept AS (
      UPDATE ${table} m SET due_at = 'infinity', refused_at = now(), refused_reason = j.reason, letter_id = gen_random_uuid()
        FROM judged j WHERE m.key = j.key AND j.is_kept)
    DELETE FROM ${table} m USING judged j WHERE m.key = j.key AND NOT j.is_kept`.execute(db)
}

/** Changes the letters of both sources by the beginning of a statement; returns their number. */
async function changeLetters(
  tx: Transaction,
  taskKey: number,
  selection: LetterSelection,
  statement: (table: Sql, source: LetterSource) => Sql,
): Promise<number> {
  const isMeant = isSelected(selection, { id: sql`letter_id`, at: sql`refused_at` })
  let count = 0
  for (const source of LETTER_SOURCES) {
    const { numAffectedRows = 0n } = await sql`${statement(sql.raw(TABLES[source]), source)}
      WHERE task_key = ${taskKey} AND refused_at IS NOT NULL AND ${isMeant}`.execute(tx)
    count += Number(numAffectedRows)
  }
  return count
}

/** Makes the letters due. Returns their number. */
export const retryLetters = (tx: Transaction, taskKey: number, selection: LetterSelection): Promise<number> =>
  changeLetters(
    tx,
    taskKey,
    selection,
    (table, source) =>
      sql`UPDATE ${table} SET due_at = ${DUE[source]}, refused_at = NULL, refused_reason = NULL, letter_id = NULL`,
  )

/** Removes the letters. Returns their number. */
export const discardLetters = (tx: Transaction, taskKey: number, selection: LetterSelection): Promise<number> =>
  changeLetters(tx, taskKey, selection, (table) => sql`DELETE FROM ${table}`)

/** A part of the statement that deletes tasks: their publications that nobody could retry any more. `tasks` is a part with their keys. */
export function removeLettersOf(tasks: 'changed' | 'changed_tasks'): Sql {
  return sql`DELETE FROM task_publications p USING ${sql.raw(tasks)} t WHERE p.task_key = t.key AND p.refused_at IS NOT NULL`
}

/** Removes letters that are older than their retention. */
export async function removeOldLetters(db: Queryable): Promise<void> {
  for (const table of Object.values(TABLES)) {
    await sql`DELETE FROM ${sql.raw(table)} WHERE key IN (
      SELECT key FROM ${sql.raw(table)} WHERE due_at = 'infinity'
        AND refused_at < now() - make_interval(days => ${DEAD_LETTERS_KEPT_DAYS}) LIMIT ${STEP_ROWS})`.execute(db)
  }
}
