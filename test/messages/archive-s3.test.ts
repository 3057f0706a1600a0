/** Records are copied to a bucket as to a folder (decisions 0143, 0151 and 0160). */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { archiveState } from '../../api/messages/archive/index.ts'
import { rowsOfBytes, moveArrivals, tryArchive } from './archive-support.ts'
import type { ArchiverOptions, Round } from '../../api/messages/archive/archiver.ts'
import { ACCESS_KEY, SECRET_KEY, startS3Server } from './s3-server.ts'
import type { S3Server } from './s3-server.ts'
import { startPlant } from './support.ts'
import type { Plant } from './support.ts'

let server: S3Server
let plant: Plant
beforeAll(async () => {
  server = await startS3Server()
  // A Parquet file is several pieces.
  server.target.pieceBytes = 1000
  plant = await startPlant({
    environment: {
      SKEIN_ARCHIVE_URL: server.url,
      SKEIN_ARCHIVE_S3_ENDPOINT: server.target.endpoint,
      SKEIN_ARCHIVE_S3_REGION: server.target.region,
      SKEIN_ARCHIVE_S3_ACCESS_KEY: ACCESS_KEY,
      SKEIN_ARCHIVE_S3_SECRET_KEY: SECRET_KEY,
    },
  })
})
afterAll(async () => {
  await plant?.[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

/** The node of the test has rounds of its own, which hold the lock for a moment. */
const archive = (options: Partial<ArchiverOptions> = {}): Promise<Round> =>
  until(() => tryArchive(plant.api, server.url, { s3: server.target, ...options }), 'a round', 120_000)

async function publish(device: { secret: string; channelId: string }, names: readonly string[], weeks: number) {
  const response = await plant.api.as(`Client ${device.secret}`)(
    'POST',
    `/m/${plant.domainId}/c/${device.channelId}`,
    names.map((n, index) => ({ n, v: index })),
    { 'content-type': 'application/senml+json' },
  )
  expect(response.status, response.text).toBe(202)
  await moveArrivals(plant.api, weeks)
}

const keysOfFiles = () => [...server.objects.keys()].filter((key) => !key.endsWith('/owner')).toSorted()

async function keysOfRows(): Promise<string[]> {
  const { rows } = await plant.api.database.pool.query<{ path: string }>('SELECT path FROM archive_files')
  return rows.map(({ path }) => path.slice('s3://bucket/'.length)).toSorted()
}

async function archivedNames(): Promise<string[]> {
  const { rows } = await plant.api.database.pool.query<{ path: string }>(
    `SELECT path FROM archive_files WHERE state = 'live' AND kind = 'data'`,
  )
  const bodies = rows.map(({ path }) => server.objects.get(path.slice('s3://bucket/'.length))?.body ?? Buffer.alloc(0))
  return (await Promise.all(bodies.map(rowsOfBytes)))
    .flat()
    .map((row) => String(row['name']))
    .toSorted()
}

const get = async (path: string) => {
  const response = await plant.owner.call('GET', `/${plant.domainId}${path}`)
  expect(response.status, response.text).toBe(200)
  return response.json<Record<string, unknown>>()
}

test('records, their status and their catalogue are in the bucket', async () => {
  const device = await plant.newConnectedDevice()
  await publish(device, ['one', 'two'], 9)
  await publish(device, ['three'], 5)
  expect(await archive()).toMatchObject({ failed: 0, failures: [] })
  expect(await archivedNames()).toEqual(['one', 'three', 'two'])
  expect(server.calls.filter(({ operation }) => operation === 'UploadPart').length).toBeGreaterThan(3)
  expect(server.uploads.size).toBe(0)
  expect(keysOfFiles()).toEqual(await keysOfRows())
  const location = `${server.url}/${plant.domainId}/records`
  expect(await get('/history')).toMatchObject({ is_enabled: true, location, records: 3, waiting_ranges: 0 })
  const table = await get('/iceberg/v1/namespaces/history/tables/records')
  expect(String(table['metadata-location'])).toMatch(new RegExp(`^${location}/metadata/`))
  expect(JSON.stringify(table)).not.toContain('file:')
  // Where the bucket is, and no key.
  const { defaults } = await get('/iceberg/v1/config')
  expect(defaults).toEqual({
    's3.endpoint': server.target.endpoint,
    's3.region': 'test-1',
    'client.region': 'test-1',
    's3.path-style-access': 'true',
    's3.force-virtual-addressing': 'false',
  })
})

const verify = async (after: string) =>
  await plant.owner.call('POST', `/${plant.domainId}/history/verify${after === '' ? '' : `?after=${after}`}`)

/** A week with the beginning of a month in it is two ranges. */
async function verifyAll(): Promise<{ records: number; faults: string[] }> {
  const found = { records: 0, faults: [] as string[] }
  for (let after = ''; ;) {
    const response = await verify(after)
    expect(response.status, response.text).toBe(200)
    const check = response.json<{ records: number; faults: string[]; next?: string }>()
    found.records += check.records
    found.faults.push(...check.faults)
    if (check.next === undefined) return found
    after = check.next
  }
}

test('a file that is missing is found, and written again', async () => {
  expect(await verifyAll()).toEqual({ records: 3, faults: [] })
  const [data = ''] = keysOfFiles().filter((key) => key.endsWith('.parquet'))
  server.objects.delete(data)
  const { faults } = await verifyAll()
  expect(faults).toEqual([`s3://bucket/${data} is missing`])
  expect(await archive()).toMatchObject({ exported: 1, failures: [] })
  expect(await archivedNames()).toEqual(['one', 'three', 'two'])
  expect(await verifyAll()).toEqual({ records: 3, faults: [] })
})

test('what is replaced, unknown or half uploaded is deleted', async () => {
  const unknown = keysOfFiles()
    .find((key) => key.endsWith('.parquet'))
    ?.replace(/[^/]*$/, '')
  const name = `${unknown}00000000-0000-4000-8000-000000000000.parquet`
  server.objects.set(name, { body: Buffer.from('x'), etag: '""', modifiedMs: 0 })
  server.objects.set(`${unknown}notes.txt`, { body: Buffer.from('x'), etag: '""', modifiedMs: 0 })
  server.uploads.set('begun', { key: name, pieces: new Map(), begunMs: 0 })
  server.uploads.set('of another program', { key: `${unknown}notes.txt`, pieces: new Map(), begunMs: 0 })
  const before = keysOfFiles().length
  const round = await archive({ graceSeconds: -1 })
  expect(round).toMatchObject({ audit: { unknownFiles: 2, damagedFiles: 0 }, failures: [] })
  expect(round.deletedFiles).toBeGreaterThan(0)
  expect(keysOfFiles().length).toBeLessThan(before)
  expect([...server.uploads.keys()]).toEqual(['of another program'])
  server.uploads.clear()
  expect(server.objects.delete(`${unknown}notes.txt`)).toBe(true)
  expect(keysOfFiles()).toEqual(await keysOfRows())
})

test('a store that fails is named without its keys, and the next round makes it good', async () => {
  const device = await plant.newConnectedDevice()
  await publish(device, ['four'], 13)
  let isGivenUp = false
  server.fault = ({ operation }) => {
    const isFirst = operation === 'AbortMultipartUpload' && !isGivenUp
    isGivenUp ||= isFirst
    const code = 'SignatureDoesNotMatch'
    return operation === 'CompleteMultipartUpload' || isFirst ? { status: 403, code } : undefined
  }
  const round = await archive()
  expect(round.failed).toBe(1)
  const { failure } = await get('/history')
  expect(failure).toContain('the store failed: it refuses the keys (403 SignatureDoesNotMatch CompleteMultipartUpload)')
  // What the export could not give up is given up in the sweep of the same round.
  expect([isGivenUp, server.uploads.size]).toEqual([true, 0])
  server.fault = () => ({ status: 403, code: 'AccessDenied' })
  const refused = await verify('')
  expect(refused.status).toBe(503)
  expect(refused.text).toContain('it refuses the keys (403 HeadObject)')
  await expect(archive()).rejects.toThrow('403 AccessDenied')
  const state = await archiveState(plant.api.database.db)
  for (const text of [JSON.stringify(state), refused.text, String(failure)]) {
    expect(text).not.toContain(SECRET_KEY)
    expect(text).not.toContain(ACCESS_KEY)
  }
  server.fault = () => undefined
  expect(await archive({ graceSeconds: -1 })).toMatchObject({ failed: 0, failures: [] })
  expect(await archivedNames()).toEqual(['four', 'one', 'three', 'two'])
  expect(keysOfFiles()).toEqual(await keysOfRows())
  expect(await get('/history')).not.toHaveProperty('failure')
})

test('a bucket of another installation is not written to', async () => {
  const owner = 'some/prefix/owner'
  const own = server.objects.get(owner)
  server.objects.set(owner, { body: Buffer.from('foreign\n'), etag: '"foreign"', modifiedMs: 0 })
  await expect(archive()).rejects.toThrow('another installation')
  server.objects.delete(owner)
  await expect(archive()).rejects.toThrow('no file owner')
  // An operator begins again.
  server.objects.set(owner, { body: Buffer.alloc(0), etag: '"empty"', modifiedMs: 0 })
  expect(await archive()).toMatchObject({ failures: [] })
  expect(own).toBeDefined()
  expect(server.objects.get(owner)?.body.length).toBe(own?.body.length)
})

test('a word that another installation writes in the same moment stays', async () => {
  const owner = 'some/prefix/owner'
  server.fault = ({ operation, key }) => {
    if (operation === 'PutObject' && key === owner)
      server.objects.set(owner, { body: Buffer.from('foreign\n'), etag: '"foreign"', modifiedMs: 0 })
    return undefined
  }
  await expect(archive()).rejects.toThrow('another installation')
  expect(server.objects.get(owner)?.body.toString()).toBe('foreign\n')
})
