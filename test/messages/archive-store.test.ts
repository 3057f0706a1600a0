/** The folder of the archive fails, wholly or in part: a round does the rest, says what failed, and the next one makes it good. */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { dataFilesOf, archive, filesBelow, moveArrivals, newArchiveFolder, rowsOfFile } from './archive-support.ts'
import type { ArchiveFolder } from './archive-support.ts'
import { until } from '../harness/until.ts'
import { archiveState } from '../../api/messages/archive/index.ts'
import { forgetRounds } from '../../api/messages/archive/repository.ts'
import { auditArchive } from '../../api/messages/archive/audit.ts'
import { folderStore } from '../../api/messages/archive/file-store.ts'
import { keepFolder } from '../../api/messages/archive/ownership.ts'
import { startPlant } from './support.ts'
import type { Plant } from './support.ts'

const canMount = process.getuid?.() === 0 && process.platform === 'linux'

let plant: Plant
let folder: ArchiveFolder
beforeEach(async () => {
  plant = await startPlant()
  folder = newArchiveFolder()
})
afterEach(async () => {
  await plant[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

/** A domain of another user with one archived name. Returns its id, and the folder of its table. */
async function newDomain(
  name: string,
  value = (index: number) => `${index}:${Math.random()}`.repeat(40),
): Promise<{ id: string; table: string; owner: Plant['owner'] }> {
  const owner = await plant.api.newUser()
  const made = async (path: string, body: object) => {
    const response = await owner.call('POST', path, body)
    expect(response.status, response.text).toBeLessThan(300)
    return response.json<{ id: string; credentials: { secret: string } }>()
  }
  const { id } = await made('/domains', { name, alias: name })
  const client = await made(`/${id}/clients`, { name: 'client' })
  const channel = await made(`/${id}/channels`, { name: 'channel' })
  const connection = { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] }
  expect((await owner.call('POST', `/${id}/channels/connect`, connection)).status).toBe(201)
  const sent = await plant.api.as(`Client ${client.credentials.secret}`)(
    'POST',
    `/m/${id}/c/${channel.id}`,
    Array.from({ length: 200 }, (_, index) => ({ n: name, vs: value(index), t: index })),
    { 'content-type': 'application/senml+json' },
  )
  expect(sent.status, sent.text).toBe(202)
  return { id, owner, table: join(folder.path, id, 'records') }
}

async function archivedNames(): Promise<string[]> {
  const files = await dataFilesOf(plant.api)
  const rows = (await Promise.all(files.map(({ path }) => rowsOfFile(path)))).flat()
  return [...new Set(rows.map((row) => String(row['name'])))].toSorted()
}

/** One record of the device, which arrived so many weeks ago. */
async function publishNamed(device: { secret: string; channelId: string }, n: string, weeks: number): Promise<void> {
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  const type = { 'content-type': 'application/senml+json' }
  const sent = await plant.api.as(`Client ${device.secret}`)('POST', path, [{ n, v: 1 }], type)
  expect(sent.status, sent.text).toBe(202)
  await moveArrivals(plant.api, weeks)
}

const word = () => readFileSync(join(folder.path, 'owner'), 'utf8')

/** As if the mount had gone, and its empty mount point were left. */
function unmount(): () => void {
  const elsewhere = `${folder.path}.away`
  renameSync(folder.path, elsewhere)
  mkdirSync(folder.path)
  return () => {
    rmSync(folder.path, { recursive: true })
    renameSync(elsewhere, folder.path)
  }
}

/** Every file has its row and every row its file. */
async function expectNothingLeft(): Promise<void> {
  const { rows } = await plant.api.database.pool.query<{ path: string }>('SELECT path FROM archive_files')
  expect(filesBelow(folder.path)).toEqual(rows.map((row) => row.path.slice('file://'.length)).toSorted())
}

test('one domain that cannot be written to stops no other, and the state says what failed', async () => {
  const [broken, other] = [await newDomain('broken'), await newDomain('other')]
  await moveArrivals(plant.api, 4)
  // A file in the place of the folder: root writes to whatever modes say.
  mkdirSync(broken.table, { recursive: true })
  writeFileSync(join(broken.table, 'data'), '')
  const round = await archive(plant.api, folder.url)
  expect(round).toMatchObject({ failed: 1, exported: 1 })
  expect(round.failures).toEqual([expect.stringContaining('records could not be copied to the archive (1 failed)')])
  expect(await archivedNames()).toEqual(['other'])
  const seen = (await other.owner.call('GET', `/${other.id}/history`)).json<{ failure: string }>()
  expect(seen.failure).toMatch(/the store failed: .*\((?:ENOTDIR|EEXIST), /)
  // What it wrote is not kept for a day.
  const { rows } = await plant.api.database.pool.query(`SELECT FROM archive_files WHERE state <> 'live'`)
  expect(rows).toEqual([])
  rmSync(join(broken.table, 'data'))
  expect(await archive(plant.api, folder.url)).toMatchObject({ failed: 0, exported: 1, failures: [] })
  expect(await archivedNames()).toEqual(['broken', 'other'])
  expect((await other.owner.call('GET', `/${other.id}/history`)).json()).not.toHaveProperty('failure')
  await expectNothingLeft()
})

test('a range that always fails stops no later one of its domain', async () => {
  const device = await plant.newConnectedDevice()
  const publish = (n: string, weeks: number) => publishNamed(device, n, weeks)
  await publish('old', 12)
  await publish('new', 4)
  const { rows } = await plant.api.database.pool.query<{ month: string }>(
    `SELECT to_char(min(arrived_at) AT TIME ZONE 'UTC', 'YYYY-MM') AS month FROM records`,
  )
  const inTheWay = join(folder.path, plant.domainId, 'records', 'data', `arrived_month=${rows[0]?.month}`)
  mkdirSync(join(inTheWay, '..'), { recursive: true })
  writeFileSync(inTheWay, '')
  expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 1, failed: 1 })
  expect(await archivedNames()).toEqual(['new'])
  expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 0, failed: 1 })
  rmSync(inTheWay)
  expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 1, failed: 0, failures: [] })
  expect(await archivedNames()).toEqual(['new', 'old'])
})

