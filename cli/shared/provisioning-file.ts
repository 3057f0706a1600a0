/**
 * Files of bulk provisioning (contract section 13): CSV or JSON by their extension, in current and older forms.
 * Everything that can be checked before a request is checked here and reported with its line.
 */
import { readFileSync } from 'node:fs'
import { extname } from 'node:path'
import { parse } from 'csv-parse/sync'
import { headerOf, recordOfRow } from '#core/csv-records.ts'
import { decodeCsv, delimitedCsv } from '#core/csv-text.ts'
import { isId } from '#core/ids.ts'
import { CommandError } from './failures.ts'
import { isRecord } from './values.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'

/** The location of a value: `line 17` of CSV, `item 17` of JSON. */
export type Placed<T> = { at: string; value: T }

/** An invalid line and the reason. */
export type BadLine = { at: string; reason: string }

export type Entities = { good: Placed<Record<string, unknown>>[]; bad: BadLine[] }

export type Connections = { client_ids: string[]; channel_ids: string[]; types: string[] }

const CLIENT_COLUMNS = ['id', 'name', 'secret', 'tags', 'metadata', 'status']
const CHANNEL_COLUMNS = ['id', 'name', 'route', 'description', 'tags', 'metadata', 'status']
const CONNECTION_COLUMNS = ['client_id', 'channel_id']
const MAX_FILE_BYTES = 256 * 1024 * 1024
const MAX_NAME_CHARS = 1024
const BOTH = ['publish', 'subscribe']

/** Clients or channels: rows of CSV with a header, or of names; or an array of records. */
export function readEntities(path: string, what: 'clients' | 'channels'): Entities {
  const columns = what === 'clients' ? CLIENT_COLUMNS : CHANNEL_COLUMNS
  const { good, bad } = isJson(path) ? entitiesOfJson(readJson(path)) : entitiesOfCsv(readText(path), columns)
  return { good, bad: bad.toSorted(byPlace) }
}

function byPlace(one: BadLine, other: BadLine): number {
  const placeOf = ({ at }: BadLine) => Number(/\d+/.exec(at)?.[0])
  return placeOf(one) - placeOf(other)
}

function entitiesOfCsv(text: string, known: readonly string[]): Entities {
  const { columns, rows, bad } = readTable(text, known, ['name'])
  const good: Entities['good'] = []
  for (const { at, value } of rows) {
    const name = typeof value['name'] === 'string' ? value['name'] : ''
    const problem = columns.includes('name') ? problemOfName(name) : undefined
    if (problem === undefined) good.push({ at, value })
    else bad.push({ at, reason: problem })
  }
  return { good, bad }
}

function entitiesOfJson(document: unknown): Entities {
  const items: unknown[] = Array.isArray(document) ? document : [document]
  const good: Entities['good'] = []
  const bad: BadLine[] = []
  for (const [index, item] of items.entries()) {
    const at = `item ${index + 1}`
    if (!isRecord(item)) bad.push({ at, reason: 'is not an object' })
    else if (item['name'] !== undefined && typeof item['name'] !== 'string')
      bad.push({ at, reason: 'name must be a string' })
    else {
      const problem = typeof item['name'] === 'string' ? problemOfName(item['name']) : undefined
      if (problem === undefined) good.push({ at, value: item })
      else bad.push({ at, reason: problem })
    }
  }
  return { good, bad }
}

function problemOfName(name: string): string | undefined {
  if (name === '') return 'the name is missing'
  if (name.length > MAX_NAME_CHARS && Array.from(name).length > MAX_NAME_CHARS)
    return `the name is longer than ${MAX_NAME_CHARS} characters`
  return name.includes('\0') ? 'the name contains a NUL character' : undefined
}

/**
 * Connections of a CSV with a column of clients and one of channels. Every client of the file is connected to every
 * channel of it (specification, "a connect file with N client ids and M channel ids creates N times M connections"); with
 * `arePairs` each line is one connection. JSON lists the connections itself.
 */
export function readConnections(path: string, arePairs: boolean): { good: Connections[]; bad: BadLine[] } {
  if (isJson(path)) return connectionsOfJson(readJson(path))
  const { rows, bad } = readTable(readText(path), CONNECTION_COLUMNS, CONNECTION_COLUMNS)
  const pairs: { client: string; channel: string }[] = []
  for (const { at, value } of rows) {
    const [client = '', channel = ''] = [value['client_id'], value['channel_id']] as (string | undefined)[]
    const problem = problemOfPair(client, channel, arePairs)
    if (problem === undefined) pairs.push({ client, channel })
    else bad.push({ at, reason: problem })
  }
  const good = arePairs ? byClient(pairs) : everyPair(pairs)
  if (good.length === 0 && bad.length === 0)
    throw new CommandError('the file must have two columns: client ids, channel ids')
  return { good, bad: bad.toSorted(byPlace) }
}

function problemOfPair(client: string, channel: string, isWhole: boolean): string | undefined {
  if (client === '' && channel === '') return 'has neither a client nor a channel'
  // Without pairs the columns can have different lengths.
  if (isWhole && client === '') return 'has no client'
  if (isWhole && channel === '') return 'has no channel'
  return problemOfIds(client === '' ? [] : [client], channel === '' ? [] : [channel])
}

type Pair = { client: string; channel: string }

function everyPair(pairs: readonly Pair[]): Connections[] {
  const clients = new Set(pairs.flatMap(({ client }) => (client === '' ? [] : [client])))
  const channels = new Set(pairs.flatMap(({ channel }) => (channel === '' ? [] : [channel])))
  return clients.size > 0 && channels.size > 0
    ? [{ client_ids: [...clients], channel_ids: [...channels], types: BOTH }]
    : []
}

