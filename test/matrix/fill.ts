/** Asks every row of the access matrix as every column. */
import type { FullApp } from '../../tools/generate/full-app.ts'
import { COLUMNS } from './callers.ts'
import { rowsOf } from './rows.ts'
import type { Route, Row } from './rows.ts'
import type { Furniture, World } from './world.ts'

export type Line = { row: Row; cells: readonly string[] }

/** Where a column does not apply: the path cannot lead to what the row is about. */
const NOT_APPLICABLE = ' . '
const CELLS_AT_ONCE = 6

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

export async function fillMatrix(full: FullApp, world: World): Promise<Line[]> {
  const rows = routesOf(full).filter(isInside).flatMap(rowsOf)
  const lines: Line[] = []
  for (const row of rows) lines.push({ row, cells: await fillRow(row, world) })
  return lines
}

async function fillRow(row: Row, world: World): Promise<string[]> {
  const furnished = await world.furnish(row.needs, row.extras)
  const cells: string[] = []
  // Few deletions of messages run at once; one more is refused with Retry-After.
  const step = row.changesDomain || row.url.endsWith('/messages') ? 1 : CELLS_AT_ONCE
  for (let start = 0; start < COLUMNS.length; start += step) {
    const part = COLUMNS.slice(start, start + step)
    cells.push(...(await Promise.all(part.map((column) => fillCell(row, column, world, furnished.get(column.name))))))
    if (row.changesDomain) await world.restore()
  }
  return cells
}

async function fillCell(
  row: Row,
  column: (typeof COLUMNS)[number],
  world: World,
  furniture: Furniture | undefined,
): Promise<string> {
  const path = 'path' in column ? column.path : undefined
  const isOutOfReach = row.on === 'domain' && (path === 'direct' || path === 'group' || path === 'ancestor')
  if (furniture === undefined || isOutOfReach || (path === 'half' && row.needs.length < 2)) return NOT_APPLICABLE
  const { url, body } = row.request(furniture, world)
  return String(await world.call(world.tokens[column.name], row.method, url, body))
}
