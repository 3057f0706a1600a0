/** Records in files of other engines: what is copied, what is copied again, and what goes (decision 0143). */
import { readFileSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { rm, truncate } from 'node:fs/promises'
import { join } from 'node:path'
import avro from 'avsc'
import { parquetMetadata } from 'hyparquet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Plant } from './support.ts'
import { startPlant } from './support.ts'
import { archiveState } from '../../api/messages/archive/index.ts'
import { conditionOf, piecesOf } from '../../api/messages/archive/pieces.ts'
import { archive, dataFilesOf, filesBelow, moveArrivals, newArchiveFolder, rowsOfFile } from './archive-support.ts'
import type { ArchiveFolder } from './archive-support.ts'

let plant: Plant
let folder: ArchiveFolder
beforeAll(async () => {
  plant = await startPlant()
  folder = newArchiveFolder()
})
afterAll(async () => {
  await plant[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

type Sent = Record<string, unknown>

async function publish(
  device: { secret: string; channelId: string },
  pack: readonly Sent[],
  subtopic = '',
): Promise<void> {
  const path = `/m/${plant.domainId}/c/${device.channelId}${subtopic}`
  const response = await plant.api.as(`Client ${device.secret}`)('POST', path, pack, {
    'content-type': 'application/senml+json',
  })
  expect(response.status, response.text).toBe(202)
}

async function archivedRows(): Promise<Record<string, unknown>[]> {
  return (await Promise.all((await dataFiles()).map(({ path }) => rowsOfFile(path)))).flat()
}

const dataFiles = () => dataFilesOf(plant.api)

const load = (path = 'namespaces/history/tables/records') =>
  plant.owner.call('GET', `/${plant.domainId}/iceberg/v1/${path}`)

const STRINGS = ['plain', '𝄞 astral', '', '\u{10FFFF}', 'line\nbreak', '￿', 'é']

/** All records of the channel, as the API shows them. */
async function readAll(channelId: string): Promise<Record<string, unknown>[]> {
  const response = await plant.owner.call('GET', `/${plant.domainId}/channels/${channelId}/messages?limit=100`)
  expect(response.status, response.text).toBe(200)
  return response.json<{ messages: Record<string, unknown>[] }>().messages
}

/** A row of a file in the form of the API, for values that JSON can hold. */
function presented(row: Record<string, unknown>): Record<string, unknown> {
  const { arrived_at: _arrived, batch: _batch, message: _message, ...rest } = row
  const shown = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined)
  return {
    ...Object.fromEntries(shown),
    time: Number(row['time'] as bigint) / 1e6,
    ...(row['data_value'] instanceof Uint8Array
      ? { data_value: Buffer.from(row['data_value']).toString('base64url') }
      : {}),
  }
}

const byName = (left: Record<string, unknown>, right: Record<string, unknown>) =>
  String(left['name']) < String(right['name']) ? -1 : 1

test('every type of value, time and text is in the files as the API has it', async () => {
  const device = await plant.newConnectedDevice()
  await publish(device, [
    { bn: 'dev:', bt: 1_700_000_000, n: 'temperature', u: 'Cel', v: 21.5 },
    { n: 'zero', v: -0 },
    { n: 'open', vb: false },
    { n: 'raw', vd: 'AQID' },
    { n: 'energy', v: 1, s: 12.25, ut: 10 },
    { n: 'exact', t: 0.123457, v: 0.1 },
    ...STRINGS.map((vs, index) => ({ n: `text${index}`, vs })),
  ])
  // Relative times: the first is in 1963, the second at the beginning of the years that are stored.
  await publish(device, [{ n: 'dev:old', t: -2_000_000_000.25, v: 7 }], '/a/b')
  await publish(device, [{ n: 'dev:first', t: -62_135_596_799 - Math.floor(Date.now() / 1000) + 60, v: 7 }])
  await publish(device, [{ n: 'dev:last', t: 253_402_300_799, v: 7 }])
  const read = await readAll(device.channelId)
  expect(read).toHaveLength(9 + STRINGS.length)
  await moveArrivals(plant.api, 9)
  const round = await archive(plant.api, folder.url)
  expect(round).toMatchObject({ failed: 0 })
  expect(round.exported).toBeGreaterThan(0)
  const rows = await archivedRows()
  expect(rows.map(presented).toSorted(byName)).toEqual(read.toSorted(byName))
  const of = (name: string) => rows.find((row) => row['name'] === `dev:${name}`)
  expect(Object.is(of('zero')?.['value'], 0)).toBe(true)
  expect(of('exact')?.['time']).toBe(1_700_000_000_123_457n)
  expect((of('old')?.['time'] as bigint) < 0n).toBe(true)
  expect(of('old')?.['subtopic']).toBe('a.b')
  expect([...((of('raw')?.['data_value'] ?? []) as Uint8Array)]).toEqual([1, 2, 3])
  expect(STRINGS.map((_, index) => of(`text${index}`)?.['string_value'])).toEqual(STRINGS)
})

test('files have field ids, exact sizes and counts, and the manifests say so', async () => {
  const [file] = await dataFiles()
  expect(file).toBeDefined()
  const { path = '', bytes, records } = file ?? {}
  expect(statSync(path).size).toBe(bytes)
  const { schema, num_rows: rows } = parquetMetadata(new Uint8Array(readFileSync(path)).buffer)
  expect(Number(rows)).toBe(records)
  expect(schema.slice(1).map(({ field_id: id }) => id)).toEqual(Array.from({ length: 16 }, (_, index) => index + 1))
  const folderOfMetadata = join(folder.path, plant.domainId, 'records', 'metadata')
  const manifests = readdirSync(folderOfMetadata).filter((name) => /-m\d+\.avro$/.test(name))
  expect(manifests.length).toBeGreaterThan(0)
  for (const name of manifests) {
    const content = readFileSync(join(folderOfMetadata, name))
    // The header holds the schema as text: a reader without field ids refuses the file.
    expect(content.includes('"field-id":1000')).toBe(true)
    const entries = await decoded(join(folderOfMetadata, name))
    for (const { data_file: data } of entries as { data_file: { file_path: string; file_size_in_bytes: number } }[])
      expect(statSync(data.file_path.slice('file://'.length)).size).toBe(data.file_size_in_bytes)
  }
})

function decoded(path: string): Promise<unknown[]> {
  return new Promise((resolve, reject) => {
    const found: unknown[] = []
    avro
      .createFileDecoder(path)
      .on('data', (value: unknown) => found.push(value))
      .on('end', () => resolve(found))
      .on('error', reject)
  })
}

test('the catalogue shows the table with one snapshot, and refuses in the words of its specification', async () => {
  const table = await load()
  expect(table.status, table.text).toBe(200)
  const { metadata } = table.json<{ metadata: Record<string, unknown>; 'metadata-location': string }>()
  expect(metadata['format-version']).toBe(2)
  expect(metadata['snapshots']).toHaveLength(1)
  const file = table.json<{ 'metadata-location': string }>()['metadata-location'].slice('file://'.length)
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(metadata)
  expect((await load('config')).json()).toMatchObject({ overrides: {}, defaults: {} })
  expect((await load('namespaces')).json()).toEqual({ namespaces: [['history']] })
  expect((await load('namespaces/history/tables')).json()).toEqual({
    identifiers: [{ namespace: ['history'], name: 'records' }],
  })
  const missing = await load('namespaces/history/tables/others')
  expect([missing.status, missing.json()]).toEqual([
    404,
    { error: { message: 'the namespace has no such table', type: 'NoSuchTableException', code: 404 } },
  ])
  expect((await load('namespaces/others')).json()).toMatchObject({ error: { type: 'NoSuchNamespaceException' } })
  const stranger = await plant.api.newUser()
  const refused = await stranger.call('GET', `/${plant.domainId}/iceberg/v1/config`)
  expect(refused.status).toBe(403)
  expect(refused.json()).toMatchObject({ error: { type: 'ForbiddenException', code: 403 } })
  const nobody = await plant.api.anonymous('GET', `/${plant.domainId}/iceberg/v1/config`)
  expect(nobody.json()).toMatchObject({ error: { type: 'NotAuthorizedException', code: 401 } })
})

test('a round without changes writes nothing; a deletion is copied, and the old files go after their grace', async () => {
  expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 0, failed: 0, expired: 0, deletedFiles: 0 })
  const device = await plant.newConnectedDevice()
  await publish(device, [
    { bn: 'gone:', n: 'a', bt: 1_700_000_000, v: 1 },
    { n: 'b', t: 5000, v: 2 },
  ])
  await moveArrivals(plant.api, 3)
  await archive(plant.api, folder.url)
  const names = async () => (await archivedRows()).map((row) => row['name'])
  expect(await names()).toEqual(expect.arrayContaining(['gone:a', 'gone:b', 'dev:temperature']))
  const path = `/${plant.domainId}/channels/${device.channelId}/messages?to=1700001000`
  const deleted = await plant.owner.call('DELETE', path)
  expect(deleted.status, deleted.text).toBeLessThan(300)
  expect((await archive(plant.api, folder.url)).exported).toBe(1)
  expect(await names()).toContain('gone:b')
  expect(await names()).not.toContain('gone:a')
  const { deletedFiles } = await archive(plant.api, folder.url, { graceSeconds: -1 })
  expect(deletedFiles).toBeGreaterThan(0)
  const { rows } = await plant.api.database.pool.query<{ path: string }>('SELECT path FROM archive_files')
  const known = rows.map((row) => row.path.slice('file://'.length)).toSorted()
  expect(filesBelow(folder.path)).toEqual(known)
})

test('records of a removed channel leave the archive, and those of others stay', async () => {
  const [gone, stays] = [await plant.newConnectedDevice(), await plant.newConnectedDevice()]
  await publish(gone, [{ n: 'removed', v: 1 }])
  await publish(stays, [{ n: 'stays', v: 1 }])
  await moveArrivals(plant.api, 6)
  await archive(plant.api, folder.url)
  const channels = async () => new Set((await archivedRows()).map((row) => row['channel']))
  expect(await channels()).toContain(gone.channelId)
  const removed = await plant.owner.call('DELETE', `/${plant.domainId}/channels/${gone.channelId}`)
  expect(removed.status).toBe(204)
  expect((await archive(plant.api, folder.url)).exported).toBeGreaterThan(0)
  expect(await channels()).not.toContain(gone.channelId)
  expect(await channels()).toContain(stays.channelId)
  // The removal is looked at for days, and copied once.
  expect((await archive(plant.api, folder.url)).exported).toBe(0)
})

const STEPS = [
  ...(['planned', 'data file begun', 'data file written', 'manifest written'] as const),
  ...(['manifest list written', 'metadata written', 'committed'] as const),
]

test(
  'an export that ends at any step is repeated, and leaves only files that are known',
  { timeout: 180_000 },
  async () => {
    const device = await plant.newConnectedDevice()
    const names: string[] = []
    for (const [index, step] of STEPS.entries()) {
      names.push(`step${index}`)
      await publish(device, [{ n: `step${index}`, v: index }])
      // Weeks beside it get partitions too, which the archiver plans.
      await moveArrivals(plant.api, 12 + 3 * index)
      let isReached = false
      const atStep = (reached: string) => {
        if (reached !== step || isReached) return Promise.resolve()
        isReached = true
        return Promise.reject(new Error(`ended at ${step}`))
      }
      await archive(plant.api, folder.url, { atStep }).catch(() => undefined)
      expect(isReached, step).toBe(true)
      await archive(plant.api, folder.url)
      const found = (await archivedRows()).map((row) => String(row['name'])).filter((name) => name.startsWith('step'))
      expect(found.toSorted(), step).toEqual(names)
    }
    await archive(plant.api, folder.url, { graceSeconds: -1 })
    const { rows } = await plant.api.database.pool.query<{ path: string }>('SELECT path FROM archive_files')
    expect(filesBelow(folder.path)).toEqual(rows.map((row) => row.path.slice('file://'.length)).toSorted())
  },
)

test('verification finds a missing and a cut file, and the range is copied again', async () => {
  type Check = { faults: string[]; next?: string; files: number }
  const verify = async () => {
    const faults: string[] = []
    for (let after = ''; ;) {
      const path = `/${plant.domainId}/history/verify${after === '' ? '' : `?after=${after}`}`
      const response = await plant.owner.call('POST', path)
      expect(response.status, response.text).toBe(200)
      const check = response.json<Check>()
      faults.push(...check.faults)
      if (check.next === undefined) return faults
      after = check.next
    }
  }
  expect(await verify()).toEqual([])
  const files = await dataFiles()
  await rm(files[0]?.path ?? '')
  await truncate(files.at(-1)?.path ?? '', 10)
  const faults = await verify()
  expect(faults.some((fault) => fault.endsWith('is missing'))).toBe(true)
  expect((await archive(plant.api, folder.url)).exported).toBeGreaterThan(0)
  expect(await verify()).toEqual([])
  const state = await plant.owner.call('GET', `/${plant.domainId}/history`)
  expect(state.json()).toMatchObject({ table: 'history.records', waiting_ranges: 0 })
})

type Check = { faults: string[]; next?: string }

async function verifyAll(): Promise<string[]> {
  const faults: string[] = []
  for (let after = ''; ;) {
    const path = `/${plant.domainId}/history/verify${after === '' ? '' : `?after=${after}`}`
    const check = (await plant.owner.call('POST', path)).json<Check>()
    faults.push(...check.faults)
    if (check.next === undefined) return faults
    after = check.next
  }
}

const namesOf = async (prefix: string) =>
  (await archivedRows())
    .map((row) => String(row['name']))
    .filter((name) => name.startsWith(prefix))
    .toSorted()

test('records are copied in pieces of a bounded size, each once, whatever their times are', async () => {
  const [large, small, equal] = await Promise.all([
    plant.newConnectedDevice(),
    plant.newConnectedDevice(),
    plant.newConnectedDevice(),
  ])
  const names = (from: string, count: number) => Array.from({ length: count }, (_, index) => `piece:${from}${index}`)
  // In the order of time, and against it; the times of some are equal.
  for (let message = 0; message < 10; message++) {
    const pack = names(`large${message}-`, 7).map((n, index) => ({
      n,
      v: index,
      t: 1_700_000_000 + 1000 * ((message * 7) % 10),
    }))
    await publish(large, pack)
    await publish(
      equal,
      names(`equal${message}-`, 5).map((n) => ({ n, v: 1, t: 1_700_000_000 })),
    )
  }
  await publish(
    small,
    names('small', 3).map((n) => ({ n, v: 1 })),
  )
  const expected = (await Promise.all([large, small, equal].map(({ channelId }) => readAll(channelId)))).flat()
  expect(expected).toHaveLength(70 + 50 + 3)
  const { rows: keys } = await plant.api.database.pool.query<{ key: number; records: number }>(
    `SELECT channel_key AS key, sum(cardinality(times))::bigint AS records FROM records
      WHERE arrived_at > now() - interval '1 hour' GROUP BY 1 ORDER BY 1`,
  )
  const client = await plant.api.database.dedicated('pieces')
  try {
    await client.query('BEGIN')
    const of = (some: readonly number[]) =>
      `FROM records m WHERE m.channel_key = ANY ('{${some.join(',')}}'::bigint[]) AND m.arrived_at > now() - interval '1 hour'`
    const source = { client, of, limits: { records: 10, storedBytes: 1000 } }
    const sizes: number[] = []
    for (const piece of await piecesOf(
      source,
      keys.map(({ key }) => key),
    )) {
      const { rows } = await client.query<{ records: number }>(
        `SELECT coalesce(sum(cardinality(m.times)), 0)::bigint AS records ${of(piece.channelKeys)} AND ${conditionOf(piece)}`,
      )
      sizes.push(rows[0]?.records ?? 0)
    }
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(expected.length)
    // A piece ends with a moment, here of 7 records; the parts of one moment are not of equal size.
    expect(Math.max(...sizes)).toBeLessThanOrEqual(30)
    expect(sizes.length).toBeGreaterThan(8)
  } finally {
    await client.end()
  }
  await moveArrivals(plant.api, 40)
  const round = await archive(plant.api, folder.url, { limits: { records: 10, storedBytes: 1000 } })
  expect(round).toMatchObject({ failed: 0, failures: [] })
  expect(await namesOf('piece:')).toEqual(expected.map((row) => String(row['name'])).toSorted())
})

test('files and folders have modes of their own, whatever the umask is', async () => {
  const device = await plant.newConnectedDevice()
  await publish(device, [{ n: 'mode', v: 1 }])
  await moveArrivals(plant.api, 44)
  const before = process.umask(0o000)
  try {
    await archive(plant.api, folder.url)
  } finally {
    process.umask(before)
  }
  const entries = readdirSync(folder.path, { recursive: true, withFileTypes: true })
  expect(entries.length).toBeGreaterThan(5)
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    expect([path, (statSync(path).mode & 0o777).toString(8)]).toEqual([path, entry.isFile() ? '640' : '750'])
  }
})

