/** Statements of hot paths: each connection parses and plans them once. */
import type { QueryResult, Queryable } from '../sql.ts'

/** The values stand for `$1`, `$2` and so on. */
export type Prepared<Row> = (db: Queryable, values: readonly unknown[]) => Promise<QueryResult<Row>>

const names = new Set<string>()

/** `name` is what the connections know the statement by; there is one of it. */
export function prepared<Row extends object>(name: string, text: string): Prepared<Row> {
  if (names.has(name)) throw new Error(`two prepared statements are called ${name}`)
  names.add(name)
  return (db, values) => db.query<Row>({ text, values, name })
}
