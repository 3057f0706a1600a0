/** Clocks a minute apart: positions order what happens, and monotonic clocks measure who is alive. */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { hasClusterPrograms } from './database-cluster.ts'
import { API_KILLED, POSTGRES_KILLED } from './faults.ts'
import { startCluster } from './start.ts'

/** By name of the program or of the database server; others have the clock of the machine. */
const OFFSETS: Readonly<Record<string, string>> = {
  'api 1': '+60s',
  'manager 2': '-60s',
  'worker 1': '-60s',
  'db-a': '+60s',
  'db-b': '-60s',
}
const POSTGRES_BIN = '/usr/lib/postgresql/15/bin'

function hasFaketime(): boolean {
  try {
    execFileSync('faketime', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    if (process.env['CI'] === 'true') throw new Error('not installed: faketime')
    return false
  }
}

/** The environment that `faketime` gives to its command. The monotonic clock is not changed. */
function shifted(offset: string): Record<string, string> {
  const library = execFileSync('faketime', ['-m', '-f', offset, 'printenv', 'LD_PRELOAD'], { encoding: 'utf8' })
  return { LD_PRELOAD: library.trim(), FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' }
}

/**
 * PostgreSQL alone, as a program of this folder: libfaketime breaks the `sleep` of Python (EINVAL), so Patroni would fail in the middle of a
 * promotion. etcd has no C library to replace.
 */
function shiftedPostgres(folder: string, offset: string): Record<string, string> {
  mkdirSync(folder)
  for (const name of readdirSync(POSTGRES_BIN))
    if (name !== 'postgres') symlinkSync(join(POSTGRES_BIN, name), join(folder, name))
  const environment = Object.entries(shifted(offset)).map(([key, value]) => `${key}='${value}'`)
  const script = `#!/bin/sh\nexec env ${environment.join(' ')} ${POSTGRES_BIN}/postgres "$@"\n`
  writeFileSync(join(folder, 'postgres'), script, { mode: 0o755 })
  return { PATRONI_POSTGRESQL_BIN_DIR: folder }
}

const FAILOVERS = 3
const FAILOVERS_DEADLINE_MS = 1_200_000
/** The least of the offsets, which a second more or less of a busy machine does not matter to. */
const APART_SECONDS = 55

describe.runIf(hasClusterPrograms() && hasFaketime())('clocks a minute apart', () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-clocks-'))
  chmodSync(folder, 0o755)
  const cluster = startCluster({
    environmentOf(name) {
      const offset = OFFSETS[name]
      if (offset === undefined) return {}
      return name.startsWith('db-') ? shiftedPostgres(join(folder, name), offset) : shifted(offset)
    },
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('they are apart', async () => {
    const { programs, database } = cluster()
    const [first, second] = await Promise.all(
      programs.api.map(async ({ base }) => Date.parse((await fetch(`${base}/health`)).headers.get('date') ?? '')),
    )
    expect((first ?? 0) - (second ?? 0)).toBeGreaterThan(APART_SECONDS * 1000)
    const [ahead, behind] = database.members
    expect(await ahead?.clockOffsetSeconds()).toBeGreaterThan(APART_SECONDS)
    expect(await behind?.clockOffsetSeconds()).toBeLessThan(-APART_SECONDS)
  })

  test(
    'the clock of the database is set forward and back with each failover',
    async () => {
      for (let failover = 0; failover < FAILOVERS; failover++)
        await cluster().suffer({ ...POSTGRES_KILLED, name: `clocks a minute apart, ${POSTGRES_KILLED.name}` })
    },
    FAILOVERS_DEADLINE_MS,
  )

  test('an api node is killed', async () => {
    await cluster().suffer({ ...API_KILLED, name: `clocks a minute apart, ${API_KILLED.name}` })
  })
})