test('a channel that was removed long ago leaves the archive too', async () => {
  const gone = await plant.newConnectedDevice()
  await publish(gone, [{ n: 'long-gone', v: 1 }])
  await moveArrivals(plant.api, 48)
  await archive(plant.api, folder.url)
  expect(await namesOf('long-gone')).toHaveLength(1)
  await plant.owner.call('DELETE', `/${plant.domainId}/channels/${gone.channelId}`)
  // As if the archive had been off until the journal forgot the removal.
  await plant.api.database.pool.query(`DELETE FROM removed_entities WHERE type = 'channel'`)
  const memory = {}
  const round = await archive(plant.api, folder.url, { memory })
  expect(round.audit?.removedChannels).toBe(1)
  expect(await namesOf('long-gone')).toEqual([])
  // The next round of the same process has no audit.
  expect((await archive(plant.api, folder.url, { memory })).audit).toBeUndefined()
})

test(
  'a database that was restored to before an export is not confused by the files of its future',
  { timeout: 180_000 },
  async () => {
    const device = await plant.newConnectedDevice()
    await publish(device, [{ n: 'restored:first', v: 1 }])
    await moveArrivals(plant.api, 52)
    await archive(plant.api, folder.url)
    const { pool } = plant.api.database
    const TABLES = ['archive_tables', 'archive_plans', 'archive_ranges', 'archive_files']
    for (const name of TABLES) await pool.query(`CREATE TABLE saved_${name} AS SELECT * FROM ${name}`)
    await pool.query(`CREATE TABLE saved_owner AS SELECT * FROM installation WHERE name = 'archive_owner'`)
    const before = new Set((await dataFiles()).map(({ path }) => path))
    // The future: another range, a range that was copied again, and files that were deleted.
    await publish(device, [{ n: 'restored:second', v: 2 }])
    await moveArrivals(plant.api, 56)
    const { rows: ranges } = await pool.query('UPDATE archive_ranges SET changes = changes + 1 RETURNING 1')
    expect(ranges.length).toBeGreaterThan(1)
    await archive(plant.api, folder.url)
    await archive(plant.api, folder.url, { graceSeconds: -1 })
    const future = filesBelow(folder.path)
    expect(future.some((path) => before.has(path))).toBe(false)
    for (const name of TABLES) {
      await pool.query(`DELETE FROM ${name}`)
      await pool.query(
        `INSERT INTO ${name} ${name === 'archive_files' ? 'OVERRIDING SYSTEM VALUE ' : ''}SELECT * FROM saved_${name}`,
      )
    }
    await pool.query(`UPDATE installation i SET value = s.value FROM saved_owner s WHERE s.name = i.name`)
    // Another installation may write there: nothing is touched while that can be.
    const memory = {}
    await expect(archive(plant.api, folder.url, { memory, graceSeconds: -1 })).rejects.toThrow('database was restored')
    await expect(archive(plant.api, folder.url, { memory, graceSeconds: -1 })).rejects.toThrow('database was restored')
    expect(filesBelow(folder.path)).toEqual(future)
    const state = await plant.owner.call('GET', `/${plant.domainId}/history`)
    expect(state.json<{ failure?: string }>().failure).toContain('database was restored')
    const round = await archive(plant.api, folder.url, { memory, takeoverMs: 0, graceSeconds: -1 })
    expect(round.audit?.unknownFiles).toBe(future.length)
    expect(round.audit?.damagedFiles).toBeGreaterThan(0)
    expect(await namesOf('restored:')).toEqual(['restored:first', 'restored:second'])
    expect(await verifyAll()).toEqual([])
    await archive(plant.api, folder.url, { graceSeconds: -1 })
    const { rows } = await pool.query<{ path: string }>('SELECT path FROM archive_files')
    expect(filesBelow(folder.path)).toEqual(rows.map((row) => row.path.slice('file://'.length)).toSorted())
  },
)

