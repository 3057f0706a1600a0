/**
 * Statements of hot paths. Each connection parses and plans them once. Inside a transaction they leave when they are asked for, before
 * those ahead of them are answered: whoever needs no answer in between need not wait for any.
 */
import { CompiledQuery } from 'kysely'
import type { QueryResult } from 'kysely'
import type { Queryable } from './connect.ts'
import type { NamedQuery } from './driver.ts'
import { connectionOf } from './transaction.ts'

/** The values stand for `$1`, `$2` and so on. */
export type Prepared<Row> = (db: Queryable, values: readonly unknown[]) => Promise<QueryResult<Row>>

const names = new Set<string>()

/** `name` is what the connections know the statement by; there is one of it. */
export function prepared<Row extends object>(name: string, text: string): Prepared<Row> {
  if (names.has(name)) throw new Error(`two prepared statements are called ${name}`)
  names.add(name)
  return async (db, values) => {
    const query: NamedQuery = { ...CompiledQuery.raw(text, [...values]), name }
    const connection = connectionOf(db)
    return connection === undefined
      ? await db.executeQuery<Row>(query as CompiledQuery<Row>)
      : await connection.executeQuery<Row>(query)
  }
}
