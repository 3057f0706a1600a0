/** Provisioning in one call, with a bootstrap configuration and with a certificate, and a file of ten thousand clients. */
import { bareTransactions } from './bare-transactions.ts'
import { load, prepareRequest } from './http-load.ts'
import { cpuMs, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat } from './statistics.ts'
import type { Row } from './statistics.ts'

const CONNECTIONS = 8
const DURATION_MS = 3000
/** Statements of one device between `begin` and `commit`; here each waits for the previous one. */
const STATEMENTS = 5
const REPEATS = 3
const TARGET_P99_MS = 200
const FILE_CLIENTS = 10_000
const TARGET_FILE_MS = 2000
/** The smallest machine that the targets apply to. */
const CORES = 2
const CASES = [
  { name: 'with a bootstrap configuration', x509: 'false', target: 200 },
  { name: 'with a certificate too', x509: 'true', target: 50 },
] as const

async function provisioned(platform: Platform, name: string, target: number, floor: number): Promise<Row[]> {
  const { token, domainId } = await prepareDevices(platform, 1)
  const headers = { Authorization: token, 'Content-Type': 'application/json' }
  let device = 0
  const requests = () => {
    const body = JSON.stringify({ external_id: `device ${device++}`, external_key: 'key' })
    return prepareRequest('POST', `/${domainId}/mapping`, headers, body)
  }
  const options = { port: platform.port, requests, connections: CONNECTIONS, durationMs: DURATION_MS, status: 201 }
  const before = cpuMs(platform.pid)
  const results = await repeat(1, REPEATS, () => load(options))
  const after = cpuMs(platform.pid)
  const [own, below] = [(after.own - before.own) / device, (after.below - before.below) / device]
  const rate = median(results.map((result) => result.perSecond))
  const latencies = results.flatMap((result) => result.latenciesMs)
  const p99 = percentile(latencies, 0.99)
  const refused = results.reduce((sum, result) => sum + result.refused, 0)
  return [
    {
      name,
      figure: perSecond(rate, 'devices'),
      ratio: `${Math.round((100 * rate) / floor)} % of bare transactions`,
      target: perSecond(target, 'devices'),
      isReached: rate >= target,
    },
    {
      name: '  latency',
      figure: `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(p99)}`,
      target: `p99 ${milliseconds(TARGET_P99_MS)}`,
      isReached: p99 < TARGET_P99_MS,
    },
    {
      name: '  CPU of one',
      figure: milliseconds(own + below),
      ratio: `Node ${milliseconds(own)}, PostgreSQL and the worker ${milliseconds(below)}`,
      target: `${milliseconds((CORES * 1000) / target)}, the share of ${CORES} cores`,
      isReached: own + below < (CORES * 1000) / target,
    },
    { name: '  refused', figure: String(refused), target: '0', isReached: refused === 0 },
  ]
}

/** Every client with every channel: one line per pair. */
const [PAIR_CLIENTS, PAIR_CHANNELS] = [300, 300]

type File = {
  kind: 'clients' | 'connections'
  type: 'text/csv' | 'application/json'
  items: number
  text: () => string
}

/** Imports of whole files, all or nothing. */
async function imported(platform: Platform): Promise<Row[]> {
  const { token, domainId, devices } = await prepareDevices(platform, PAIR_CLIENTS)
  const channels = Array.from({ length: PAIR_CHANNELS }, (_, index) => ({ name: `channel ${index}` }))
  const made = await platform.call<{ channels: { id: string }[] }>(
    'POST',
    `/${domainId}/channels/bulk`,
    channels,
    token,
  )
  const names = () => Array.from({ length: FILE_CLIENTS }, (_, index) => `client ${index}`)
  const pairs = devices.flatMap((client) => made.channels.map((channel) => `${client.id},${channel.id}`))
  const files: File[] = [
    { kind: 'clients', type: 'text/csv', items: FILE_CLIENTS, text: () => names().join('\n') },
    {
      kind: 'clients',
      type: 'application/json',
      items: FILE_CLIENTS,
      text: () => JSON.stringify(names().map((name) => ({ name, metadata: { site: 'north' } }))),
    },
    { kind: 'connections', type: 'text/csv', items: pairs.length, text: () => pairs.join('\n') },
  ]
  const rows: Row[] = []
  for (const { kind, type, items, text } of files) {
    const url = `http://127.0.0.1:${platform.port}/${domainId}/${kind}/import`
    const headers = { authorization: token, 'content-type': type }
    const times = await repeat(1, REPEATS, async () => {
      if (kind === 'connections')
        await platform.call(
          'POST',
          `/${domainId}/channels/disconnect`,
          { client_ids: devices.map(({ id }) => id), channel_ids: made.channels.map(({ id }) => id) },
          token,
        )
      const body = text()
      const began = performance.now()
      const answer = await fetch(url, { method: 'POST', headers, body })
      if (answer.status !== 201) throw new Error(`import: ${answer.status} ${await answer.text()}`)
      await answer.arrayBuffer()
      return performance.now() - began
    })
    const figure = median(times)
    const isOfClients = kind === 'clients'
    rows.push({
      name: `a file of ${items.toLocaleString('en')} ${kind} (${type})`,
      figure: milliseconds(figure),
      ...(isOfClients ? { target: milliseconds(TARGET_FILE_MS), isReached: figure < TARGET_FILE_MS } : {}),
    })
  }
  return rows
}

export async function benchProvision(): Promise<void> {
  const floor = await bareTransactions({
    connections: CONNECTIONS,
    statements: STATEMENTS,
    durationMs: DURATION_MS,
    repeats: REPEATS,
  })
  const rows: Row[] = [
    { name: `bare transactions of ${STATEMENTS} inserts, no index`, figure: perSecond(floor, 'transactions') },
  ]
  for (const { name, x509, target } of CASES) {
    const dataDir = newDataDir()
    try {
      await using platform = await startPlatform(dataDir, { SKEIN_PROVISION_X509_PROVISIONING: x509 })
      rows.push(...(await provisioned(platform, name, target, floor)))
      if (x509 === 'false') rows.push(...(await imported(platform)))
    } finally {
      removeDataDir(dataDir)
    }
  }
  printTable(`Devices provisioned by /mapping, ${CONNECTIONS} callers, loader on the same cores`, rows)
}
