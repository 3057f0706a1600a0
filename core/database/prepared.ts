/** Statements of hot paths: each connection parses and plans them once. */
import type { QueryResult, Queryable } from '../sql.ts'

/** The values of `$1`, `$2` and so on. */
export type Prepared<Row> = (db: Queryable, values: readonly unknown[]) => Promise<QueryResult<Row>>

const names = new Set<string>()

/** `name` identifies the statement on a connection and must be unique. */
export function prepared<Row extends object>(name: string, text: string): Prepared<Row> {
  if (names.has(name)) throw new Error(`two prepared statements are called ${name}`)
  names.add(name)
  return (db, values) => db.query<Row>({ text, values, name })
}
