/** Boards on the server: dashboards of the user in a domain, and those that others share there. */
import { call } from '../../../api/call.ts'
import type { Answer } from '../../../api/call.ts'
import { query } from '../../../api/queries.ts'
import { InputError } from '../../../shell/action.ts'
import { MAX_TILES, formatBoard, parseBoard, withTile } from './content.ts'
import type { Board, Tile } from './content.ts'

export type StoredBoard = Answer<'GET /{domain_id}/dashboards/{dashboard_id}'>

/** The maximum number of dashboards of a user. */
const MAX_BOARDS = 100

export const boardsQuery = (domain: string) =>
  query('GET /{domain_id}/dashboards', { params: { domain_id: domain }, query: { limit: MAX_BOARDS } })

export const boardQuery = (domain: string, id: string) =>
  query('GET /{domain_id}/dashboards/{dashboard_id}', { params: { domain_id: domain, dashboard_id: id } })

export async function createBoard(domain: string, name: string, board: Board): Promise<StoredBoard> {
  const body = { name, content: formatBoard(board) }
  return await call('POST /{domain_id}/dashboards', { params: { domain_id: domain }, body })
}

export async function changeBoard(
  domain: string,
  id: string,
  { board, ...change }: { name?: string; shared?: boolean; board?: Board },
): Promise<void> {
  await call('PATCH /{domain_id}/dashboards/{dashboard_id}', {
    params: { domain_id: domain, dashboard_id: id },
    body: { ...change, ...(board === undefined ? {} : { content: formatBoard(board) }) },
  })
}

export async function deleteBoard(domain: string, id: string): Promise<void> {
  await call('DELETE /{domain_id}/dashboards/{dashboard_id}', { params: { domain_id: domain, dashboard_id: id } })
}

/** Adds a tile to the board as it is now on the server. Throws `InputError` for a full board. */
export async function addTile(domain: string, id: string, tile: Tile): Promise<void> {
  const { content } = await call('GET /{domain_id}/dashboards/{dashboard_id}', {
    params: { domain_id: domain, dashboard_id: id },
  })
  const board = parseBoard(content)
  if (board.tiles.length >= MAX_TILES) throw new InputError('board', `A board has at most ${MAX_TILES} tiles`)
  await changeBoard(domain, id, { board: withTile(board, tile) })
}
