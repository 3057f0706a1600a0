/**
 * Statements that are made of parts and whose plan is kept all the same. To plan a read of partitioned tables takes as long as a small
 * read itself; but a plan knows the tables as they were, so that each connection makes its plans anew after a while.
 */
import { monotonicMs } from '../time.ts'
import type { Connection } from './driver.ts'
import type { QueryResult, Queryable, Sql } from '../sql.ts'

/** A table that was empty when its plan was made is read badly for no longer. */
const MAX_PLAN_AGE_MS = 10_000
/** Different texts that have a name; others are planned each time. Each connection holds the plans of those that it was asked. */
const MAX_NAMED = 48

const names = new Map<string, string>()
const keeping = new WeakSet<Queryable>()
const plannedAtMs = new WeakMap<Connection, number>()

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

/** Statements of the transaction that is about to begin on the connection keep their plans. Returns what it begins with. */
export function keepPlans(tx: Queryable, connection: Connection): string {
  keeping.add(tx)
  const nowMs = monotonicMs()
  if (nowMs - (plannedAtMs.get(connection) ?? -Infinity) > MAX_PLAN_AGE_MS) {
    plannedAtMs.set(connection, nowMs)
    // If it fails, so does what is sent behind it.
    connection.query({ text: 'DISCARD PLANS', values: [] }).catch(() => undefined)
  }
  return '; SET LOCAL plan_cache_mode = force_generic_plan'
}
