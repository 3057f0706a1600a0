/** Spare segments of the write-ahead log in a new cluster: there before anybody waits for one, taken by PostgreSQL, of no harm. */
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { startEmbeddedPostgres } from '#core/database/embedded/index.ts'
import { ownAccount } from '#core/database/embedded/account.ts'
import { makeSpareLog, nameAfter } from '#core/database/embedded/spare-log.ts'
import { until } from '../harness/until.ts'
import { query, temporaryFolder } from './embedded-support.ts'

const log = () => {}
const SEGMENT_BYTES = 16 * 1024 * 1024
const segmentsOf = (folder: string) =>
  readdirSync(folder)
    .filter((name) => /^[0-9A-F]{24}$/.test(name))
    .toSorted()

/** What initdb leaves, of which nothing else is looked at. */
function clusterOf(folder: string, last: string): string {
  const clusterDir = join(folder, 'cluster')
  mkdirSync(join(clusterDir, 'pg_wal'), { recursive: true })
  writeFileSync(join(clusterDir, 'pg_wal', last), Buffer.alloc(SEGMENT_BYTES))
  return clusterDir
}

describe('a new cluster', () => {
  it('has segments to go on with, which the server takes, also after it was killed', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log })
    const logDir = join(folder.path, 'postgres', 'cluster', 'pg_wal')
    const before = segmentsOf(logDir)
    expect(before.length).toBeGreaterThan(1)
    for (const name of before) {
      const { size, mode, uid } = statSync(join(logDir, name))
      expect([size, mode & 0o777, uid]).toEqual([SEGMENT_BYTES, 0o600, statSync(logDir).uid])
    }
    expect(before).toEqual(before.map((_, index) => nameAfter(before[0] as string, index)))
    await query(server.connection, 'CREATE TABLE kept (n int)', 'INSERT INTO kept VALUES (1)', 'SELECT pg_switch_wal()')
    await query(server.connection, 'INSERT INTO kept VALUES (2)')
    // Recycled ones get other names, and a few too many are removed.
    const files = () => new Set(segmentsOf(logDir).map((name) => statSync(join(logDir, name)).ino))
    const made = files()
    process.kill(server.pid, 'SIGKILL')
    await server.exited
    await server.stop()

    const again = await startEmbeddedPostgres({ dataDir: folder.path, log })
    expect(await query(again.connection, 'SELECT n FROM kept ORDER BY n')).toEqual([{ n: 1 }, { n: 2 }])
    const [current] = await query(again.connection, 'SELECT pg_walfile_name(pg_current_wal_insert_lsn()) AS name')
    expect(before.slice(1)).toContain(current?.['name'])
    expect([...files()].filter((file) => !made.has(file))).toEqual([])
    await again.stop()
  })
})

describe('spare segments', () => {
  it('follow the last one in their names, over the end of a part', () => {
    expect(nameAfter('000000010000000000000001', 1)).toBe('000000010000000000000002')
    expect(nameAfter('0000000100000000000000FE', 3)).toBe('000000010000000100000001')
    expect(nameAfter('00000002000000FF000000FF', 1)).toBe('000000020000010000000000')
  })

  it('are put behind the last segment, and nothing remains of their folder', async () => {
    using folder = temporaryFolder()
    const clusterDir = clusterOf(folder.path, '0000000100000000000000FF')
    const making = join(folder.path, 'making')
    const spares = makeSpareLog(making, ownAccount())
    await until(() => existsSync(join(making, '2')), 'the third segment is begun')
    const count = await spares.install(clusterDir)
    expect(count).toBeGreaterThanOrEqual(2)
    const names = segmentsOf(join(clusterDir, 'pg_wal'))
    expect(names).toHaveLength(count + 1)
    expect(names.slice(0, 3)).toEqual([
      '0000000100000000000000FF',
      '000000010000000100000000',
      '000000010000000100000001',
    ])
    for (const name of names) expect(statSync(join(clusterDir, 'pg_wal', name)).size).toBe(SEGMENT_BYTES)
    await spares.discard()
    expect(existsSync(making)).toBe(false)
  })

  it('are removed where the cluster could not be made', async () => {
    using folder = temporaryFolder()
    const making = join(folder.path, 'making')
    const spares = makeSpareLog(making, ownAccount())
    await until(() => existsSync(join(making, '1')), 'the second segment is begun')
    await spares.discard()
    expect(existsSync(making)).toBe(false)
  })

  it('are not put into a cluster of segments of another size, and not made where the folder cannot be', async () => {
    using folder = temporaryFolder()
    const clusterDir = clusterOf(folder.path, '000000010000000000000001')
    writeFileSync(join(clusterDir, 'pg_wal', '000000010000000000000001'), 'short')
    const spares = makeSpareLog(join(folder.path, 'making'), ownAccount())
    await expect(spares.install(clusterDir)).rejects.toThrow('holds no segment')
    await spares.discard()
    const nowhere = makeSpareLog(join(folder.path, 'no', 'such', 'folder'), ownAccount())
    await expect(nowhere.install(clusterDir)).rejects.toThrow('ENOENT')
    await nowhere.discard()
    rmSync(clusterDir, { recursive: true })
  })
})
