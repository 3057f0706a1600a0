/**
 * Statements that are made of parts and whose plan is kept all the same. To plan a read of partitioned tables takes as long as a small
 * read itself; but a plan knows the tables as they were, so that each connection makes its plans anew after a while.
 */
import { monotonicMs } from '../time.ts'
import type { Connection } from './driver.ts'
import type { QueryResult, Queryable, Sql } from '../sql.ts'

/**
 * A table that was empty when its plan was made is read badly for no longer than this; once the connection has made plans for a
 * while, for as long as that, so that tables which grow evenly are at most twice as large as its plans know.
 */
const MIN_PLAN_AGE_MS = 10_000
/** After this PostgreSQL has gathered statistics of what grew, and has made the plans anew itself. */
const MAX_PLAN_AGE_MS = 60_000
/** Different texts that have a name; others are planned each time. Each connection holds the plans of those that it was asked. */
const MAX_NAMED = 48

const names = new Map<string, string>()
const keeping = new WeakSet<Queryable>()
const planned = new WeakMap<Connection, { firstMs: number; lastMs: number }>()

/** Has its plan kept by the connection, where the transaction keeps plans and the text is one of few. */
export async function executeKept<Row>(db: Queryable, part: Sql<Row>): Promise<QueryResult<Row>> {
  const statement = part.statement()
  if (!keeping.has(db)) return await db.query<Row>(statement)
  let name = names.get(statement.text)
  if (name === undefined && names.size < MAX_NAMED) {
    name = `kept_${names.size + 1}`
    names.set(statement.text, name)
  }
  return await db.query<Row>(name === undefined ? statement : { ...statement, name })
}

/**
 * Statements of the transaction that is about to begin on the connection keep their plans. Returns what it begins with. They read by
 * indexes, also what is empty: a partition may fill while its plan is kept.
 */
export function keepPlans(tx: Queryable, connection: Connection): string {
  keeping.add(tx)
  const nowMs = monotonicMs()
  const known = planned.get(connection)
  if (known === undefined || nowMs - known.lastMs > maxAgeMs(known)) {
    planned.set(connection, { firstMs: known?.firstMs ?? nowMs, lastMs: nowMs })
    // If it fails, so does what is sent behind it.
    connection.query({ text: 'DISCARD PLANS', values: [] }).catch(() => undefined)
  }
  return '; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off'
}

/** How old plans may become that were made at `lastMs`, where the first were at `firstMs`. */
function maxAgeMs({ firstMs, lastMs }: { firstMs: number; lastMs: number }): number {
  return Math.min(Math.max(lastMs - firstMs, MIN_PLAN_AGE_MS), MAX_PLAN_AGE_MS)
}
