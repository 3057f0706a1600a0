/**
 * Two nodes over one PostgreSQL, with and without Redis: the time until a revocation takes effect on the other node, open
 * streams included (contract decision 47), and the delivery time of a message to a follower there.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { followValues, publishValue } from './live.ts'
import { freePort, newDataDir, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'

const REVOCATIONS = 20
const MESSAGES = 100
const POLL_MS = 2
const TARGET_REVOCATION_MS = 1000
const SETTLE_MS = 2500

type Device = { id: string; secret: string; channelId: string }
type Figures = { revokedMs: number[]; endedMs: number[]; deliveredMs: number[] }

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

/** Debian's redis-server; the bench needs it. */
async function startRedis(): Promise<{ url: string } & Disposable> {
  const port = await freePort()
  const child = spawn('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', ''], {
    stdio: 'ignore',
  })
  await new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject))
  return { url: `redis://127.0.0.1:${port}`, [Symbol.dispose]: () => void child.kill('SIGKILL') }
}

const clientOf = ({ secret }: Device) => `Client ${secret}`

async function measure(first: Platform, second: Platform, domainId: string, authorization: string): Promise<Figures> {
  const figures: Figures = { revokedMs: [], endedMs: [], deliveredMs: [] }
  const newDevice = async (): Promise<Device> => {
    const [client, channel] = await Promise.all([
      first.call<{ id: string; credentials: { secret: string } }>('POST', `/${domainId}/clients`, {}, authorization),
      first.call<{ id: string }>('POST', `/${domainId}/channels`, {}, authorization),
    ])
    await first.call(
      'POST',
      `/${domainId}/channels/connect`,
      { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] },
      authorization,
    )
    return { id: client.id, secret: client.credentials.secret, channelId: channel.id }
  }

  const device = await newDevice()
  const path = `/m/${domainId}/c/${device.channelId}`
  const stream = await followValues(second, path, clientOf(device))
  await pause(SETTLE_MS)
  for (let value = 0; value < MESSAGES; value++) {
    const began = performance.now()
    await publishValue(first, path, clientOf(device), value)
    while (!stream.came.has(value)) await pause(1)
    figures.deliveredMs.push((stream.came.get(value) as number) - began)
    // At any moment between two reads of the changelog.
    await pause(Math.random() * 50)
  }
  stream.close()

  for (let count = 0; count < REVOCATIONS; count++) {
    const one = await newDevice()
    const at = `/m/${domainId}/c/${one.channelId}`
    const open = await followValues(second, at, clientOf(one))
    while ((await publishValue(second, at, clientOf(one), 1)) !== 202) await pause(POLL_MS)
    await pause(Math.random() * 500)
    const body = { client_ids: [one.id], channel_ids: [one.channelId] }
    await first.call('POST', `/${domainId}/channels/disconnect`, body, authorization)
    const began = performance.now()
    while ((await publishValue(second, at, clientOf(one), 2)) === 202) await pause(POLL_MS)
    figures.revokedMs.push(performance.now() - began)
    figures.endedMs.push((await open.ended) - began)
  }
  return figures
}

async function run(redisUrl: string | undefined): Promise<Figures> {
  const dataDirs = [newDataDir(), newDataDir(), newDataDir()] as const
  for (const dataDir of dataDirs) chmodSync(dataDir, 0o755)
  try {
    await using stack = new AsyncDisposableStack()
    const postgres = await startEmbeddedPostgres({ dataDir: join(dataDirs[0], 'postgres'), log: () => undefined })
    stack.defer(() => postgres.stop())
    const { host, port, user, password, database } = postgres.connection
    const environment = {
      SKEIN_DATABASE_URL: `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
      SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
      SKEIN_ADMIN_SECRET: 'the-first-admin',
      ...(redisUrl === undefined ? {} : { SKEIN_REDIS_URL: redisUrl }),
    }
    const first = stack.use(await startPlatform(dataDirs[1], environment))
    const second = stack.use(await startPlatform(dataDirs[2], environment))
    const login = { identity: 'admin', secret: 'the-first-admin' }
    const { access_token: token } = await first.call<{ access_token: string }>('POST', '/users/tokens/issue', login)
    const authorization = `Bearer ${token}`
    const { id } = await first.call<{ id: string }>('POST', '/domains', { name: 'nodes' }, authorization)
    return await measure(first, second, id, authorization)
  } finally {
    for (const dataDir of dataDirs) removeDataDir(dataDir)
  }
}

export async function benchNodes(): Promise<void> {
  using redis = await startRedis()
  for (const [name, url] of [
    ['with Redis', redis.url],
    ['without Redis', undefined],
  ] as const) {
    const { revokedMs, endedMs, deliveredMs } = await run(url)
    const figure = (values: readonly number[]) =>
      `p50 ${milliseconds(median(values))}, max ${milliseconds(Math.max(...values))}`
    const row = (what: string, values: readonly number[]) => ({
      name: what,
      figure: figure(values),
      target: `max ${milliseconds(TARGET_REVOCATION_MS)}`,
      isReached: Math.max(...values) < TARGET_REVOCATION_MS,
    })
    printTable(`Two nodes ${name}`, [
      row('revocation: the other node returns 401', revokedMs),
      row('revocation: a stream there has ended', endedMs),
      {
        name: 'a message to a follower on the other node',
        figure: `p50 ${milliseconds(median(deliveredMs))}, p99 ${milliseconds(percentile(deliveredMs, 0.99))}`,
      },
    ])
  }
}
