/** Creates clients, channels and connections of a file with as few requests as the server's limits allow. */
import type { Cli } from './command.ts'
import { CommandError, RefusedError } from './failures.ts'
import { DRY_RUN_VIEW, joinReports } from './dry-run.ts'
import { createProgress } from './progress.ts'
import { readConnections, readEntities } from './provisioning-file.ts'
import type { BadLine, Connections, Placed } from './provisioning-file.ts'
import { isRecord } from './values.ts'
import type { Given } from './values.ts'

/** The server's limits for one call (contract 7.1), with room for the envelope. */
const MAX_ITEMS = 10_000
const MAX_BODY_BYTES = 15 * 1024 * 1024
const MAX_PAIRS = 100_000
/** Entries of a connect call, each clients x channels. */
const MAX_CONNECTIONS = 1000
const MAX_REPORTED = 20
const BULK_DEADLINE_MS = 120_000
const COLUMNS = ['id', 'name', 'credentials.secret', 'status']

export async function createFromFile(
  cli: Cli,
  given: Given,
  what: 'clients' | 'channels',
  file: string,
): Promise<void> {
  const { good, bad } = readEntities(file, what)
  settleBad(cli, given, file, bad)
  if (good.length === 0) throw new CommandError(`${file} contains no ${what}`)
  const isTrial = given.flags.has('dry-run')
  const created: unknown[] = []
  const reports: unknown[] = []
  const progress = createProgress(cli.output, isTrial ? `trying ${what}` : `creating ${what}`)
  try {
    for (const chunk of chunksOf(good)) {
      progress.at(created.length, good.length)
      const { value } = await cli
        .request({
          method: 'POST',
          service: what,
          path: `${given.domain === undefined ? '' : `/${encodeURIComponent(given.domain)}`}/${what}/bulk`,
          query: dryRunOf(given),
          json: chunk.map((item) => item.value),
          token: given.credential,
          deadlineMs: BULK_DEADLINE_MS,
        })
        .catch((error: unknown) => {
          throw explainRefusal(error, file, chunk, created.length, what)
        })
      if (isTrial) reports.push(value)
      const list = isRecord(value) ? value[what] : undefined
      if (Array.isArray(list)) created.push(...(list as unknown[]))
    }
  } finally {
    progress.end()
  }
  if (isTrial) cli.output.data(joinReports(reports), DRY_RUN_VIEW)
  else cli.output.data({ total: created.length, [what]: created }, { columns: COLUMNS })
}

const dryRunOf = ({ flags }: Given) => (flags.has('dry-run') ? { dry_run: 'true' } : {})

/** Reports every invalid line; throws unless --skip-bad is set. */
function settleBad(cli: Cli, given: Given, file: string, bad: readonly BadLine[]): void {
  if (bad.length === 0) return
  for (const { at, reason } of bad.slice(0, MAX_REPORTED)) cli.output.note(`${file}, ${at}: ${reason}`)
  if (bad.length > MAX_REPORTED) cli.output.note(`and ${bad.length - MAX_REPORTED} more`)
  const count = `${bad.length} ${bad.length === 1 ? 'entry' : 'entries'} of ${file} ${bad.length === 1 ? 'is' : 'are'} invalid`
  if (!given.flags.has('skip-bad'))
    throw new CommandError(`${count}: nothing was created`, 'correct them, or skip them with --skip-bad')
  cli.output.note(`${count}, skipped`)
}

function* chunksOf<T>(items: readonly Placed<T>[]): Generator<Placed<T>[]> {
  let chunk: Placed<T>[] = []
  let bytes = 0
  for (const item of items) {
    const size = Buffer.byteLength(JSON.stringify(item.value)) + 1
    if (chunk.length === MAX_ITEMS || (chunk.length > 0 && bytes + size > MAX_BODY_BYTES)) {
      yield chunk
      chunk = []
      bytes = 0
    }
    chunk.push(item)
    bytes += size
  }
  if (chunk.length > 0) yield chunk
}

/**
 * The server names items by their index in the request (`/17/name`); this maps the index to a line. A bulk is all or
 * nothing.
 */
