/**
 * The columns of a table under the names of the code: one map for the statements that read a record and those that change it, so that rows are
 * records and a field is named in one place of a repository.
 */
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

/** The column of each field of a record. */
export type ColumnsOf<Record> = { readonly [Name in keyof Record]-?: string }

/** The columns for a SELECT or RETURNING, of the table with this name or alias. */
export function selected(columns: Readonly<Record<string, string>>, alias: string): Sql<unknown> {
  const names = Object.entries(columns).map(
    ([name, column]) => sql`${sql.ref(`${alias}.${column}`)} AS ${sql.ref(name)}`,
  )
  // One text: the statement is written for each request.
  return sql.raw(sql.join(names).statement().text)
}

/** `column = value` for each field of the change. Absent fields are unchanged. An object is JSON. */
export function assigned<Change extends object>(change: Change, columns: ColumnsOf<Change>): Sql<unknown>[] {
  return Object.entries(change).flatMap(([name, value]: [string, unknown]) => {
    if (value === undefined) return []
    const column = sql.ref((columns as Readonly<Record<string, string>>)[name] as string)
    return [isJson(value) ? sql`${column} = ${JSON.stringify(value)}::jsonb` : sql`${column} = ${value}`]
  })
}

const isJson = (value: unknown) =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value)
