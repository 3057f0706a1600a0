/**
 * Trials: a change that is made with all its rules, reported, and rolled back. The report is what the transaction did, so it cannot
 * differ from the change. The context of the request carries it, because most services know nothing of trials. What a change deletes
 * later, or would take too long to delete and roll back, is counted up to a limit instead.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Actor, JournalEntry } from './record.ts'
import { redact } from './redact.ts'
import { narrowIds } from './visibility.ts'
import type { JournalVisibility } from './visibility.ts'

/** One entity and what would happen to it. */
export type TrialLine = { operation: string; id?: string; name?: string; attributes: Readonly<Record<string, unknown>> }

/** Rows of a table that the change would write or delete, also by cascades. If `exact` is false, the numbers are lower bounds. */
export type TrialRows = { table: string; created: number; updated: number; deleted: number; exact?: false }

/** `hidden`: changes of entities that the caller may not read; `total` contains them. */
export type TrialReport = { total: number; hidden?: number; changes: TrialLine[]; rows: TrialRows[] }

/** The part of each record of a change that the actor may read. */
export type TrialFilter = (actor: Actor, entries: readonly JournalEntry[]) => Promise<JournalVisibility[]>

/** The lines of one report; `total` counts all. */
const MAX_LINES = 1_000
/** Rows of a table that are counted and not deleted; a report with more says so. */
const MAX_COUNTED_ROWS = 100_000
/** Tables whose rows mean something to a caller. */
const SHOWN_TABLES = [
  'users',
  'domains',
  'clients',
  'channels',
  'groups',
  'connections',
  'roles',
  'grants',
  'certificates',
  'bootstrap_configs',
  'bootstrap_bindings',
  'mqtt_sessions',
  'mqtt_retained',
] as const

type Trial = {
  report: TrialReport | undefined
  /** The records of the change, which are shown as far as the actor may read them. */
  recorded: { actor: Actor; entries: readonly JournalEntry[] } | undefined
}
const trials = new AsyncLocalStorage<Trial>()

/** Rolls the transaction of a trial back. */
class TrialEnd extends Error {}

/** Whether the current request is a trial. */
export function isTrial(): boolean {
  return trials.getStore() !== undefined
}

/** Runs the work up to its first change, which is rolled back. Throws the errors of the work. Without a filter no record is shown. */
export async function runTrial(work: () => Promise<unknown>, filter?: TrialFilter): Promise<TrialReport> {
  const trial: Trial = { report: undefined, recorded: undefined }
  try {
    await trials.run(trial, work)
  } catch (error) {
    if (trial.report === undefined || !(error instanceof TrialEnd)) throw error
  }
  // Work without a change has no effect.
  if (trial.report === undefined) return { total: 0, changes: [], rows: [] }
  const { report, recorded } = trial
  if (recorded === undefined) return report
  const { actor, entries } = recorded
  // These rows are counted after the end of the transaction, so that counting holds no lock and sees the entities and roles as they are.
  for (const { later } of entries) if (later !== undefined) report.rows.push(...(await later()))
  const visible = await filter?.(actor, entries)
  const lines = entries.map((entry, at) => linesOf(entry, visible?.[at] ?? 'none'))
  const shown = lines.flatMap((one) => one.shown)
  const hidden = lines.reduce((sum, one) => sum + one.hidden, 0)
  const { rows } = report
  const total = shown.length + hidden
  return { total, ...(hidden === 0 ? {} : { hidden }), changes: shown.slice(0, MAX_LINES), rows }
}

/** Runs work that is no part of the trial, and stays when it is rolled back: a record of a refusal. */
export async function outsideTrial<T>(work: () => Promise<T>): Promise<T> {
  return await trials.exit(work)
}

/** Ends the trial of a change that is not made through the journal. */
export function endTrial(changes: TrialLine[], rows: TrialRows[]): never {
  setReport(changes, rows)
  throw new TrialEnd('the trial ends before the change')
}

