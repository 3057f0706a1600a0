/**
 * Imports files of clients, channels or connections: completely or not at all, with a report of the line and reason of
 * each error (contract section 13, bulk files). The services of devices create the entities.
 */
import { MAX_BULK_ITEMS, MAX_PAIRS, newerCreation, parseConnectionPairs, requirePairLimit } from '#api/devices/index.ts'
import type { Devices } from '#api/devices/index.ts'
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import { headerOf, recordOfRow } from '#core/csv-records.ts'
import { CsvTextFault, decodeCsv, delimitedCsv } from '#core/csv-text.ts'
import type { Database } from '#core/database/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { inTurns } from '#core/turns.ts'
import { parseCsv } from './csv.ts'
import { createReport } from './report.ts'
import type { Report } from './report.ts'
import { findKnown, findTaken } from './repository.ts'
import type { KnownEnd } from './repository.ts'
import { faultsOf, pairsOf, storageFaultOf } from './schema.ts'
import type { Pairs } from './schema.ts'

/** Bytes of a CSV file with the charset of their content type, or the value of a JSON file. */
export type FileBody = { csv: Buffer; charset: string | undefined } | { json: unknown }

type Placed<T> = { place: string; item: T }
type Named = { id?: string; name?: string; credentials?: { secret?: string } }

export type Imported<T> = { total: number; made: T[] }

/** The allowed columns of a table, its columns without a header, and defaults of empty cells. */
type Table = { columns: readonly string[]; byPosition: readonly string[]; empty?: Record<string, unknown> }

const TABLES: Readonly<Record<'client' | 'channel' | 'connection', Table>> = {
  client: { columns: ['id', 'name', 'secret', 'tags', 'metadata', 'status'], byPosition: ['name'] },
  channel: {
    columns: ['id', 'name', 'route', 'description', 'tags', 'metadata', 'status'],
    byPosition: ['name'],
  },
  connection: {
    columns: ['client_id', 'channel_id'],
    byPosition: ['client_id', 'channel_id'],
    empty: { client_id: '', channel_id: '' },
  },
}

export class BulkService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #devices: Devices

  constructor({ database, access, devices }: { database: Database; access: AccessPolicy; devices: Devices }) {
    this.#database = database
    this.#access = access
    this.#devices = devices
  }

  /** Throws the errors of the report: `malformed`, `conflict`. */
  async importClients(
    caller: UserPrincipal,
    domainId: string,
    file: FileBody,
  ): Promise<Imported<{ id: string; name: string; secret: string }>> {
    const items = await this.#readItems<Named>(caller, domainId, 'client', file)
    const made = await this.#devices.clients.create(caller, domainId, items)
    return {
      total: made.length,
      made: made.map(({ client, secret }) => ({ id: client.id, name: client.name, secret })),
    }
  }

  async importChannels(
    caller: UserPrincipal,
    domainId: string,
    file: FileBody,
  ): Promise<Imported<{ id: string; name: string }>> {
    const items = await this.#readItems<Named>(caller, domainId, 'channel', file)
    const made = await this.#devices.channels.create(caller, domainId, items)
    return { total: made.length, made: made.map(({ channel }) => ({ id: channel.id, name: channel.name })) }
  }

  /**
   * Returns the number of pairs in the file. Throws the errors of the report: `malformed`, `forbidden`,
   * `unprocessable`.
   */
  async importConnections(caller: UserPrincipal, domainId: string, file: FileBody): Promise<{ total: number }> {
    const domain = await this.#access.enter(caller, domainId)
    const report = createReport()
    const items = await placedItems(report, file, MAX_PAIRS, TABLES.connection)
    const placed: Placed<Pairs>[] = []
    let total = 0
    await inTurns(items, ({ place, item }) => {
      const pairs = pairsOf(item)
      if (typeof pairs === 'string') return report.refuse('malformed', place, pairs)
      total += pairs.clientIds.length * pairs.channelIds.length
      // Checked before the lists are multiplied: two lists of 10,000 ids would be a hundred million pairs.
      requirePairLimit(total)
      placed.push({ place, item: pairs })
    })
    const [clientIds, channelIds] = [new Set<string>(), new Set<string>()]
    await inTurns(placed, ({ item }) => {
      for (const id of item.clientIds) clientIds.add(id)
      for (const id of item.channelIds) channelIds.add(id)
    })
    const [clients, channels] = await Promise.all([
      findKnown(this.#database.db, domain, 'client', [...clientIds], 'connect_to_channel'),
      findKnown(this.#database.db, domain, 'channel', [...channelIds], 'connect_to_client'),
    ])
    await inTurns(placed, ({ place, item }) => {
      refuseUnknown(report, place, 'client', item.clientIds, clients)
      refuseUnknown(report, place, 'channel', item.channelIds, channels)
    })
    report.requireNothing()
    const merged = await merge(placed.map(({ item }) => item))
    await this.#devices.connections.connect(
      caller,
      { domainId },
      parseConnectionPairs(
        merged.map(({ clientIds, channelIds, types }) => ({
          client_ids: clientIds,
          channel_ids: channelIds,
          ...(types === undefined ? {} : { types }),
        })),
      ),
    )
    return { total }
  }

  async #readItems<T extends Named>(
    caller: UserPrincipal,
    domainId: string,
    type: 'client' | 'channel',
    file: FileBody,
  ): Promise<T[]> {
    const domain = await this.#access.enter(caller, domainId)
    const report = createReport()
    const placed = await placedItems(report, file, MAX_BULK_ITEMS, TABLES[type])
    const items: Placed<T>[] = []
    await inTurns(placed, ({ place, item }) => {
      const faults = faultsOf(`${type}s`, item)
      for (const fault of faults) report.refuse('malformed', place, fault)
      if (faults.length === 0) items.push({ place, item: newerCreation(item as T) })
    })
    refuseRepeated(report, items, 'id', (item) => item.id)
    refuseRepeated(report, items, 'secret', (item) => item.credentials?.secret)
    const ids = items.flatMap(({ item }) => (item.id === undefined ? [] : [item.id]))
    const taken = ids.length === 0 ? new Set() : await findTaken(this.#database.db, domain.domainKey, type, ids)
    for (const { place, item } of items) {
      if (item.id !== undefined && taken.has(item.id))
        report.refuse('conflict', place, `has the id of an existing ${type} of the domain`)
    }
    report.requireNothing()
    return items.map(({ item }) => item)
  }
}