function byClient(pairs: readonly Pair[]): Connections[] {
  const channelsOf = new Map<string, Set<string>>()
  for (const { client, channel } of pairs)
    channelsOf.set(client, (channelsOf.get(client) ?? new Set<string>()).add(channel))
  return [...channelsOf].map(([client, channels]) => ({
    client_ids: [client],
    channel_ids: [...channels],
    types: BOTH,
  }))
}

function problemOfIds(clients: readonly string[], channels: readonly string[]): string | undefined {
  const client = clients.find((id) => !isId(id))
  if (client !== undefined) return `client "${client}" is not a lower-case UUID`
  const channel = channels.find((id) => !isId(id))
  return channel === undefined ? undefined : `channel "${channel}" is not a lower-case UUID`
}

function connectionsOfJson(document: unknown): { good: Connections[]; bad: BadLine[] } {
  const items: unknown[] = Array.isArray(document) ? document : [document]
  const good: Connections[] = []
  const bad: BadLine[] = []
  for (const [index, item] of items.entries()) {
    const at = `item ${index + 1}`
    const connection = isRecord(item) ? connectionOf(item) : undefined
    if (connection === undefined) {
      bad.push({ at, reason: 'needs client_ids and channel_ids, subjects and objects, or thing_id and channel_id' })
      continue
    }
    const problem = problemOfIds(connection.client_ids, connection.channel_ids)
    if (problem === undefined) good.push(connection)
    else bad.push({ at, reason: problem })
  }
  return { good, bad }
}

function connectionOf(item: Record<string, unknown>): Connections | undefined {
  const ids = (...names: string[]) => {
    const found = names.map((name) => item[name]).find((value) => value !== undefined)
    const list = Array.isArray(found) ? found : found === undefined ? [] : [found]
    return list.every((id) => typeof id === 'string' && id !== '') ? (list as string[]) : []
  }
  const clientIds = ids('client_ids', 'subjects', 'thing_ids', 'client_id', 'thing_id')
  const channelIds = ids('channel_ids', 'objects', 'channel_id')
  const types = ids('types', 'actions')
  if (clientIds.length === 0 || channelIds.length === 0) return undefined
  return { client_ids: clientIds, channel_ids: channelIds, types: types.length === 0 ? BOTH : types.map(typeOf) }
}

/** Maps the older actions `m_write` and `m_read` to connection types. */
const typeOf = (type: string): string => ({ m_write: 'publish', m_read: 'subscribe' })[type] ?? type.toLowerCase()

function isJson(path: string): boolean {
  const extension = extname(path).toLowerCase()
  if (extension === '.json') return true
  if (extension === '.csv') return false
  throw new CommandError(`${path} must end in .csv or .json`)
}

function readText(path: string): string {
  let bytes: Buffer
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw new CommandError(`cannot read ${path}: ${(error as Error).message}`)
  }
  if (bytes.length > MAX_FILE_BYTES)
    throw new CommandError(`${path} is larger than ${MAX_FILE_BYTES / 1024 / 1024} MiB`, 'split it')
  try {
    return decodeCsv(bytes)
  } catch (error) {
    throw new CommandError(`${path} is not UTF-8, nor UTF-16 with a byte order mark`, undefined, { cause: error })
  }
}

function readJson(path: string): unknown {
  const text = readText(path)
  try {
    return parseWithExactIntegers(text)
  } catch (error) {
    throw new CommandError(`${path} is not JSON: ${(error as Error).message}`)
  }
}

/**
 * Records by the header of the file, or by position. Invalid rows are reported and skipped. Throws CommandError for a
 * header with unknown columns.
 */
function readTable(
  text: string,
  known: readonly string[],
  byPosition: readonly string[],
): { columns: readonly string[]; rows: Placed<Record<string, unknown>>[]; bad: BadLine[] } {
  const { rows, bad } = readCsv(text, known)
  const [first] = rows
  const header = first === undefined ? undefined : headerOf(first.value, known)
  if (typeof header === 'string') throw new CommandError(`${first?.at} ${header}`)
  const columns = header ?? byPosition
  const good: Placed<Record<string, unknown>>[] = []
  for (const { at, value } of header === undefined ? rows : rows.slice(1)) {
    const record = recordOfRow(columns, value, header !== undefined)
    if (typeof record === 'string') bad.push({ at, reason: record })
    else good.push({ at, value: record })
  }
  return { columns, rows: good, bad }
}

/** The parser's output with `info: true`. */
type ReadRecord = { record: string[]; info: { lines: number } }

function readCsv(all: string, known: readonly string[]): { rows: Placed<string[]>[]; bad: BadLine[] } {
  const { text, delimiter } = delimited(all, known)
  // The parser can report one line twice.
  const bad = new Map<number, BadLine>()
  const records = parse(text, {
    delimiter,
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
    skip_records_with_empty_values: true,
    skip_records_with_error: true,
    trim: true,
    onSkip: (error) => {
      const line = Number(error?.['lines'])
      if (error !== undefined) bad.set(line, { at: `line ${line}`, reason: reasonOf(error.message) })
      return undefined
    },
  }) as unknown as ReadRecord[]
  return {
    rows: records.map(({ record, info }) => ({ at: `line ${info.lines}`, value: record })),
    bad: [...bad.values()],
  }
}

function delimited(text: string, known: readonly string[]) {
  try {
    return delimitedCsv(text, known)
  } catch (error) {
    throw new CommandError((error as Error).message)
  }
}

const reasonOf = (message: string): string => `is not CSV: ${message.split(/: | at line/)[1] ?? message}`
