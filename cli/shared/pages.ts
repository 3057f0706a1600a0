/** Reads lists page by page. Each page continues after the last row of the one before. */
import type { ApiRequest, Cli, Reply } from './command.ts'
import { CommandError } from './failures.ts'
import { isRecord } from './values.ts'

/** The most rows that most lists return at once. */
const PAGE = 100
/** More rows would not fit into memory. */
const MAX_ROWS = 100_000

type Page = Record<string, unknown>

/** The pages of a list. */
export async function* pagesOf(cli: Cli, request: ApiRequest): AsyncGenerator<{ reply: Reply; page: Page }> {
  const { offset: _, ...query } = request.query ?? {}
  let cursor: string | undefined
  do {
    const reply = await cli.request({ ...request, query: { ...query, limit: String(PAGE), cursor } })
    const page = isRecord(reply.value) ? reply.value : {}
    yield { reply, page }
    cursor = typeof page['next'] === 'string' ? page['next'] : undefined
  } while (cursor !== undefined)
}

/** The rows of a list under this name. */
export async function* rowsOf(cli: Cli, request: ApiRequest, name: string): AsyncGenerator<Record<string, unknown>> {
  for await (const { page } of pagesOf(cli, request)) yield* arrayOf(page, name).filter(isRecord)
}

/** All pages of a list as one. Throws CommandError for more than 100,000 rows. */
export async function readAll(cli: Cli, request: ApiRequest): Promise<Reply> {
  // A page can contain its rows under two names.
  const rows = new Map<string, unknown[]>()
  let last: { reply: Reply; page: Page } | undefined
  for await (const { reply, page } of pagesOf(cli, request)) {
    const { offset: _offset, limit: _limit, next: _next, ...shown } = page
    for (const [name, value] of Object.entries(shown)) {
      if (!Array.isArray(value)) continue
      const known = rows.get(name) ?? []
      for (const row of value as unknown[]) known.push(row)
      rows.set(name, known)
    }
    last = { reply, page: shown }
    if ([...rows.values()].some(({ length }) => length > MAX_ROWS))
      throw new CommandError(
        `the list has more than ${MAX_ROWS} rows`,
        'narrow it by a filter, or read it page by page: --limit 100 --query cursor=NEXT',
      )
  }
  if (last === undefined) throw new Error('a list has at least one page')
  return { ...last.reply, value: { ...last.page, ...Object.fromEntries(rows) } }
}

const arrayOf = (page: Page, name: string): unknown[] => (Array.isArray(page[name]) ? page[name] : [])
