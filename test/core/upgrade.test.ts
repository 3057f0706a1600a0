// A rolling upgrade: two builds on one database under load, the newer one with a migration that the older one does not know.
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'

const ROOT = join(import.meta.dirname, '../..')
const DEADLINE_MS = 60_000
const ADMIN_SECRET = 'the-first-admin'
/** Of every load: messages that one caller sends, one after the other. */
const MESSAGES = 40

const EXPAND = `-- expand: clients remember a shelf
ALTER TABLE clients ADD COLUMN shelf text;
COMMENT ON COLUMN clients.shelf IS 'Where the client lies; NULL: nowhere.';
`
const CONTRACT = `-- contract: clients have no metadata any more
ALTER TABLE clients DROP COLUMN metadata;
`

let own: TestDatabase
const folders: string[] = []
const builds: Build[] = []

beforeAll(async () => {
  own = await createTestDatabase()
})
afterAll(async () => {
  await Promise.all(builds.map((build) => build.stop()))
  await own[Symbol.asyncDispose]()
  for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

/** A copy of the tree whose migrations go on with these. */
function copyOfTree(...migrations: string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'skein-build-'))
  folders.push(folder)
  const { imports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    imports: Record<string, string>
  }
  const rooms = Object.values(imports).map((path) => path.split('/')[1] ?? '')
  for (const path of [...rooms, 'programs', 'migrations', 'package.json'])
    cpSync(join(ROOT, path), join(folder, path), { recursive: true })
  cpSync(join(ROOT, 'docs/guides'), join(folder, 'docs/guides'), { recursive: true })
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  const known = readdirSync(join(folder, 'migrations')).filter((name) => /^\d{4}_/.test(name)).length
  for (const [index, text] of migrations.entries()) {
    const number = String(known + 1 + index).padStart(4, '0')
    writeFileSync(join(folder, 'migrations', `${number}_of_a_test.sql`), text)
  }
  return folder
}

type Build = { base: string; output: () => string; ended: Promise<number | null>; stop: () => Promise<number | null> }

