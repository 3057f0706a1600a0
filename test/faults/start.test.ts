// A start that cannot succeed says in one line what to do and ends with exit code 1.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Installation } from '../harness/whole.ts'
import { createInstallation, launch, startWhole } from '../harness/whole.ts'

let installation: Installation
beforeEach(async () => {
  installation = await createInstallation()
})
afterEach(() => installation[Symbol.dispose]())

/** What is printed beside log lines. */
const plainLines = (output: string) => output.split('\n').filter((line) => line !== '' && !line.startsWith('{'))

async function failingStart(
  environment: Record<string, string> = {},
): Promise<{ code: number | NodeJS.Signals; lines: string[] }> {
  const whole = launch({ ...installation, environment: { ...installation.environment, ...environment } })
  const code = await whole.ended
  await whole.silent
  return { code, lines: plainLines(whole.output()) }
}

test('a port that is taken is named with the setting that moves it', async () => {
  const server = createServer()
  await new Promise<void>(
    (resolve) => void server.listen(Number(installation.environment['SKEIN_HTTP_PORT']), '127.0.0.1', resolve),
  )
  const { code, lines } = await failingStart()
  server.close()
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/^port \d+ on 127\.0\.0\.1 is already taken: .*SKEIN_HTTP_PORT/)
})

test('an unreachable database is named without its password', async () => {
  const { code, lines } = await failingStart({
    SKEIN_DATABASE_URL: 'postgres://skein:very-secret@127.0.0.1:1/skein',
    SKEIN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
  })
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/SKEIN_DATABASE_URL cannot be reached/)
  expect(lines[0]).not.toContain('very-secret')
})

test('an external database needs the secret key', async () => {
  const { code, lines } = await failingStart({ SKEIN_DATABASE_URL: 'postgres://skein@127.0.0.1:1/skein' })
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatch(/^SKEIN_SECRET_KEY is required with SKEIN_DATABASE_URL/)
})

test('every wrong setting is reported at once, in a line each', async () => {
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

test('a second start in one data folder says who holds it, and harms nothing', async () => {
  await using first = await startWhole(installation)
  const second = await createInstallation()
  const { code, lines } = await failingStart({ ...second.environment, SKEIN_DATA_DIR: installation.dataDir })
  second[Symbol.dispose]()
  expect(code).toBe(1)
  expect(lines).toHaveLength(1)
  expect(lines[0]).toContain(String(first.pid))
  expect((await first.call('GET', '/health')).status).toBe(200)
})

test('a data folder of a newer PostgreSQL is left alone', async () => {
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
