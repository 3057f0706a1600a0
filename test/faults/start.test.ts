// A start that cannot succeed says in one line what to do and ends with exit code 1.
import { spawn } from 'node:child_process'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Installation } from '../harness/whole.ts'
import { createInstallation, familyOf, launch, startWhole } from '../harness/whole.ts'
import { until } from '../harness/until.ts'

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

/** The reader of the journal, the writer of runs, and a few of the pool for what polls; each is a server process of 3 to 7 MiB. */
const MAX_IDLE_CONNECTIONS = 8
const IDLE_DEADLINE_MS = 30_000

/** The server processes of the connections of this program. */
function connectionsOf(pid: number): number[] {
  return familyOf(pid).filter((member) => {
    try {
      return /^postgres: .* \[local\]/.test(readFileSync(`/proc/${member}/cmdline`, 'utf8'))
    } catch {
      // It ended between the listing and the look.
      return false
    }
  })
}

/** What is printed beside log lines and the progress. */
const plainLines = (output: string) =>
  output.split('\n').filter((line) => line !== '' && !/^\{|^ {2}\S.* \.\.\.$/.test(line))

async function failingStart(
  environment: Record<string, string> = {},
): Promise<{ code: number | NodeJS.Signals; lines: string[] }> {
  const whole = launch({ ...installation, environment: { ...installation.environment, ...environment } })
  const code = await whole.ended
  await whole.silent
  return { code, lines: plainLines(whole.output()) }
}

test('a port in use is reported with the setting that changes it', async () => {
  const server = createServer()
  await new Promise<void>(
    (resolve) => void server.listen(Number(installation.environment['SKEIN_HTTP_PORT']), '127.0.0.1', resolve),
  )
  const { code, lines } = await failingStart()
  server.close()
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/^port \d+ on 127\.0\.0\.1 is already in use; .*SKEIN_HTTP_PORT/)
})

test('an unreachable database is reported without its password', async () => {
  const { code, lines } = await failingStart({
    SKEIN_DATABASE_URL: 'postgres://skein:very-secret@127.0.0.1:1/skein',
    SKEIN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
  })
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/SKEIN_DATABASE_URL is unreachable/)
  expect(lines[0]).not.toContain('very-secret')
})

test('an external database requires the secret key', async () => {
  const { code, lines } = await failingStart({ SKEIN_DATABASE_URL: 'postgres://skein@127.0.0.1:1/skein' })
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/^SKEIN_SECRET_KEY is required with SKEIN_DATABASE_URL/)
})

test('all invalid settings are reported together, one line each', async () => {
  const { code, lines } = await failingStart({
    SKEIN_HTTP_PORT: 'eighty',
    SKEIN_LOG_LEVEL: 'loud',
    SKEIN_ACCESS_TOKEN_TTL: 'long',
  })
  expect(code).toBe(1)
  expect(lines.map((line) => line.replace(/ .*/, '')).toSorted()).toEqual([
    'SKEIN_ACCESS_TOKEN_TTL',
    'SKEIN_HTTP_PORT',
    'SKEIN_LOG_LEVEL',
  ])
})

test('a second start in one data folder names the process that holds it, and changes nothing', async () => {
  await using first = await startWhole(installation)
  const second = await createInstallation()
  const { code, lines } = await failingStart({ ...second.environment, SKEIN_DATA_DIR: installation.dataDir })
  second[Symbol.dispose]()
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toContain(String(first.pid))
  expect((await first.call('GET', '/health')).status).toBe(200)
})

test('a data folder of a newer PostgreSQL is left unchanged', async () => {
  const whole = await startWhole(installation)
  await whole[Symbol.asyncDispose]()
  writeFileSync(join(installation.dataDir, 'postgres', 'cluster', 'PG_VERSION'), '99\n')
  const { code, lines } = await failingStart()
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toContain('99')
})

test('an unknown flag is wrong usage', async () => {
  const child = spawn(process.execPath, ['programs/worker.ts', '--mangaer', 'x'], {
    cwd: join(import.meta.dirname, '../..'),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()))
  const code = await new Promise((resolve) => child.once('close', resolve))
  expect(code).toBe(2)
  expect(text).toContain('--mangaer')
})

test('an unreadable certificate is reported before a database is created', async () => {
  const paths = { SKEIN_TLS_CERT: '/nowhere/cert.pem', SKEIN_TLS_KEY: '/nowhere/key.pem' }
  const { code, lines } = await failingStart(paths)
  expect([code, lines.length]).toEqual([1, 1])
  expect(lines[0]).toMatch(/^failed to read the file of SKEIN_TLS_CERT: ENOENT/)
  const second = await failingStart({
    SKEIN_GRPC_TLS_CERT: paths.SKEIN_TLS_CERT,
    SKEIN_GRPC_TLS_KEY: paths.SKEIN_TLS_KEY,
  })
  expect([second.code, second.lines.length]).toEqual([1, 1])
  expect(second.lines[0]).toMatch(/^cannot read \/nowhere\/cert\.pem of SKEIN_GRPC_TLS_CERT/)
  expect(readdirSync(installation.dataDir)).toEqual([])
})

// Each ends by itself: with a certificate, a token or a join token that it cannot use.
test.each(['all', 'api', 'manager', 'proxy', 'worker'])(
  '%s reports a misspelt setting and the intended one',
  async (name) => {
    const wrong = {
      SKEIN_DATABSE_URL: 'postgres://skein:very-secret@127.0.0.1:1/skein',
      SKEIN_WORKER_TOKNE: 'hush',
      SKEIN_TLS_CERT: '/nowhere/cert.pem',
      SKEIN_TLS_KEY: '/nowhere/key.pem',
      SKEIN_PROXY_TOKEN: 'short',
    }
    const program = launch(
      { ...installation, environment: { ...installation.environment, ...wrong } },
      `programs/${name}.ts`,
    )
    expect(await program.ended).toBe(1)
    await program.silent
    expect(program.output()).toContain('SKEIN_DATABSE_URL is not a setting; did you mean SKEIN_DATABASE_URL?')
    expect(program.output()).toContain('SKEIN_WORKER_TOKNE is not a setting; did you mean SKEIN_WORKER_TOKEN?')
    expect(program.output().match(/is not a setting/g)).toHaveLength(2)
    expect(program.output()).not.toMatch(/very-secret|hush/)
  },
)

test.runIf(process.platform === 'linux')('an idle program closes the database connections of its start', async () => {
  await using whole = await startWhole(installation)
  let count = 0
  await until(
    () => {
      count = connectionsOf(whole.pid).length
      return count <= MAX_IDLE_CONNECTIONS
    },
    () => `at most ${MAX_IDLE_CONNECTIONS} connections instead of ${count}`,
    IDLE_DEADLINE_MS,
  )
  expect(count).toBeGreaterThan(0)
})