/** The number of rows that a SELECT finds, up to one more than `MAX_COUNTED_ROWS`; see `deletedRows`. */
export const countedRows = (select: Sql<unknown>): Sql<number> =>
  sql`(SELECT count(*) FROM (${select} LIMIT ${MAX_COUNTED_ROWS + 1}) counted)`

/** Returns no rows for a table in which no row was found. */
export function deletedRows(found: Readonly<Record<string, number>>): TrialRows[] {
  return Object.entries(found).flatMap(([table, count]) => {
    if (count === 0) return []
    const rows = { table, created: 0, updated: 0, deleted: Math.min(count, MAX_COUNTED_ROWS) }
    return [count > MAX_COUNTED_ROWS ? { ...rows, exact: false as const } : rows]
  })
}

function setReport(lines: readonly TrialLine[], rows: TrialRows[]): void {
  const trial = trials.getStore()
  if (trial !== undefined) trial.report = { total: lines.length, changes: lines.slice(0, MAX_LINES), rows }
}

/** Call it in the transaction of a change, before the change. It returns a function that reports the change and ends the transaction. */
export async function beginTrial(
  tx: Transaction,
  actor: Actor,
): Promise<(entries: readonly JournalEntry[]) => Promise<never>> {
  const before = await countRows(tx)
  return async (entries) => {
    // Violations of deferred constraints would show at the commit.
    await sql`SET CONSTRAINTS ALL IMMEDIATE`.execute(tx)
    const after = await countRows(tx)
    const rows = [...after].flatMap(([table, counts]) => {
      const from = before.get(table)
      const [created = 0, updated = 0, deleted = 0] = counts.map((count, at) => count - (from?.[at] ?? 0))
      return created + updated + deleted === 0 ? [] : [{ table, created, updated, deleted }]
    })
    setReport([], rows)
    const trial = trials.getStore()
    if (trial !== undefined) trial.recorded = { actor, entries }
    throw new TrialEnd('the trial is rolled back')
  }
}

/** Counts the rows that this session changed. Rows of a transaction that just ended may still be counted. */
async function countRows(tx: Transaction): Promise<Map<string, readonly number[]>> {
  const { rows } = await sql<{ table: string; created: number; updated: number; deleted: number }>`
    SELECT relname AS table, n_tup_ins AS created, n_tup_upd AS updated, n_tup_del AS deleted
      FROM pg_stat_xact_user_tables
     WHERE relid = ANY (ARRAY(SELECT to_regclass(shown) FROM unnest(${[...SHOWN_TABLES]}::text[]) shown)::oid[])
     ORDER BY relname`.execute(tx)
  return new Map(rows.map(({ table, created, updated, deleted }) => [table, [created, updated, deleted]]))
}

/** A record of a bulk change has its entities in `ids`, and a line for each. */
function linesOf(
  { operation, attributes = {}, names }: JournalEntry,
  visible: JournalVisibility,
): { shown: TrialLine[]; hidden: number } {
  const { ids, id, name, ...rest } = redact(attributes)
  const listed = Array.isArray(ids) ? ids.map(String) : undefined
  if (visible === 'none') return { shown: [], hidden: listed?.length ?? 1 }
  const isVisible = (one: string) => visible === 'all' || visible.ids.has(one)
  const common = {
    ...(typeof name === 'string' ? { name } : {}),
    attributes: visible === 'all' ? rest : narrowIds(rest, visible.ids),
  }
  if (listed === undefined)
    return { shown: [{ operation, ...(typeof id === 'string' ? { id } : {}), ...common }], hidden: 0 }
  const shown = listed.flatMap((one, at) => {
    const ofOne = names?.[at]
    return isVisible(one) ? [{ operation, id: one, ...common, ...(ofOne === undefined ? {} : { name: ofOne }) }] : []
  })
  return { shown, hidden: listed.length - shown.length }
}