test('expiry and sweep go on behind what fails, and do it in a later round', async () => {
  const [broken, other] = [await newDomain('broken'), await newDomain('other')]
  await moveArrivals(plant.api, 4)
  await archive(plant.api, folder.url)
  const { pool } = plant.api.database
  await pool.query(`UPDATE archive_ranges SET retention_days = 30, range_end = range_end - interval '60 days'`)
  await pool.query(`UPDATE archive_files SET retention_days = 30 WHERE kind = 'data'`)
  const [before = ''] = filesBelow(join(broken.table, 'data'))
  renameSync(join(broken.table, 'metadata'), join(broken.table, 'moved'))
  writeFileSync(join(broken.table, 'metadata'), '')
  const round = await archive(plant.api, folder.url)
  expect(round.expired).toBe(1)
  expect(round.failures.some((text) => text.startsWith('expired records could not be removed'))).toBe(true)
  expect((await dataFilesOf(plant.api)).map(({ path }) => path)).toEqual([before])
  rmSync(join(broken.table, 'metadata'))
  renameSync(join(broken.table, 'moved'), join(broken.table, 'metadata'))
  expect(await archive(plant.api, folder.url)).toMatchObject({ expired: 1, failures: [] })
  // A folder in the place of the file: it is not deleted, and everything else is.
  rmSync(before)
  mkdirSync(join(before, 'in-the-way'), { recursive: true })
  const swept = await archive(plant.api, folder.url, { graceSeconds: -1 })
  expect(swept.deletedFiles).toBeGreaterThan(0)
  expect(swept.failures).toEqual([expect.stringContaining('files could not be deleted from the archive (1 failed)')])
  expect(filesBelow(join(other.table, 'data'))).toEqual([])
  rmSync(before, { recursive: true })
  expect(await archive(plant.api, folder.url, { graceSeconds: -1 })).toMatchObject({ deletedFiles: 1, failures: [] })
  await expectNothingLeft()
})

test.runIf(canMount)(
  'a store that is full is not filled again by each domain, and is used when it has room',
  async () => {
    await newDomain('first')
    await newDomain('second')
    const mount = ['-t', 'tmpfs', '-o', 'size=1m,mode=755', 'none', folder.path]
    expect(spawnSync('mount', mount).status).toBe(0)
    try {
      // Its file `owner` exists, and nothing more can be written.
      await archive(plant.api, folder.url)
      await moveArrivals(plant.api, 4)
      const filler = join(folder.path, 'filler')
      expect(spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1024']).status).toBe(1)
      const before = word()
      const round = await archive(plant.api, folder.url)
      expect(round).toMatchObject({ exported: 0, failed: 1 })
      // A word that stands still would let another installation take the folder.
      expect(word()).not.toBe(before)
      expect(round.failures[0]).toContain('it is full (ENOSPC, ')
      // What was begun is not kept for a day.
      const { rows } = await plant.api.database.pool.query(`SELECT FROM archive_files WHERE state <> 'live'`)
      expect(rows).toEqual([])
      rmSync(filler)
      expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 2, failed: 0, failures: [] })
      expect(await archivedNames()).toEqual(['first', 'second'])
      await expectNothingLeft()
    } finally {
      expect(spawnSync('umount', [folder.path]).status).toBe(0)
    }
  },
)

