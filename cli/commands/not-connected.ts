/** `skein channels not-connected`, `skein clients not-connected`: the other side's entities that are not connected to this one. */
import type { Cli, Command } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { rowsOf } from '../shared/pages.ts'
import { requestOf } from '../shared/request.ts'
import type { Given } from '../shared/values.ts'

/** Beyond 10,000 entities the list would take too long. */
const MAX_READ = 10_000
const DEFAULT_LIMIT = 10

/** `kind` is the entity of the command, `other` what is listed. */
export function notConnected(kind: 'channel' | 'client'): Command {
  const other = kind === 'channel' ? 'client' : 'channel'
  return {
    words: 'not-connected',
    args: `<${kind}_id>`,
    tail: 'domain',
    summary: `list the ${other}s that are not connected to a ${kind}`,
    example: `<${kind}_id> --limit 5`,
    columns: ['id', 'name', 'status'],
    usesDomainId: true,
    async run(cli, given) {
      const connected = await idsOf(cli, given, `/{domain}/${kind}s/{${kind}_id}/${other}s`, `${other}s`)
      const offset = Number(cli.settings.filter('offset') ?? 0)
      const limit = Number(cli.settings.filter('limit') ?? DEFAULT_LIMIT)
      const found: unknown[] = []
      for await (const one of entitiesOf(cli, given, `/{domain}/${other}s`, `${other}s`)) {
        if (!connected.has(String(one['id']))) found.push(one)
        if (found.length >= offset + limit) break
      }
      const shown = found.slice(offset)
      cli.output.data({ offset, limit, [`${other}s`]: shown }, { columns: ['id', 'name', 'status'] })
    },
  }
}

async function idsOf(cli: Cli, given: Given, path: string, key: string): Promise<Set<string>> {
  const ids = new Set<string>()
  for await (const one of entitiesOf(cli, given, path, key)) ids.add(String(one['id']))
  return ids
}

async function* entitiesOf(cli: Cli, given: Given, path: string, key: string): AsyncGenerator<Record<string, unknown>> {
  const parameters = () => ({ status: 'all', order: 'created_at' })
  const call = { method: 'GET', service: key === 'clients' ? 'clients' : 'channels', path, parameters } as const
  let read = 0
  for await (const one of rowsOf(cli, requestOf(call, given, cli.settings), key)) {
    read += 1
    if (read > MAX_READ) throw new CommandError(`there are more than ${MAX_READ} ${key}`, 'list them with skein api')
    yield one
  }
}
