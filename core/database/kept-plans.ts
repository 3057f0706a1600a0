/**
 * Statements that are made of parts and whose plan is kept all the same. To plan a read of partitioned tables takes as long as a small
 * read itself; but a plan knows the tables as they were, so that each connection makes its plans anew after a while.
 */
import { CompiledQuery } from 'kysely'
import type { DatabaseConnection, QueryResult, RawBuilder } from 'kysely'
import { monotonicMs } from '../time.ts'
import type { Queryable } from './connect.ts'
import type { NamedQuery } from './driver.ts'
import { connectionOf } from './transaction.ts'

/** A table that was empty when its plan was made is read badly for no longer. */
const MAX_PLAN_AGE_MS = 10_000
/** Different texts that have a name; others are planned each time. Each connection holds the plans of those that it was asked. */
const MAX_NAMED = 48

const names = new Map<string, string>()
const keeping = new WeakSet<Queryable>()
const plannedAtMs = new WeakMap<DatabaseConnection, number>()

/** Has its plan kept by the connection, where the transaction keeps plans and the text is one of few. */
export async function executeKept<Row>(db: Queryable, statement: RawBuilder<Row>): Promise<QueryResult<Row>> {
  const query = statement.compile(db)
  let name = names.get(query.sql)
  if (name === undefined && names.size < MAX_NAMED && keeping.has(db)) {
    name = `kept_${names.size + 1}`
    names.set(query.sql, name)
  }
  const named: NamedQuery = name === undefined || !keeping.has(db) ? query : { ...query, name }
  const connection = connectionOf(db)
  return connection === undefined
    ? await db.executeQuery<Row>(named as typeof query)
    : await connection.executeQuery<Row>(named)
}

/** Statements of the transaction that is about to begin on the connection keep their plans. Returns what it begins with. */
export function keepPlans(tx: Queryable, connection: DatabaseConnection): string {
  keeping.add(tx)
  const nowMs = monotonicMs()
  if (nowMs - (plannedAtMs.get(connection) ?? -Infinity) > MAX_PLAN_AGE_MS) {
    plannedAtMs.set(connection, nowMs)
    // If it fails, so does what is sent behind it.
    connection.executeQuery(CompiledQuery.raw('DISCARD PLANS')).catch(() => undefined)
  }
  return '; SET LOCAL plan_cache_mode = force_generic_plan'
}