test.runIf(canMount)('a domain that needs more room than there is lets the others go first', async () => {
  // What cannot be compressed.
  await newDomain('large', () => randomBytes(800).toString('base64'))
  await newDomain('small')
  const mount = ['-t', 'tmpfs', '-o', 'size=1m,mode=755', 'none', folder.path]
  expect(spawnSync('mount', mount).status).toBe(0)
  try {
    await moveArrivals(plant.api, 4)
    const filler = join(folder.path, 'filler')
    writeFileSync(filler, Buffer.alloc(900 * 1024))
    const memory = {}
    expect(await archive(plant.api, folder.url, { memory })).toMatchObject({ exported: 0, failed: 1 })
    expect(await archive(plant.api, folder.url, { memory })).toMatchObject({ exported: 1, failed: 1 })
    expect(await archivedNames()).toEqual(['small'])
    rmSync(filler)
    expect(await archive(plant.api, folder.url, { memory })).toMatchObject({ exported: 1, failed: 0, failures: [] })
    expect(await archivedNames()).toEqual(['large', 'small'])
  } finally {
    expect(spawnSync('umount', [folder.path]).status).toBe(0)
  }
})

test('a store that lets nobody write ends the round with a message, and keeps what it has', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  await archive(plant.api, folder.url)
  const owner = join(folder.path, 'owner')
  renameSync(owner, `${owner}.moved`)
  mkdirSync(owner)
  await expect(archive(plant.api, folder.url)).rejects.toMatchObject({ code: 'EISDIR' })
  const { rows } = await plant.api.database.pool.query<{ failure: string }>(
    `SELECT value ->> 'failure' AS failure FROM installation WHERE name = 'archive_round'`,
  )
  expect(rows[0]?.failure).toContain('the store failed: ')
  rmSync(owner, { recursive: true })
  renameSync(`${owner}.moved`, owner)
  expect(await archive(plant.api, folder.url)).toMatchObject({ failures: [] })
  expect(await archivedNames()).toEqual(['first'])
})

test('a folder that goes away in a round ends it: nothing is created in its place, and nothing is called damaged', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  await archive(plant.api, folder.url)
  await newDomain('second')
  await moveArrivals(plant.api, 8)
  let mount: (() => void) | undefined
  const atStep = () => Promise.resolve(void (mount ??= unmount()))
  await expect(archive(plant.api, folder.url, { atStep })).rejects.toThrow('not mounted')
  expect(readdirSync(folder.path)).toEqual([])
  const { db, pool } = plant.api.database
  const changes = async () => (await pool.query('SELECT changes FROM archive_ranges ORDER BY range_start')).rows
  const before = await changes()
  expect(before).toHaveLength(2)
  const signal = new AbortController().signal
  const { check, stop } = keepFolder(db, { store: folderStore(), url: folder.url }, 60_000)
  const audit = {
    store: folderStore(),
    database: plant.api.database,
    reader: db,
    url: folder.url,
    graceSeconds: -1,
    now: Date.now,
  }
  await expect(auditArchive({ ...audit, check, signal })).rejects.toThrow('not mounted')
  await stop()
  expect(await changes()).toEqual(before)
  mount?.()
  expect(await archive(plant.api, folder.url)).toMatchObject({ exported: 1, failures: [], audit: { damagedFiles: 0 } })
  expect(await archivedNames()).toEqual(['first', 'second'])
})

test('the word changes during a round, which ends when another installation writes one', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  const words = new Set<string>()
  const long = () =>
    until(() => Promise.resolve(words.add(word()).size >= 3), 'the word changes').then(() => words.clear())
  await archive(plant.api, folder.url, { renewMs: 10, atStep: long })
  await newDomain('second')
  await moveArrivals(plant.api, 8)
  const foreign = `${crypto.randomUUID()}\n`
  const atStep = (step: string) => {
    if (step === 'data file begun') writeFileSync(join(folder.path, 'owner'), foreign)
    return Promise.resolve()
  }
  await expect(archive(plant.api, folder.url, { atStep })).rejects.toThrow('another installation')
  expect(word()).toBe(foreign)
  expect(await archivedNames()).toEqual(['first'])
})

