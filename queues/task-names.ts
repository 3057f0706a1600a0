/** Tasks and workflows of a domain by id and name, as the platform shows them beside its own entities. */
import type { Queryable } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskState, TaskStateName } from '#proto/index.ts'

export type NamedTask = { id: string; name: string; state: TaskStateName }
export type NamedWorkflow = { id: string; name: string }
export type FoundNames<T> = { total: number; items: T[] }

/** `matches` gets the column of the name and returns the condition on it. */
export type NameSearch = { domainKey: number; text: string; matches: (column: string) => Sql<boolean>; limit: number }

const STATE_NAMES = new Map<TaskState, TaskStateName>(
  (Object.entries(TASK_STATE) as [TaskStateName, TaskState][]).map(([name, state]) => [state, name]),
)

export async function findTasksNamed(db: Queryable, search: NameSearch): Promise<FoundNames<NamedTask>> {
  const { total, rows } = await findNamed<{ id: string; name: string; state: TaskState }>(
    db,
    { table: 'tasks', columns: 'state' },
    search,
  )
  return { total, items: rows.map(({ id, name, state }) => ({ id, name, state: STATE_NAMES.get(state) ?? 'unknown' })) }
}

export async function findWorkflowsNamed(db: Queryable, search: NameSearch): Promise<FoundNames<NamedWorkflow>> {
  const { total, rows } = await findNamed<{ id: string; name: string }>(db, { table: 'workflows' }, search)
  return { total, items: rows.map(({ id, name }) => ({ id, name })) }
}

/** Exact matches first. The names of one domain are read through the index on the domain. */
async function findNamed<Row extends object>(
  db: Queryable,
  { table, columns }: { table: 'tasks' | 'workflows'; columns?: string },
  { domainKey, text, matches, limit }: NameSearch,
): Promise<{ total: number; rows: Row[] }> {
  const isIdOf = isId(text) ? sql<boolean>`n.id = ${text}` : sql<boolean>`false`
  const more = columns === undefined ? sql`` : sql`, ${sql.ref(`n.${columns}`)}`
  const { rows } = await sql<Row & { total: number }>`
    SELECT n.id, n.name${more}, count(*) OVER () AS total FROM ${sql.table(table)} n
     WHERE n.domain_key = ${domainKey} AND (${isIdOf} OR ${matches('n.name')})
     ORDER BY (${isIdOf} OR n.name = ${text}) DESC, n.name, n.key LIMIT ${limit}`.execute(db)
  return { total: rows[0]?.total ?? 0, rows }
}
