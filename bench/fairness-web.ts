/** What callers without credentials, and bulk calls of one domain, cost the others: `/health` and publishing beside them, and alone. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { flood } from './http-flood.ts'
import { load, prepareRequest } from './http-load.ts'
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, percentile, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const ALONE_MS = 4000
const BESIDE_MS = 4000
/** The flood begins before the measurement and ends after it. */
const LEAD_MS = 500
const STRANGERS = 16
const IMPORTS = 12
const IMPORTED = 10_000
/** Measured callers ask at this rate, as probes and devices do: one after the other, they would find the process awake. */
const PER_SECOND = 100
const TARGET_HEALTH_RATIO = 5
const TARGET_PUBLISH_RATIO = 3

/** The paths of public routes, as the reviewed list names them; without those that have parameters, redirect or need a token. */
function publicPaths(): string[] {
  const list = readFileSync(join(import.meta.dirname, '../test/architecture/public-routes.txt'), 'utf8')
  const listed = [...list.matchAll(/^GET (\/\S*) +public /gm)].map(([, path = '']) => path)
  const files = ['/docs/json', '/docs/yaml', '/docs/static/swagger-ui-bundle.js', '/docs/guides/tasks.md']
  return [...listed.filter((path) => !/[:*]/.test(path)), ...files]
}

const requestsOf = (paths: readonly string[]) => paths.map((path) => prepareRequest('GET', path, {}))

const figureOf = (latencies: readonly number[]) =>
  `p50 ${milliseconds(median(latencies))}, p99 ${milliseconds(percentile(latencies, 0.99))}`

type Measured = { name: string; alone: number; targetRatio: number; measure: (durationMs: number) => Promise<number[]> }

async function rowBeside({ name, alone, targetRatio, measure }: Measured, begin: () => Promise<number>): Promise<Row> {
  const others = begin()
  await new Promise((resolve) => setTimeout(resolve, LEAD_MS))
  const latencies = await measure(BESIDE_MS)
  const answered = await others
  const p99 = percentile(latencies, 0.99)
  return {
    name,
    figure: `${figureOf(latencies)}, ${answered.toLocaleString('en')} other answers`,
    ratio: `${(p99 / alone).toFixed(1)} times`,
    target: `${targetRatio} times`,
    isReached: p99 <= alone * targetRatio,
  }
}

async function measureHealth(platform: Platform, rows: Row[]): Promise<void> {
  const { port } = platform
  const requests = [prepareRequest('GET', '/health', {})]
  const measure = async (durationMs: number) =>
    (await load({ port, requests, connections: 1, durationMs, status: 200, perSecond: PER_SECOND })).latenciesMs
  await flood({ port, requests: requestsOf(publicPaths()), connections: 1, durationMs: LEAD_MS })
  await measure(LEAD_MS)
  const latencies = await measure(ALONE_MS)
  rows.push({ name: '/health alone', figure: figureOf(latencies) })
  const alone = percentile(latencies, 0.99)
  const durationMs = BESIDE_MS + 2 * LEAD_MS
  const single = ['/openapi.json', '/docs/json', '/docs/yaml', '/metrics'].map((path) => [path])
  for (const paths of [...single, publicPaths()]) {
    const what = paths.length === 1 ? (paths[0] as string) : 'every public path'
    const name = `/health beside ${STRANGERS} connections on ${what}`
    rows.push(
      await rowBeside({ name, alone, targetRatio: TARGET_HEALTH_RATIO, measure }, () =>
        flood({ port, requests: requestsOf(paths), connections: STRANGERS, durationMs }),
      ),
    )
  }
}

async function measurePublishing(platform: Platform, rows: Row[]): Promise<void> {
  const { port } = platform
  const { domainId, channelId, devices } = await prepareDevices(platform, 1)
  const other = await prepareDevices(platform, 1)
  const publish = prepareRequest(
    'POST',
    `/m/${domainId}/c/${channelId}`,
    { Authorization: `Client ${devices[0]?.secret}`, 'Content-Type': 'application/senml+json' },
    '[{"n":"level","v":1}]',
  )
  const measure = async (durationMs: number) =>
    (await load({ port, requests: [publish], connections: 1, durationMs, status: 202, perSecond: PER_SECOND }))
      .latenciesMs
  await measure(LEAD_MS)
  const latencies = await measure(ALONE_MS)
  rows.push({ name: 'publishing alone', figure: figureOf(latencies) })
  const alone = percentile(latencies, 0.99)
  const file = Array.from({ length: IMPORTED }, (_, index) => `pump ${index}\n`).join('')
  const durationMs = BESIDE_MS + 2 * LEAD_MS
  for (const query of ['?dry_run=true', '']) {
    const headers = { Authorization: other.token, 'Content-Type': 'text/csv' }
    const requests = [prepareRequest('POST', `/${other.domainId}/clients/import${query}`, headers, file)]
    const name = `publishing beside ${IMPORTS} ${query === '' ? 'imports' : 'dry runs of imports'} of another domain`
    rows.push(
      await rowBeside({ name, alone, targetRatio: TARGET_PUBLISH_RATIO, measure }, () =>
        flood({ port, requests, connections: IMPORTS, durationMs }),
      ),
    )
  }
}

export async function benchFairnessOfRequests(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const rows: Row[] = []
    await measureHealth(platform, rows)
    await measurePublishing(platform, rows)
    printTable('Fair shares of requests', rows)
  } finally {
    removeDataDir(dataDir)
  }
}