test('a store that does not answer holds no snapshot of the database', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  const { pool } = plant.api.database
  const isHeld = async () =>
    (await pool.query(`SELECT FROM pg_stat_activity WHERE application_name = 'skein archive export'`)).rows.length > 0
  let isReleased = false
  const hang = async (step: string) => {
    if (step !== 'data file begun') return
    await until(async () => !(await isHeld()), 'the connection is closed')
    isReleased = true
  }
  expect(await archive(plant.api, folder.url, { exportSilenceMs: 300, atStep: hang })).toMatchObject({ failed: 1 })
  expect(isReleased).toBe(true)
  let wasHeld = false
  const look = async (step: string) => void (step === 'data file begun' && (wasHeld = await isHeld()))
  expect(await archive(plant.api, folder.url, { atStep: look })).toMatchObject({ exported: 1, failed: 0 })
  expect(wasHeld).toBe(true)
})

test('an audit that fails is repeated later, and its failure is shown until then', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  await archive(plant.api, folder.url)
  const path = (await dataFilesOf(plant.api))[0]?.path ?? ''
  renameSync(path, `${path}.moved`)
  // Nobody can look at it, and it is not missing.
  symlinkSync(path, path)
  const memory = {}
  const failures = [expect.stringContaining('the archive could not be compared with the database')]
  expect(await archive(plant.api, folder.url, { memory })).toMatchObject({ failures })
  rmSync(path)
  renameSync(`${path}.moved`, path)
  expect(await archive(plant.api, folder.url, { memory })).toMatchObject({ failures })
  // An hour later.
  const due = { memory: { ...memory, audit: { dueMs: 0 } } }
  expect(await archive(plant.api, folder.url, due)).toMatchObject({ failures: [], audit: { damagedFiles: 0 } })
})

test('damaged metadata of a table without records is made good', async () => {
  const device = await plant.newConnectedDevice()
  await publishNamed(device, 'deleted', 4)
  await archive(plant.api, folder.url)
  const path = `/${plant.domainId}/channels/${device.channelId}/messages?to=${Date.now() / 1000}`
  expect((await plant.owner.call('DELETE', path)).status).toBeLessThan(300)
  await archive(plant.api, folder.url)
  await archive(plant.api, folder.url, { graceSeconds: -1 })
  const files = filesBelow(folder.path)
  expect(files.length).toBeGreaterThan(0)
  expect(files.filter((file) => file.endsWith('.parquet'))).toEqual([])
  rmSync(files.find((file) => file.endsWith('.metadata.json')) ?? '')
  expect(await archive(plant.api, folder.url)).toMatchObject({ audit: { damagedFiles: 1 }, failures: [] })
  expect(await archive(plant.api, folder.url)).toMatchObject({ audit: { damagedFiles: 0 }, failures: [] })
  await publishNamed(device, 'later', 8)
  expect(await archive(plant.api, folder.url, { graceSeconds: -1 })).toMatchObject({ exported: 1, failures: [] })
  expect(await archivedNames()).toEqual(['later'])
  const table = await plant.owner.call('GET', `/${plant.domainId}/iceberg/v1/namespaces/history/tables/records`)
  expect(table.status, table.text).toBe(200)
  await archive(plant.api, folder.url, { graceSeconds: -1 })
  await expectNothingLeft()
})

test('the age of a round tells one that hangs from one that is long', async () => {
  await newDomain('first')
  await moveArrivals(plant.api, 4)
  const { db, pool } = plant.api.database
  const age = async () => Math.round(((await archiveState(db))?.roundAgeSeconds ?? NaN) / 3600)
  const makeOld = () =>
    pool.query(
      `UPDATE installation SET updated_at = now() - interval '2 hours',
              value = value || jsonb_build_object('succeeded_at', now() - interval '2 hours') WHERE name = 'archive_round'`,
    )
  const ages: Record<string, number> = {}
  const atStep = async (step: string) => {
    if (step === 'planned') await makeOld()
    // A node without an archive forgets the rounds of others only when no node copies.
    await forgetRounds(db)
    ages[step] = await age()
  }
  await archive(plant.api, folder.url, { atStep })
  // The first round has an age before it ends, and what it writes is progress.
  expect(ages).toMatchObject({ planned: 2, 'data file begun': 2, 'data file written': 0, committed: 0 })
  await forgetRounds(db)
  expect(await age()).toBe(0)
  await makeOld()
  // Progress does not hide what failed in the round before.
  await pool.query(`UPDATE installation SET value = value || '{"failure":"it failed"}' WHERE name = 'archive_round'`)
  await pool.query('UPDATE archive_ranges SET changes = changes + 1')
  await archive(plant.api, folder.url, { atStep })
  expect(ages).toMatchObject({ 'data file written': 2 })
  expect(await age()).toBe(0)
  await makeOld()
  await forgetRounds(db)
  expect(await archiveState(db)).toBeUndefined()
})
