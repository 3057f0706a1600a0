/**
 * What one unit of work costs: processor time, memory, disk and connections of all processes of an installation together,
 * measured in one run. docs/capacity.md calculates installations from these figures.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { join } from 'node:path'
import { load, prepareRequest } from './http-load.ts'
import { openClient, publishPacket } from './mqtt/client.ts'
import {
  cpuMs,
  cpuMsByRole,
  familyOf,
  freePort,
  memoryMiB,
  newDataDir,
  prepareDevices,
  removeDataDir,
  startPlatform,
} from './platform.ts'
import type { Device, Platform } from './platform.ts'
import { printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const RECORDS = 4
const DEVICES = 1000
const HTTP_CONNECTIONS = 64
const MQTT_PUBLISHERS = 64
/** Messages in flight per MQTT publisher: a batch is what arrives while the last one is committed. */
const WINDOW = 8
const DURATION_MS = 15_000
/** Fills the table that the disk is measured on, in runs of this length. */
const FILL_RUNS = 4
const IDLE_MS = 10_000
const IDLE_CONNECTIONS = 2000
const CONNECTS_AT_ONCE = 32
const BULK_CLIENTS = 10_000
const BULK_CALL = 1000
const RUNS_DURATION_MS = 10_000
const READS_DURATION_MS = 5000
/** The projector and the checkpointer work on after the last message. */
const SETTLE_MS = 15_000

type Spent = { us: number; roles: string }

/** Processor time since `before` per unit, in microseconds, in all processes and by role. */
function spentSince(platform: Platform, before: Record<string, number>, units: number): Spent {
  const after = cpuMsByRole(platform.pid)
  const perUnit = Object.keys(after).map((role) => ({
    role,
    us: (((after[role] ?? 0) - (before[role] ?? 0)) * 1000) / units,
  }))
  const roles = perUnit.filter(({ us }) => us >= 1).map(({ role, us }) => `${Math.round(us)} ${role}`)
  return { us: perUnit.reduce((sum, { us }) => sum + us, 0), roles: roles.join(', ') }
}

const cost = (name: string, { us, roles }: Spent): Row => ({
  name,
  figure: `${Math.round(us)} us of CPU`,
  ratio: roles,
})

/** Bytes of the tables and indexes; the write-ahead log is recycled and has a bound of its own. */
export function tableBytes(dataDir: string): number {
  const base = join(dataDir, 'postgres', 'cluster', 'base')
  return readdirSync(base, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => {
      try {
        return sum + statSync(join(entry.parentPath, entry.name)).blocks * 512
      } catch {
        return sum
      }
    }, 0)
}

function packOf(index: number): string {
  const records = Array.from({ length: RECORDS }, (_, place) => ({ n: `m${place}`, u: 'V', v: index + place / 10 }))
  return JSON.stringify([{ bn: `d${index}:`, ...records[0] }, ...records.slice(1)])
}

async function measureIdle(platform: Platform, rows: Row[]): Promise<void> {
  await pause(SETTLE_MS)
  const before = cpuMs(platform.pid)
  await pause(IDLE_MS)
  const after = cpuMs(platform.pid)
  const share = (after.own + after.below - before.own - before.below) / IDLE_MS
  const postgres = familyOf(platform.pid).filter((pid) => commandOf(pid).startsWith('postgres: ')).length
  rows.push(
    { name: 'idle: processor', figure: `${(share * 100).toFixed(1)} % of a core` },
    { name: 'idle: memory', figure: `${Math.round(memoryMiB(platform.pid))} MiB` },
    { name: 'idle: processes of PostgreSQL', figure: String(postgres) },
  )
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}

export type World = { domainId: string; channelId: string; devices: Device[]; token: string }

export async function publishOverHttp(platform: Platform, { domainId, channelId, devices }: World): Promise<number> {
  const requests = devices.map((device, index) =>
    prepareRequest(
      'POST',
      `/m/${domainId}/c/${channelId}`,
      { Authorization: `Client ${device.secret}`, 'Content-Type': 'application/senml+json' },
      packOf(index),
    ),
  )
  const { answered } = await load({
    port: platform.port,
    requests,
    connections: HTTP_CONNECTIONS,
    durationMs: DURATION_MS,
    status: 202,
  })
  return answered
}

/** QoS 1, acknowledged after the commit. */
export async function publishOverMqtt(port: number, { domainId, channelId, devices }: World): Promise<number> {
  const clients = await Promise.all(
    devices.slice(0, MQTT_PUBLISHERS).map((device, index) => openClient(port, `p${index}`, device)),
  )
  let acknowledged = 0
  let isOver = false
  for (const [index, client] of clients.entries()) {
    const { bytes, packetIdAt } = publishPacket(`m/${domainId}/c/${channelId}`, Buffer.from(packOf(index)), 1)
    let packetId = 0
    const send = () => client.publish(bytes, packetIdAt, (packetId = (packetId % 65_535) + 1))
    client.onPuback = () => {
      acknowledged++
      if (!isOver) send()
    }
    for (let place = 0; place < WINDOW; place++) send()
  }
  await pause(DURATION_MS)
  isOver = true
  const counted = acknowledged
  await pause(1000)
  for (const client of clients) client.end()
  return counted
}

