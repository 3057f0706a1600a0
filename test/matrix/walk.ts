/** Asks every row of the access matrix as every column. Each response is held to openapi.json, and to what other tenants may know. */
import type { FullApp } from '../../tools/generate/full-app.ts'
import { COLUMNS } from './callers.ts'
import type { ColumnName } from './callers.ts'
import { undeclared } from './requests.ts'
import type { Answer } from './requests.ts'
import { namedBy, rowsOf } from './rows.ts'
import type { Route, Row } from './rows.ts'
import type { Furniture, World } from './world.ts'

export type Line = { row: Row; cells: readonly string[] }

export type Walk = {
  readonly columns: readonly string[]
  /** In the order of the routes. */
  lines: Line[]
  /** Server errors, and responses that the document lacks. */
  undeclared: string[]
  /** What was shown or changed of the tenant that has the same ids. */
  leaks: string[]
  /** The different responses to each column without valid credentials. */
  refusals: Map<string, Set<string>>
}

/** Where a column does not apply: the path cannot lead to what the row is about. */
const NOT_APPLICABLE = ' . '
const CELLS_AT_ONCE = 6
/** Columns that do not get past the check of credentials. */
const WITHOUT_CREDENTIALS: ReadonlySet<string> = new Set(['nob', 'exp', 'ref', 'dis'])

export function routesOf(full: FullApp): Route[] {
  return full.routes.flatMap(({ method, url, config }) =>
    [method].flat().map((one) => ({ method: one, url, action: config?.action })),
  )
}

/** Calls about something in a domain; what is about users and their own things stands elsewhere. */
export function isInside({ method, url, action }: Route): boolean {
  if (action === undefined || /^\/(tasks|workers)/.test(url)) return false
  const isUnscoped = /^(\/http)?\/(clients|channels|groups|connect|disconnect)(\/|$)/.test(url)
  return (
    (url.includes(':domain_id') ||
      (method === 'POST' && url === '/invitations') ||
      isUnscoped ||
      / ?^\/users\/:user_id\/(clients|channels|groups)$/.test(url)) &&
    action !== 'user.self'
  )
}

export const rowsInside = (full: FullApp): Row[] => routesOf(full).filter(isInside).flatMap(rowsOf)

export async function walkRows(rows: readonly Row[], world: World): Promise<Walk> {
  const walk: Walk = {
    columns: COLUMNS.map(({ name }) => name),
    lines: [],
    undeclared: [],
    leaks: [],
    refusals: new Map(),
  }
  const lines = new Map<Row, Line>()
  for (const batch of batchesOf(rows)) for (const line of await walkBatch(batch, world, walk)) lines.set(line.row, line)
  walk.lines = rows.map((row) => lines.get(row) as Line)
  return walk
}

/** Rows that need the same roles are furnished together. */
function batchesOf(rows: readonly Row[]): Row[][] {
  const batches = new Map<string, Row[]>()
  for (const row of rows) {
    const key = JSON.stringify([row.needs, row.extras])
    batches.set(key, [...(batches.get(key) ?? []), row])
  }
  return [...batches.values()]
}

async function walkBatch(batch: readonly Row[], world: World, walk: Walk): Promise<Line[]> {
  const { needs, extras } = batch[0] as Row
  // Reads leave everything as it is, so they share one set of entities. Each change has its own.
  const changes = batch.filter(({ method }) => method !== 'GET')
  const furnished = await world.furnish(needs, extras, [
    new Set(batch.filter(({ method }) => method === 'GET').flatMap((row) => [...namedBy(row)])),
    ...changes.map(namedBy),
  ])
  const before = await world.twin.held()
  const lines: Line[] = []
  const twins: { row: Row; ids: readonly string[] }[] = []
  for (const row of batch) {
    const at = furnished[changes.indexOf(row) + 1] as ReadonlyMap<ColumnName, Furniture>
    lines.push({ row, cells: await fillRow(row, at, world, walk) })
    const { client, channel, group, child, other } = at.get('own') as Furniture
    twins.push({ row, ids: [client, channel, group, child, other].map(({ id }) => id) })
  }
  const after = await world.twin.held()
  const changed = [...before.symmetricDifference(after)]
  for (const one of changed) {
    const rowsOfIt = twins.filter(({ ids }) => ids.some((id) => one.includes(id)))
    const candidates = (rowsOfIt.length > 0 ? rowsOfIt : twins).map(({ row }) => row.label)
    walk.leaks.push(`${candidates.join(' or ')} changes ${one.slice(0, 300)}`)
  }
  return lines
}

async function fillRow(
  row: Row,
  furnished: ReadonlyMap<ColumnName, Furniture>,
  world: World,
  walk: Walk,
): Promise<string[]> {
  const cells: string[] = []
  // Few deletions of messages run at once; one more is refused with Retry-After.
  const step = row.changesDomain || row.url.endsWith('/messages') ? 1 : CELLS_AT_ONCE
  for (let start = 0; start < COLUMNS.length; start += step) {
    const part = COLUMNS.slice(start, start + step)
    const answers = await Promise.all(part.map((column) => askCell(row, column, world, furnished.get(column.name))))
    for (const [index, answer] of answers.entries()) {
      const { name, place } = part[index] as (typeof COLUMNS)[number]
      cells.push(answer === undefined ? NOT_APPLICABLE : String(answer.status))
      if (answer === undefined) continue
      check(row, name, answer, world, walk)
      // A refusal changes nothing; a fault may.
      if (row.changesDomain && (answer.status < 300 || answer.status >= 500)) await world.restore(place)
    }
  }
  return cells
}

async function askCell(
  row: Row,
  column: (typeof COLUMNS)[number],
  world: World,
  furniture: Furniture | undefined,
): Promise<Answer | undefined> {
  const path = 'path' in column ? column.path : undefined
  const isOutOfReach = row.on === 'domain' && (path === 'direct' || path === 'group' || path === 'ancestor')
  if (furniture === undefined || isOutOfReach || (path === 'half' && row.needs.length < 2)) return undefined
  const { url, body } = row.request(furniture, world.people)
  return await world.send(world.tokens[column.name], row.method, url, body)
}

function check(row: Row, column: ColumnName, answer: Answer, world: World, walk: Walk): void {
  walk.undeclared.push(...undeclared(row, answer).map((fault) => `${fault} (${column})`))
  if (column !== 'adm' && world.twin.isShownIn(answer.text)) walk.leaks.push(`${row.label} shows to ${column}`)
  if (!WITHOUT_CREDENTIALS.has(column)) return
  const refusals = walk.refusals.get(column) ?? new Set()
  walk.refusals.set(column, refusals.add(`${answer.status} ${answer.text}`))
}
