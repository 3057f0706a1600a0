/** Provisioning in one call, with a bootstrap configuration and with a certificate, and a file of ten thousand clients. */
import { load, prepareRequest } from './http-load.ts'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, percentile, printTable, repeat } from './statistics.ts'
import type { Row } from './statistics.ts'

const CONNECTIONS = 8
const DURATION_MS = 3000
const REPEATS = 3
const TARGET_P99_MS = 200
const FILE_CLIENTS = 10_000
const TARGET_FILE_MS = 2000
const CASES = [
  { name: 'with a bootstrap configuration', x509: 'false', target: 200 },
  { name: 'with a certificate too', x509: 'true', target: 50 },
] as const

async function provisioned(platform: Platform, name: string, target: number): Promise<Row[]> {
  const { token, domainId } = await prepareDevices(platform, 1)
  const headers = { Authorization: token, 'Content-Type': 'application/json' }
  let device = 0
  const requests = () => {
    const body = JSON.stringify({ external_id: `device ${device++}`, external_key: 'key' })
    return prepareRequest('POST', `/${domainId}/mapping`, headers, body)
  }
  const options = { port: platform.port, requests, connections: CONNECTIONS, durationMs: DURATION_MS, status: 201 }
  const results = await repeat(1, REPEATS, () => load(options))
  const rate = median(results.map((result) => result.perSecond))
  const latencies = results.flatMap((result) => result.latenciesMs)
  const p99 = percentile(latencies, 0.99)
  const refused = results.reduce((sum, result) => sum + result.refused, 0)
  return [
    { name, figure: perSecond(rate, 'devices'), target: perSecond(target, 'devices'), isReached: rate >= target },
    {
      name: '  latency',
      figure: `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(p99)}`,
      target: `p99 ${milliseconds(TARGET_P99_MS)}`,
      isReached: p99 < TARGET_P99_MS,
    },
    { name: '  refused', figure: String(refused), target: '0', isReached: refused === 0 },
  ]
}

async function imported(platform: Platform): Promise<Row> {
  const { token, domainId } = await prepareDevices(platform, 1)
  let file = 0
  const times = await repeat(1, REPEATS, async () => {
    file++
    const body = Array.from({ length: FILE_CLIENTS }, (_, index) => `client ${file} ${index}`).join('\n')
    const began = performance.now()
    const answer = await fetch(`http://127.0.0.1:${platform.port}/${domainId}/clients/import`, {
      method: 'POST',
      headers: { authorization: token, 'content-type': 'text/csv' },
      body,
    })
    if (answer.status !== 201) throw new Error(`import: ${answer.status} ${await answer.text()}`)
    await answer.arrayBuffer()
    return performance.now() - began
  })
  const figure = median(times)
  return {
    name: `a file of ${FILE_CLIENTS.toLocaleString('en')} clients`,
    figure: milliseconds(figure),
    target: milliseconds(TARGET_FILE_MS),
    isReached: figure < TARGET_FILE_MS,
  }
}

export async function benchProvision(): Promise<void> {
  const rows: Row[] = []
  for (const { name, x509, target } of CASES) {
    const dataDir = newDataDir()
    try {
      await using platform = await startPlatform(dataDir, { SKEIN_PROVISION_X509_PROVISIONING: x509 })
      rows.push(...(await provisioned(platform, name, target)))
      if (x509 === 'false') rows.push(await imported(platform))
    } finally {
      removeDataDir(dataDir)
    }
  }
  printTable(`Devices made by /mapping, ${CONNECTIONS} callers, loader on the same cores`, rows)
}