test('a folder without its file `owner` is not written to, and an empty one begins it again', async () => {
  await archive(plant.api, folder.url)
  await rm(join(folder.path, 'owner'))
  await expect(archive(plant.api, folder.url)).rejects.toThrow('not mounted')
  writeFileSync(join(folder.path, 'owner'), '')
  expect((await archive(plant.api, folder.url)).audit).toMatchObject({ damagedFiles: 0, unknownFiles: 0 })
  const foreign = join(folder.path, plant.domainId, 'records', 'metadata', 'notes.avro')
  writeFileSync(foreign, 'of the operator')
  utimesSync(foreign, 0, 0)
  await archive(plant.api, folder.url, { graceSeconds: -1 })
  expect(readFileSync(foreign, 'utf8')).toBe('of the operator')
  await rm(foreign)
})

test('only operators see where the files of another domain lie', async () => {
  const { pool } = plant.api.database
  await pool.query(`UPDATE archive_tables SET location = replace(location, 'file:///', 'file:///old/')`)
  await expect(archive(plant.api, folder.url)).rejects.toThrow('not below SKEIN_ARCHIVE_URL')
  const seen = (await plant.owner.call('GET', `/${plant.domainId}/history`)).json<{ failure: string }>()
  expect(seen.failure).toContain('not below SKEIN_ARCHIVE_URL')
  expect(seen.failure).not.toContain('file:')
  const state = await archiveState(plant.api.database.db)
  expect(state?.failure).toContain(`file:///old${folder.path}/${plant.domainId}/records`)
  await pool.query(`UPDATE archive_tables SET location = replace(location, 'file:///old/', 'file:///')`)
  await archive(plant.api, folder.url)
  expect(await archiveState(plant.api.database.db)).toMatchObject({ failure: null })
})

test('expired ranges and removed domains leave nothing behind', async () => {
  const { pool } = plant.api.database
  await pool.query(`UPDATE archive_ranges SET retention_days = 30, range_end = range_end - interval '60 days'`)
  await pool.query(`UPDATE archive_files SET retention_days = 30 WHERE kind = 'data'`)
  const round = await archive(plant.api, folder.url)
  expect(round.expired).toBeGreaterThan(0)
  expect(await dataFiles()).toEqual([])
  const table = await load()
  expect(table.status, table.text).toBe(200)
  await pool.query('UPDATE archive_tables SET domain_key = -1')
  await pool.query('UPDATE archive_files SET domain_key = -1')
  await archive(plant.api, folder.url)
  expect(filesBelow(folder.path)).toEqual([])
  const { rows } = await pool.query('SELECT FROM archive_files')
  expect(rows).toEqual([])
})
