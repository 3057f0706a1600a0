/** A backup of an installation that runs, and what goes on after it was restored elsewhere. */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import mqtt from 'mqtt'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ArchiveWriter, readArchive } from '#postgres/backup/archive.ts'
import { takeBackup } from '#postgres/backup/take.ts'
import { findEmbeddedConnection, startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { openEvents } from '../harness/event-stream.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const READING_DEADLINE_MS = 60_000
/** Another one than that of any installation of these tests. */
const OTHER_KEY = Buffer.alloc(32, 7).toString('base64')

const folder = mkdtempSync(join(tmpdir(), 'skein-backup-'))
// Readable, so that the embedded server may run as another user where the tests run as root.
chmodSync(folder, 0o755)
const file = (name: string) => join(folder, name)
let original: Installation
/** On the ports of the original. */
let copy: Installation
let mqttPort: string

beforeAll(async () => {
  mqttPort = String((await freePorts(1))[0])
  original = await createInstallation({ SKEIN_MQTT_PORT: mqttPort })
  const { base, environment } = original
  const { dataDir, [Symbol.dispose]: dispose } = await createInstallation()
  copy = { base, dataDir, environment: { ...environment, SKEIN_DATA_DIR: dataDir }, [Symbol.dispose]: dispose }
})
afterAll(() => {
  for (const one of [original, copy]) one[Symbol.dispose]()
  rmSync(folder, { recursive: true, force: true })
})

type Ended = { code: number | NodeJS.Signals; stdout: string; stderr: string }

/** `dist/`, as it is deployed. */
function start(program: 'backup' | 'restore', args: string[], environment: Record<string, string>) {
  const child = spawn(process.execPath, [join(ROOT, 'dist', `${program}.js`), ...args], {
    cwd: ROOT,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...environment },
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const ended = new Promise<Ended>((resolve) =>
    child.on('close', (code, signal) => resolve({ code: code ?? signal ?? 1, stdout, stderr })),
  )
  return { child, ended }
}
const run = (...all: Parameters<typeof start>) => start(...all).ended
const into = (dataDir: string, more: Record<string, string> = {}) => ({ SKEIN_DATA_DIR: dataDir, ...more })

async function withClient<T>(connection: pg.ClientConfig, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(connection)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

/** On the embedded database of a folder on which no Skein runs. */
async function withDatabaseOf<T>(dataDir: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const server = await startEmbeddedPostgres({ dataDir, log: () => undefined, unsafe: true })
  try {
    return await withClient(server.connection, work)
  } finally {
    await server.stop()
  }
}

/** Of each table the number of rows and a digest of them in any order; of each sequence where it stands. */
async function contentsOf(client: pg.Client): Promise<Record<string, string>> {
  const { rows: tables } = await client.query<{ name: string }>(`
    SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT c.relispartition AND c.relpersistence = 'p' AND c.relname <> 'migrations' ORDER BY 1`)
  const contents: Record<string, string> = {}
  for (const { name } of tables) {
    // `last_backup` is written after the snapshot of the backup.
    const others = name === 'installation' ? "WHERE name <> 'last_backup'" : ''
    const { rows } = await client.query<{ rows: number; digest: string }>(
      `SELECT count(*)::int AS rows, coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text AS digest FROM ${name} t ${others}`,
    )
    contents[name] = `${rows[0]?.rows} ${rows[0]?.digest}`
  }
  const { rows: sequences } = await client.query<{ name: string; value: string | null }>(
    `SELECT sequencename AS name, last_value::text AS value FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1`,
  )
  for (const { name, value } of sequences) contents[name] = String(value)
  const { rows: shape } = await client.query<{ one: string }>(`
    SELECT 'index ' || pg_get_indexdef(indexrelid) || ' ' || indisvalid AS one FROM pg_index JOIN pg_class c ON c.oid = indrelid
     WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
    UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conparentid = 0
    UNION ALL SELECT 'trigger ' || tgrelid::regclass || ' ' || tgname || ' ' || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'partition ' || relname || ' ' || coalesce(array_to_string(reloptions, ','), '') FROM pg_class
               WHERE relispartition AND relkind = 'r' AND relnamespace = 'public'::regnamespace`)
  for (const { one } of shape) contents[one] = 'there'
  return contents
}

/** Takes a backup and returns the contents of the database in the same snapshot, while other connections write. */
async function backUpAndCompare(connection: pg.ClientConfig, path: string): Promise<Record<string, string>> {
  return await withClient(connection, (source) =>
    withClient(connection, async (reader) => {
      let contents: Promise<Record<string, string>> | undefined
      const observed = new Proxy(source, {
        get(target, key) {
          const value = Reflect.get(target, key, target) as unknown
          if (key !== 'query') return typeof value === 'function' ? (value.bind(target) as unknown) : value
          return (query: unknown, ...rest: []) => {
            const result = target.query(query as string, ...rest)
            // The first statement begins the transaction; the snapshot is taken with the next one.
            if (contents !== undefined || !String(query).startsWith('START TRANSACTION')) return result
            return result.then(async (begun) => {
              const { rows } = await target.query<{ id: string }>('SELECT pg_export_snapshot() AS id')
              await reader.query(
                `START TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '${rows[0]?.id}'`,
              )
              contents = contentsOf(reader)
              return begun
            })
          }
        },
      })
      const options = {
        path,
        version: '0.1.0',
        signal: AbortSignal.timeout(READING_DEADLINE_MS),
        check: () => undefined,
      }
      await takeBackup(observed, options)
      return (await contents) ?? {}
    }),
  )
}

/** Without sequences, which are not transactional, and which a backup takes after its snapshot. */
const rowsAndShape = (contents: Record<string, string>) =>
  Object.fromEntries(Object.entries(contents).filter(([name, value]) => value.includes(' ') || name.includes(' ')))

type Device = {
  token: string
  id: string
  secret: string
  domainId: string
  channelId: string
  taskId: string
  path: string
}

async function setUp(whole: Whole): Promise<Device> {
  const login = await whole.call('POST', '/users/tokens/issue', {
    body: { identity: 'admin', secret: 'the-first-admin' },
  })
  const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
  const post = async <T>(path: string, body: unknown) => {
    const answer = await whole.call('POST', path, { body, authorization })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.text === '' ? ({} as T) : answer.json<T>()
  }
  const { id: domainId } = await post<{ id: string }>('/domains', { name: 'backed up' })
  const client = await post<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, { name: 'device' })
  const { id: channelId } = await post<{ id: string }>(`/${domainId}/channels`, { name: 'values' })
  await post(`/${domainId}/channels/connect`, { client_ids: [client.id], channel_ids: [channelId] })
  const { id: taskId } = await post<{ id: string }>('/tasks', {
    name: 'add',
    inputs: [1],
    domain_id: domainId,
    trigger: { channel_id: channelId, subtopic: '', name: 'v' },
  })
  return {
    token: authorization,
    id: client.id,
    secret: client.credentials.secret,
    domainId,
    channelId,
    taskId,
    path: `/m/${domainId}/c/${channelId}`,
  }
}

async function publish(whole: Whole, device: Device, value: number): Promise<void> {
  const { status, text } = await whole.call('POST', device.path, {
    body: [{ n: 'v', v: value }],
    authorization: `Client ${device.secret}`,
  })
  expect(status, text).toBe(202)
}

const follow = (installation: Installation, device: Device, after?: string) =>
  openEvents(`${installation.base}${device.path}/live`, {
    authorization: `Client ${device.secret}`,
    ...(after === undefined ? {} : { 'last-event-id': after }),
  })

const valuesOf = (text: string): number[] => [...text.matchAll(/"v":(-?\d+)/g)].map((match) => Number(match[1]))

const offline = ({ id, secret }: Device) =>
  mqtt.connectAsync(`mqtt://127.0.0.1:${mqttPort}`, {
    clientId: 'away',
    username: id,
    password: secret,
    clean: false,
    reconnectPeriod: 0,
  })

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index)

describe('a backup of a running installation', () => {
  const [under, compared, stopped, key] = ['under-load.tar', 'compared.tar', 'stopped.tar', 'secret.key'].map(file) as [
    string,
    string,
    string,
    string,
  ]
  let device: Device
  let idOfTen: string
  let idOfTheLost: string
  let atStop: Record<string, string>
  let underLoad: Record<string, string>

  test('is created while messages arrive, and the secret key is a separate file', async () => {
    await using whole = await startWhole(original)
    device = await setUp(whole)
    const away = await offline(device)
    await away.subscribeAsync(`m/${device.domainId}/c/${device.channelId}/#`, { qos: 1 })
    await away.endAsync()
    await using reader = await follow(original, device)
    for (const value of numbers(0, 11)) await publish(whole, device, value)
    const isAt = (value: number) => reader.events.find(({ data }) => valuesOf(JSON.stringify(data)).includes(value))
    // Before message 11 is published: of messages that are read together only the last one has a position of its own.
    idOfTen = (await until(() => isAt(10), 'message 10')).id ?? ''
    for (const value of numbers(11, 20)) await publish(whole, device, value)
    let next = 20
    let isOver = false
    const load = (async () => {
      while (!isOver) await publish(whole, device, next++)
    })()
    const taken = await run('backup', [under, '--with-key', key], into(original.dataDir))
    expect(taken, taken.stderr).toMatchObject({ code: 0 })
    expect(taken.stdout).toContain(`wrote the secret key to ${key}`)
    for (const path of [under, key]) expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(readFileSync(under).includes(readFileSync(key, 'utf8').trim())).toBe(false)
    const connection = (await findEmbeddedConnection(original.dataDir)) ?? {}
    underLoad = await backUpAndCompare(connection, compared)
    // The load wrote to the tables of messages meanwhile.
    expect(rowsAndShape(await withClient(connection, contentsOf))).not.toEqual(rowsAndShape(underLoad))
    const last = next + 5
    await until(() => next > last, 'messages after the backup')
    isOver = true
    await load
    // Given out by the original, and not in the backup.
    idOfTheLost = (await until(() => isAt(next - 1), 'the last message')).id ?? ''

    const refused = await run('restore', [under, '--key', key], into(original.dataDir))
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('is in use by another Skein')
    const again = await run('backup', [under], into(original.dataDir))
    expect(again.stderr).toContain('exists: a backup never replaces a file, choose another name')
  })

  test('is also created of a stopped installation', async () => {
    const taken = await run('backup', [stopped], into(original.dataDir))
    expect(taken, taken.stderr).toMatchObject({ code: 0 })
    expect(taken.stdout).toContain('the secret key is not in it')
    atStop = await withDatabaseOf(original.dataDir, contentsOf)
  })

  test('restores every row, sequence, index and constraint, from an embedded database into an external one', async () => {
    const server = await startEmbeddedPostgres({
      dataDir: join(folder, 'external'),
      log: () => undefined,
      unsafe: true,
    })
    try {
      const { host, port, user, password } = server.connection
      await withClient(server.connection, async (client) => {
        await client.query("CREATE ROLE owner LOGIN PASSWORD 'owner'")
        for (const name of ['moved', 'compared']) await client.query(`CREATE DATABASE ${name} OWNER owner`)
      })
      const urlOf = (database: string) =>
        `postgres://owner:owner@localhost:${port}/${database}?host=${encodeURIComponent(host)}`
      const secretKey = readFileSync(key, 'utf8').trim()
      const dataDir = join(folder, 'beside-external')
      const environment = into(dataDir, { SKEIN_DATABASE_URL: urlOf('moved'), SKEIN_SECRET_KEY: secretKey })
      const done = await run('restore', [stopped], environment)
      expect(done, done.stderr).toMatchObject({ code: 0 })
      await withClient({ host, port, user, password, database: 'moved' }, async (client) => {
        expect(await contentsOf(client)).toEqual(atStop)
      })
      const loaded = await run('restore', [compared], { ...environment, SKEIN_DATABASE_URL: urlOf('compared') })
      expect(loaded, loaded.stderr).toMatchObject({ code: 0 })
      await withClient({ host, port, user, password, database: 'compared' }, async (client) => {
        expect(rowsAndShape(await contentsOf(client))).toEqual(rowsAndShape(underLoad))
      })
      const twice = await run('restore', [stopped], environment)
      expect(twice.code).toBe(1)
      expect(twice.stderr).toContain('the database is not empty')
    } finally {
      await server.stop()
    }
  })

  test('continues where it was created: projections, triggers, offline sessions and Last-Event-ID', async () => {
    const done = await run('restore', [under, '--key', key], into(copy.dataDir))
    expect(done, done.stderr).toMatchObject({ code: 0 })
    expect(readFileSync(join(copy.dataDir, 'secret.key'), 'utf8').trim()).toBe(readFileSync(key, 'utf8').trim())
    expect(statSync(join(copy.dataDir, 'secret.key')).mode & 0o777).toBe(0o600)
    const stored = await withDatabaseOf(copy.dataDir, async (client) => {
      const { rows } = await client.query<{ said: number; stored: number }>(`
        SELECT (SELECT sum(records)::int FROM ingest_batches) AS said, (SELECT sum(cardinality(times))::int FROM records) AS stored`)
      // One snapshot: the log of batches and the rows of all partitions agree.
      expect(rows[0]?.stored).toBe(rows[0]?.said)
      return rows[0]?.stored ?? 0
    })
    // What was acknowledged before the backup began is in it, and nothing has a gap.
    expect(stored).toBeGreaterThanOrEqual(20)

    await using whole = await startWhole(copy)
    await using reader = await follow(copy, device, idOfTen)
    await using late = await follow(copy, device, idOfTheLost)
    const more = numbers(1_000_000, 1_000_005)
    for (const value of more) await publish(whole, device, value)
    const got = (one: typeof reader) => one.events.flatMap(({ data }) => valuesOf(JSON.stringify(data)))
    const isThere = (values: number[]) => () => values.includes(more.at(-1) ?? 0)
    await until(() => isThere(got(reader))(), 'everything after message 10', READING_DEADLINE_MS)
    expect(got(reader)).toEqual([...numbers(11, stored), ...more])
    await until(() => isThere(got(late))(), 'everything after a message that was lost', READING_DEADLINE_MS)
    expect(got(late)).toEqual(more)

    const received: number[] = []
    const away = await offline(device)
    away.on('message', (_topic, payload) => received.push(...valuesOf(payload.toString())))
    await until(isThere(received), 'the messages of the session', READING_DEADLINE_MS)
    expect(received).toEqual([...numbers(0, stored), ...more])
    await away.endAsync()

    const connection = await findEmbeddedConnection(copy.dataDir)
    const total = stored + more.length
    await withClient(connection ?? {}, async (client) => {
      const counted = async () => {
        const { rows } = await client.query<{ rollups: number; usage: number; matched: number }>(`
          SELECT (SELECT sum(records)::int FROM rollups WHERE series_key > 0) AS rollups, (SELECT sum(records)::int FROM domain_usage) AS usage,
                 (SELECT sum(matched)::int FROM task_triggers) AS matched`)
        return rows[0]
      }
      await until(
        async () => {
          const now = await counted()
          return Math.min(now?.rollups ?? 0, now?.usage ?? 0, now?.matched ?? 0) >= total
        },
        'the projections and triggers',
        READING_DEADLINE_MS,
      )
      expect(await counted()).toEqual({ rollups: total, usage: total, matched: total })
      const { rows } = await client.query<{ is_rising: boolean }>(
        'SELECT bool_and(xid > before) AS is_rising FROM (SELECT xid, lag(xid) OVER (ORDER BY seq) AS before FROM ingest_batches) b WHERE before IS NOT NULL',
      )
      expect(rows[0]?.is_rising).toBe(true)
    })
  })

  describe('is refused before anything is written', () => {
    const refuse = async (path: string, sentence: string | RegExp, more: Record<string, string> = {}) => {
      const dataDir = join(
        folder,
        `refused-${createHash('sha256')
          .update(path + String(sentence))
          .digest('hex')
          .slice(0, 8)}`,
      )
      const { code, stderr, stdout } = await run('restore', [path], into(dataDir, { SKEIN_KEY_FILE: key, ...more }))
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
      expect(stderr.trim().split('\n')).toHaveLength(1)
      expect(stderr).toMatch(sentence)
      expect(existsSync(dataDir)).toBe(false)
    }

    test('without its secret key, and with another one', async () => {
      await refuse(stopped, /requires its secret key/, { SKEIN_KEY_FILE: '' })
      await refuse(stopped, /the secret key does not match/, { SKEIN_KEY_FILE: '', SKEIN_SECRET_KEY: OTHER_KEY })
    })

    test('when a byte differs, wherever it is', async () => {
      const { size } = statSync(stopped)
      for (const share of [0.0005, 0.2, 0.5, 0.8, 0.97, 0.999]) {
        const path = file(`flipped-${share}.tar`)
        copyFileSync(stopped, path)
        const handle = await open(path, 'r+')
        const at = Math.floor(size * share)
        const byte = Buffer.alloc(1)
        await handle.read(byte, 0, 1, at)
        await handle.write(Buffer.from([(byte[0] ?? 0) ^ 0x41]), 0, 1, at)
        await handle.close()
        await refuse(path, /damaged|is not a backup|truncated/)
      }
    })

    test('when it is cut off, and when it is something else', async () => {
      const path = file('cut.tar')
      copyFileSync(stopped, path)
      truncateSync(path, Math.floor(statSync(stopped).size / 2))
      await refuse(path, /truncated/)
      writeFileSync(file('foreign.tar'), Buffer.alloc(10_000, 'not a backup '))
      await refuse(file('foreign.tar'), /is not a backup of Skein/)
      await refuse(file('absent.tar'), /cannot be read/)
    })

    test('when a newer Skein wrote it', async () => {
      await refuse(
        await changed('newer-format.tar', (manifest) => (manifest['format_version'] = 2)),
        /newer than this one/,
      )
      const added = await changed('newer-schema.tar', (manifest) => {
        ;(manifest['migrations'] as unknown[]).push({ name: 'later', digest: 'other' })
      })
      await refuse(added, /newer than this one/)
    })

    /** The stopped backup with another manifest, whole otherwise. */
    async function changed(name: string, change: (manifest: Record<string, unknown>) => void): Promise<string> {
      const handle = await open(file(name), 'wx')
      const archive = new ArchiveWriter(handle)
      for await (const member of readArchive(stopped)) {
        if (member.name !== 'manifest.json') await archive.add(member.name, member.data)
        else {
          const manifest = JSON.parse(member.data.toString()) as Record<string, unknown>
          change(manifest)
          await archive.add(member.name, Buffer.from(JSON.stringify(manifest)))
        }
      }
      await archive.finish()
      await handle.close()
      return file(name)
    }
  })

  test('a killed restore leaves an empty database, into which it can be repeated', async () => {
    for (const [index, afterMs] of [300, 900].entries()) {
      const dataDir = join(folder, `killed-${index}`)
      const { child, ended } = start('restore', [stopped, '--key', key], into(dataDir))
      await until(
        () => existsSync(join(dataDir, 'postgres', 'cluster')) || child.exitCode !== null,
        'the restore works',
      )
      await new Promise((resolve) => setTimeout(resolve, afterMs))
      child.kill('SIGKILL')
      const { code } = await ended
      const found = await withDatabaseOf(dataDir, contentsOf)
      if (code === 0 || Object.keys(found).length > 0) {
        expect(found).toEqual(atStop)
        continue
      }
      const again = await run('restore', [stopped, '--key', key], into(dataDir))
      expect(again, again.stderr).toMatchObject({ code: 0 })
      expect(await withDatabaseOf(dataDir, contentsOf)).toEqual(atStop)
    }
  })

  test('a cancelled backup fails and leaves no file', async () => {
    await withDatabaseOf(original.dataDir, async (client) => {
      await client.query('BEGIN; LOCK TABLE users IN ACCESS EXCLUSIVE MODE')
      const path = file('interrupted.tar')
      const { child, ended } = start('backup', [path], into(original.dataDir))
      const left = () => readdirSync(folder).filter((name) => name.startsWith('interrupted.tar'))
      await until(() => left().length > 0, 'the backup has begun')
      child.kill('SIGTERM')
      expect((await ended).code).toBe(1)
      expect(left()).toEqual([])
    })
  })

  test('reports a missing installation', async () => {
    const { code, stderr } = await run('backup', [file('nothing.tar')], into(join(folder, 'nothing')))
    expect(code).toBe(1)
    expect(stderr).toContain('holds no database of Skein')
    expect(await run('backup', [], into(original.dataDir))).toMatchObject({ code: 2 })
  })
})