function explainRefusal(
  error: unknown,
  file: string,
  chunk: readonly Placed<unknown>[],
  createdBefore: number,
  what: string,
): unknown {
  if (!(error instanceof RefusedError)) return error
  const places = error.details.flatMap(({ path, message }) => {
    const item = chunk[Number(/^\/(\d+)/.exec(path)?.[1] ?? Number.NaN)]
    return item === undefined ? [] : [`${item.at}: ${path.replace(/^\/\d+\/?/, '')} ${message}`]
  })
  const before = createdBefore === 0 ? 'nothing was created' : `${createdBefore} ${what} had been created before`
  return new RefusedError(
    error.status,
    `${file}: ${places.length === 0 ? error.message : places.join('; ')} (${before})`,
    error.details,
    error.hint,
  )
}

export async function connectFromFile(cli: Cli, given: Given, file: string): Promise<void> {
  const { good, bad } = readConnections(file, given.flags.has('pairs'))
  settleBad(cli, given, file, bad)
  if (good.length === 0) throw new CommandError(`${file} contains no connections`)
  const isTrial = given.flags.has('dry-run')
  if (!isTrial) cli.output.note(sizeOf(good))
  const calls = [...callsOf(good)]
  const progress = createProgress(cli.output, isTrial ? 'trying connections' : 'connecting')
  const reports: unknown[] = []
  let done = 0
  try {
    for (const body of calls) {
      progress.at(done, calls.length)
      const { value } = await cli.request({
        method: 'POST',
        service: 'channels',
        path: given.domain === undefined ? '/connect' : `/${encodeURIComponent(given.domain)}/channels/connect`,
        query: dryRunOf(given),
        json: body.length === 1 ? body[0] : body,
        token: given.credential,
        deadlineMs: BULK_DEADLINE_MS,
      })
      if (isTrial) reports.push(value)
      done += 1
    }
  } catch (error) {
    if (error instanceof RefusedError && done > 0)
      throw new RefusedError(
        error.status,
        `${error.message} (${done} of ${calls.length} calls had succeeded before)`,
        error.details,
        error.hint,
      )
    throw error
  } finally {
    progress.end()
  }
  if (isTrial) cli.output.data(joinReports(reports), DRY_RUN_VIEW)
  else cli.output.ok()
}

/** The number of connections, printed before they are created. */
function sizeOf(connections: readonly Connections[]): string {
  const pairs = connections.reduce((sum, one) => sum + one.client_ids.length * one.channel_ids.length, 0)
  const clients = new Set(connections.flatMap((one) => one.client_ids))
  const channels = new Set(connections.flatMap((one) => one.channel_ids))
  const sign = pairs === clients.size * channels.size ? 'x' : 'and'
  return `creating ${counted(pairs, 'connection')}: ${counted(clients.size, 'client')} ${sign} ${counted(channels.size, 'channel')}`
}

const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`

/** Everything in one call if it fits (all or nothing); else as few calls as the limit on pairs allows. */
function* callsOf(connections: readonly Connections[]): Generator<Connections[]> {
  let call: Connections[] = []
  let pairs = 0
  for (const part of connections.flatMap((connection) => [...split(connection)])) {
    const more = part.client_ids.length * part.channel_ids.length
    if (call.length === MAX_CONNECTIONS || (call.length > 0 && pairs + more > MAX_PAIRS)) {
      yield call
      call = []
      pairs = 0
    }
    call.push(part)
    pairs += more
  }
  if (call.length > 0) yield call
}

function* split(connection: Connections): Generator<Connections> {
  for (let channel = 0; channel < connection.channel_ids.length; channel += MAX_ITEMS) {
    const channelIds = connection.channel_ids.slice(channel, channel + MAX_ITEMS)
    const clientsPerCall = Math.min(MAX_ITEMS, Math.max(1, Math.floor(MAX_PAIRS / channelIds.length)))
    for (let client = 0; client < connection.client_ids.length; client += clientsPerCall)
      yield {
        ...connection,
        client_ids: connection.client_ids.slice(client, client + clientsPerCall),
        channel_ids: channelIds,
      }
  }
}