/** The platform of a tree, with a data folder of its own. */
async function launch(tree: string): Promise<Build> {
  const { user, password, host, port, database } = own.address
  const [http = 0] = await freePorts(1)
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-upgrade-'))
  folders.push(dataDir)
  const child = spawn(process.execPath, ['programs/api.ts'], {
    cwd: tree,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...COMPILE_CACHE,
      PATH: process.env['PATH'],
      SKEIN_DATA_DIR: dataDir,
      SKEIN_DATABASE_URL: `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
      SKEIN_DATABASE_UNSAFE: 'true',
      SKEIN_SECRET_KEY: Buffer.alloc(32, 9).toString('base64'),
      SKEIN_ADMIN_SECRET: ADMIN_SECRET,
      SKEIN_HTTP_PORT: String(http),
      SKEIN_SERVICE_PORTS: 'false',
      SKEIN_COAP_PORT: '0',
      SKEIN_MQTT_PORT: '0',
      SKEIN_MQTTS_PORT: '0',
    },
  })
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  const build = {
    base: `http://127.0.0.1:${http}`,
    output: () => output,
    ended,
    stop() {
      child.kill('SIGTERM')
      return ended
    },
  }
  builds.push(build)
  return build
}

async function start(tree: string): Promise<Build> {
  const build = await launch(tree)
  let hasEnded = false
  void build.ended.then(() => (hasEnded = true))
  await until(
    async () => {
      if (hasEnded) throw new Error(`it ended: ${build.output()}`)
      const answer = await fetch(`${build.base}/ready`).catch(() => undefined)
      await answer?.body?.cancel()
      return answer?.status === 200
    },
    'the build is ready',
    DEADLINE_MS,
  )
  return build
}

async function call<T>(build: Build, method: string, path: string, token?: string, body?: unknown): Promise<T> {
  const response = await fetch(`${build.base}${path}`, {
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: token }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
  return (text === '' ? undefined : JSON.parse(text)) as T
}

type Plant = { domain: string; channel: string; token: string }

async function createPlant(build: Build): Promise<Plant> {
  const login = { identity: 'admin@example.com', secret: ADMIN_SECRET }
  const { access_token: access } = await call<{ access_token: string }>(
    build,
    'POST',
    '/users/tokens/issue',
    undefined,
    login,
  )
  const token = `Bearer ${access}`
  const domain = await call<{ id: string }>(build, 'POST', '/domains', token, { name: 'plant' })
  const channel = await call<{ id: string }>(build, 'POST', `/${domain.id}/channels`, token, { name: 'line' })
  return { domain: domain.id, channel: channel.id, token }
}

/** Makes a client, connects it and publishes with it: every call must succeed. Answers how many messages were sent. */
async function load(build: Build, { domain, channel, token }: Plant, name: string): Promise<number> {
  const client = await call<{ id: string; credentials: { secret: string } }>(
    build,
    'POST',
    `/${domain}/clients`,
    token,
    {
      name,
      metadata: { made: name },
    },
  )
  await call(build, 'POST', `/${domain}/channels/${channel}/connect`, token, {
    client_ids: [client.id],
    types: ['publish', 'subscribe'],
  })
  for (let sent = 0; sent < MESSAGES; sent++) {
    const path = `/http/m/${domain}/c/${channel}/${name}`
    await call(build, 'POST', path, `Client ${client.credentials.secret}`, [{ n: name, v: sent }])
  }
  return MESSAGES
}

const totalOf = async (build: Build, { domain, channel, token }: Plant) =>
  (await call<{ total: number }>(build, 'GET', `/${domain}/channels/${channel}/messages?limit=1`, token)).total

// Seven starts, three of them of trees without a compile cache.
const TIMEOUT = { timeout: 240_000 }

test(
  'both builds serve one database while the newer one comes, and the older one alone after it',
  TIMEOUT,
  async () => {
    const older = await start(ROOT)
    const plant = await createPlant(older)
    const newerTree = copyOfTree(EXPAND)
    // The migration runs while the older build is written to.
    const [newer, first] = await Promise.all([start(newerTree), load(older, plant, 'before')])
    const { rows } = await own.database.pool.query<{ kind: string }>(
      'SELECT kind FROM migrations ORDER BY number DESC LIMIT 1',
    )
    expect(rows).toEqual([{ kind: 'expand' }])
    const sent = await Promise.all([
      load(older, plant, 'older-1'),
      load(newer, plant, 'newer-1'),
      load(older, plant, 'older-2'),
      load(newer, plant, 'newer-2'),
    ])
    const all = first + sent.reduce((sum, one) => sum + one, 0)
    for (const build of [older, newer]) expect(await totalOf(build, plant)).toBe(all)
    expect([await newer.stop(), await older.stop()]).toEqual([0, 0])

    const back = await start(ROOT)
    expect(back.output()).toContain('this version is compatible with it')
    expect(await totalOf(back, plant)).toBe(all)
    await load(back, plant, 'back')
    expect(await totalOf(back, plant)).toBe(all + MESSAGES)
    // Its nodes keep a migration waiting that would take something from them.
    const contracting = copyOfTree(EXPAND, CONTRACT)
    const early = await launch(contracting)
    expect(await early.ended).toBe(1)
    expect(early.output()).toMatch(/removes columns or tables that older nodes use; stop api-\S+ first$/m)
    expect(await back.stop()).toBe(0)

    const newest = await start(contracting)
    expect(await newest.stop()).toBe(0)
    const refused = await launch(ROOT)
    expect(await refused.ended).toBe(1)
    const lines = refused
      .output()
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('{'))
    expect(lines).toEqual([
      expect.stringMatching(/^a newer version of Skein removed from the database what this one uses/),
    ])
  },
)
