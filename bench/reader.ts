/** Pages of the reader on a channel that holds many records. */
import { load, prepareRequest } from './http-load.ts'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const RECORDS_PER_MESSAGE = 100
const FILL_MS = 10_000
const FILL_CONNECTIONS = 32
const READ_MS = 3000

export async function benchReader(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { domainId, channelId, devices } = await prepareDevices(platform, 10)
    const path = `/m/${domainId}/c/${channelId}`
    const fill = devices.map((device, index) => {
      const records = Array.from({ length: RECORDS_PER_MESSAGE }, (_, place) => ({
        n: `m${place % 10}`,
        v: index + place,
        t: -place,
      }))
      return prepareRequest(
        'POST',
        path,
        { Authorization: `Client ${device.secret}`, 'Content-Type': 'application/senml+json' },
        JSON.stringify(records),
      )
    })
    const filled = await load({
      port: platform.port,
      requests: fill,
      connections: FILL_CONNECTIONS,
      durationMs: FILL_MS,
      status: 202,
    })
    const authorization = `Client ${devices[0]?.secret}`
    const rows: Row[] = []
    for (const [name, query] of [
      ['newest page of 10', '?limit=10'],
      ['newest page of 100', '?limit=100'],
      ['page of 100 of one name', '?limit=100&name=m3'],
      ['page at offset 1,000', '?limit=10&offset=1000'],
    ] as const) {
      const { latenciesMs, refused } = await load({
        port: platform.port,
        requests: [prepareRequest('GET', `${path}${query}`, { Authorization: authorization })],
        connections: 1,
        durationMs: READ_MS,
        status: 200,
      })
      rows.push({
        name,
        figure: `p50 ${milliseconds(median(latenciesMs))}, p99 ${milliseconds(percentile(latenciesMs, 0.99))}${refused > 0 ? `, ${refused} refused` : ''}`,
      })
    }
    printTable(
      `Reader, one connection, ${(filled.answered * RECORDS_PER_MESSAGE).toLocaleString('en')} records in the channel`,
      rows,
    )
  } finally {
    removeDataDir(dataDir)
  }
}