async function measureMessages(platform: Platform, mqttPort: number, world: World, rows: Row[]): Promise<void> {
  // Series are created by the first message of each device.
  await publishOverHttp(platform, world)
  await publishOverMqtt(mqttPort, world)
  await pause(SETTLE_MS)
  const ways = [
    ['HTTP', () => publishOverHttp(platform, world)],
    ['MQTT QoS 1', () => publishOverMqtt(mqttPort, world)],
  ] as const
  for (const [name, publish] of ways) {
    const before = cpuMsByRole(platform.pid)
    const messages = await publish()
    await pause(SETTLE_MS)
    rows.push(cost(`message of ${RECORDS} records over ${name}`, spentSince(platform, before, messages)))
  }
  const bytes = tableBytes(platform.dataDir)
  let messages = 0
  for (let run = 0; run < FILL_RUNS; run++) messages += await publishOverMqtt(mqttPort, world)
  await pause(SETTLE_MS)
  const perRecord = (tableBytes(platform.dataDir) - bytes) / (messages * RECORDS)
  rows.push({
    name: 'stored record, with indexes and projections',
    figure: `${Math.round(perRecord)} bytes of disk`,
    ratio: `over ${(messages * RECORDS).toLocaleString('en')} records`,
  })
}

async function measureConnections(
  platform: Platform,
  port: number,
  { devices, domainId, channelId }: World,
  rows: Row[],
) {
  const memory = memoryMiB(platform.pid)
  const before = cpuMsByRole(platform.pid)
  const clients: Awaited<ReturnType<typeof openClient>>[] = []
  let next = 0
  const topic = `m/${domainId}/c/${channelId}/quiet`
  await Promise.all(
    Array.from({ length: CONNECTS_AT_ONCE }, async () => {
      for (let index = next++; index < IDLE_CONNECTIONS; index = next++) {
        const client = await openClient(port, `idle${index}`, devices[index % devices.length])
        await client.subscribe(topic, 1)
        clients.push(client)
      }
    }),
  )
  rows.push(cost('MQTT connect and subscribe', spentSince(platform, before, IDLE_CONNECTIONS)))
  await pause(SETTLE_MS)
  const kilobytes = ((memoryMiB(platform.pid) - memory) * 1024) / IDLE_CONNECTIONS
  rows.push({ name: 'connected MQTT subscriber', figure: `${kilobytes.toFixed(1)} KiB of memory` })
  for (const client of clients) client.end()
}

async function measureReads(platform: Platform, { domainId, channelId, token }: World, rows: Row[]): Promise<void> {
  const reads = [['newest page of 100 records', `?limit=100`]] as const
  for (const [name, query] of reads) {
    const before = cpuMsByRole(platform.pid)
    const { answered } = await load({
      port: platform.port,
      requests: [
        prepareRequest('GET', `/${domainId}/channels/${channelId}/messages${query}`, { Authorization: token }),
      ],
      connections: 4,
      durationMs: READS_DURATION_MS,
      status: 200,
    })
    rows.push(cost(name, spentSince(platform, before, answered)))
  }
}

async function measureTasks(platform: Platform, rows: Row[]): Promise<void> {
  const { id } = await platform.call<{ id: string }>('POST', '/tasks', { name: 'add', inputs: [20, 22] })
  await platform.upload(id, 'examples/add/add.wasm')
  const ways = [
    ['run, invoked one by one', 'invoke', { inputs: [20, 22] }, 1],
    ['run, invoked a hundred at a time', 'invoke-many', { inputs: Array.from({ length: 100 }, () => [20, 22]) }, 100],
  ] as const
  for (const [name, path, body, runs] of ways) {
    const request = prepareRequest(
      'POST',
      `/tasks/${id}/${path}`,
      { 'Content-Type': 'application/json' },
      JSON.stringify(body),
    )
    const options = { port: platform.port, requests: [request], connections: 16, status: 200 }
    await load({ ...options, durationMs: 2000 })
    const before = cpuMsByRole(platform.pid)
    const { answered } = await load({ ...options, durationMs: RUNS_DURATION_MS })
    rows.push(cost(name, spentSince(platform, before, answered * runs)))
  }
}

async function measureClients(platform: Platform, { domainId, token }: World, rows: Row[]): Promise<void> {
  const [bytes, before] = [tableBytes(platform.dataDir), cpuMsByRole(platform.pid)]
  for (let done = 0; done < BULK_CLIENTS; done += BULK_CALL)
    await platform.call(
      'POST',
      `/${domainId}/clients/bulk`,
      Array.from({ length: BULK_CALL }, (_, index) => ({ name: `stored-${done + index}`, tags: ['north'] })),
      token,
    )
  rows.push(cost('client, created 1,000 at a time', spentSince(platform, before, BULK_CLIENTS)))
  await pause(SETTLE_MS)
  const perClient = (tableBytes(platform.dataDir) - bytes) / BULK_CLIENTS
  rows.push({ name: 'stored client', figure: `${Math.round(perClient).toLocaleString('en')} bytes of disk` })
}

export async function benchCapacity(): Promise<void> {
  const dataDir = newDataDir()
  const rows: Row[] = []
  try {
    const mqttPort = await freePort()
    await using platform = await startPlatform(dataDir, { SKEIN_MQTT_PORT: String(mqttPort) })
    await measureIdle(platform, rows)
    const world = await prepareDevices(platform, DEVICES)
    // Before the messages, whose garbage would hide the memory of a connection.
    await measureConnections(platform, mqttPort, world, rows)
    await measureMessages(platform, mqttPort, world, rows)
    await measureReads(platform, world, rows)
    await measureTasks(platform, rows)
    await measureClients(platform, world, rows)
    rows.push({ name: 'memory at the end', figure: `${Math.round(memoryMiB(platform.pid))} MiB` })
  } finally {
    removeDataDir(dataDir)
  }
  printTable('Capacity: what one unit of work costs, all processes together', rows)
}