/**
 * Returns the lines of CSV or the items of JSON. One JSON object is a list of one. Invalid lines are added to the
 * report. Throws `malformed` for an empty file, `too_large`.
 */
async function placedItems(report: Report, file: FileBody, maxItems: number, table: Table): Promise<Placed<unknown>[]> {
  const items =
    'csv' in file
      ? await itemsOfCsv(report, file, maxItems, table)
      : [file.json].flat().map((item, index) => ({ place: `item ${index + 1}`, item }))
  if (items.length === 0) report.requireNothing()
  if (items.length === 0) throw new ServiceError('malformed', 'the file is empty')
  return items
}

async function itemsOfCsv(
  report: Report,
  { csv, charset }: { csv: Buffer; charset: string | undefined },
  maxItems: number,
  { columns, byPosition, empty }: Table,
): Promise<Placed<unknown>[]> {
  const { text, delimiter } = readable(() => delimitedCsv(decodeCsv(csv, charset), columns))
  const { rows, faults } = await parseCsv(text, maxItems + 1, delimiter)
  for (const { line, message } of faults) report.refuse('malformed', `line ${line}`, message)
  const [first] = rows
  // The first line may be the header, without which the others have no meaning.
  if (first === undefined || first.line > (faults[0]?.line ?? Infinity)) return []
  const header = headerOf(first.cells, columns)
  if (typeof header === 'string') {
    report.refuse('malformed', `line ${first.line}`, header)
    return []
  }
  const records = header === undefined ? rows : rows.slice(1)
  if (records.length > maxItems) throw new ServiceError('too_large', `the file is limited to ${maxItems} rows`)
  const items: Placed<unknown>[] = []
  await inTurns(records, ({ line, cells }) => {
    const place = `line ${line}`
    const record = recordOfRow(header ?? byPosition, cells, header !== undefined)
    const fault = typeof record === 'string' ? record : storageFaultOf(record)
    if (fault === undefined) items.push({ place, item: { ...empty, ...(record as object) } })
    else report.refuse('malformed', place, fault)
  })
  return items
}

/** Throws `malformed` for a text that cannot be read. */
function readable<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof CsvTextFault ? new ServiceError('malformed', error.message, { cause: error }) : error
  }
}

function refuseRepeated<T>(
  report: Report,
  items: readonly Placed<T>[],
  field: string,
  valueOf: (item: T) => string | undefined,
): void {
  const places = new Map<string, string>()
  for (const { place, item } of items) {
    const value = valueOf(item)
    if (value === undefined) continue
    const first = places.get(value)
    if (first === undefined) places.set(value, place)
    else report.refuse('conflict', place, `repeats the ${field} of ${first}`)
  }
}

function refuseUnknown(
  report: Report,
  place: string,
  type: 'client' | 'channel',
  ids: readonly string[],
  known: ReadonlyMap<string, KnownEnd>,
): void {
  for (const id of ids) {
    const end = known.get(id)
    const refusal: [ErrorKind, string] | undefined =
      end === undefined
        ? ['unprocessable', `${type} ${id} does not exist in this domain`]
        : !end.isAllowed
          ? ['forbidden', `you may not connect ${type} ${id}`]
          : end.status === 'enabled'
            ? undefined
            : ['unprocessable', `${type} ${id} is disabled`]
    if (refusal !== undefined) report.refuse(refusal[0], place, refusal[1])
  }
}

/** Merges lines with the same channels: a file of N times M lines becomes one item and one journal entry. */
async function merge(all: readonly Pairs[]): Promise<Pairs[]> {
  const byClient = new Map<string, { clientId: string; types: string[] | undefined; channels: Set<string> }>()
  await inTurns(all, ({ clientIds, channelIds, types }) => {
    for (const clientId of clientIds) {
      const name = `${clientId} ${types?.toSorted().join(',') ?? ''}`
      const entry = byClient.get(name) ?? { clientId, types, channels: new Set<string>() }
      for (const channelId of channelIds) entry.channels.add(channelId)
      byClient.set(name, entry)
    }
  })
  const byChannels = new Map<string, Pairs>()
  await inTurns(byClient.values(), ({ clientId, channels, types }) => {
    const channelIds = [...channels]
    const name = `${channelIds.toSorted().join(',')} ${types?.toSorted().join(',') ?? ''}`
    const known = byChannels.get(name)
    if (known === undefined) byChannels.set(name, { clientIds: [clientId], channelIds, types })
    else known.clientIds.push(clientId)
  })
  return [...byChannels.values()]
}
