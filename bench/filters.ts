/**
 * Ingest beside the filters of many triggers, none of which meets a message: processor time of all processes for a message, in turns with a
 * platform without triggers.
 */
import { load, prepareRequest } from './http-load.ts'
import { cpuMs, memoryMiB, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, printTable } from './statistics.ts'

const FILTERS = 200_000
const CHANNELS = 200
const CREATORS = 32
const DEVICES = 64
const ROUNDS = 5
const ROUND_MS = 5000
const CREATION_DEADLINE_MS = 600_000
/** What creations leave to be done is done by then. */
const SETTLE_MS = 10_000
const MAX_RATIO = 1.05

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

type Side = { platform: Platform; requests: Buffer[]; domainId: string; token: string; costsUs: number[] }

async function prepare(platform: Platform): Promise<Side> {
  const { domainId, channelId, devices, token } = await prepareDevices(platform, DEVICES)
  const requests = devices.map(({ secret }, index) =>
    prepareRequest(
      'POST',
      `/m/${domainId}/c/${channelId}`,
      { Authorization: `Client ${secret}`, 'Content-Type': 'application/senml+json' },
      JSON.stringify([{ bn: 'device:', n: 'temperature', u: 'Cel', v: index }]),
    ),
  )
  return { platform, requests, domainId, token, costsUs: [] }
}

/** Tasks whose triggers are on other channels of the same domain, with subtopics of their own. */
async function createFilters({ platform, domainId, token }: Side): Promise<void> {
  const channels = await Promise.all(
    Array.from({ length: CHANNELS }, () => platform.call<{ id: string }>('POST', `/${domainId}/channels`, {}, token)),
  )
  const requests = (turn: number) => {
    if (turn >= FILTERS) return undefined
    const trigger = { channel_id: channels[turn % CHANNELS]?.id, subtopic: `line-${turn}` }
    const task = { name: `rule-${turn}`, domain_id: domainId, trigger }
    const headers = { Authorization: token, 'Content-Type': 'application/json' }
    return prepareRequest('POST', '/tasks', headers, JSON.stringify(task))
  }
  const { port } = platform
  const options = { port, requests, connections: CREATORS, durationMs: CREATION_DEADLINE_MS, status: 201 }
  const { answered, refused } = await load(options)
  if (answered < FILTERS) throw new Error(`${answered} of ${FILTERS} triggers were created, ${refused} refused`)
}

async function measure({ platform, requests, costsUs }: Side): Promise<void> {
  const before = cpuMs(platform.pid)
  const { answered } = await load({
    port: platform.port,
    requests,
    connections: DEVICES,
    durationMs: ROUND_MS,
    status: 202,
  })
  const after = cpuMs(platform.pid)
  costsUs.push(((after.own - before.own + after.below - before.below) / answered) * 1000)
}

export async function benchFilters(): Promise<void> {
  const folders = [newDataDir(), newDataDir()] as const
  try {
    await using bare = await startPlatform(folders[0])
    await using filtered = await startPlatform(folders[1])
    const sides = [await prepare(bare), await prepare(filtered)] as const
    await createFilters(sides[1])
    await pause(SETTLE_MS)
    for (let round = 0; round < ROUNDS; round++) for (const side of sides) await measure(side)
    const [without, beside] = sides.map(({ costsUs }) => median(costsUs)) as [number, number]
    const rows = [
      { name: 'processor time of a message', figure: `${without.toFixed(1)} µs` },
      {
        name: `  beside ${FILTERS.toLocaleString('en')} triggers on other channels`,
        figure: `${beside.toFixed(1)} µs, ${(beside / without).toFixed(2)} times`,
        target: `${MAX_RATIO} times`,
        isReached: beside / without <= MAX_RATIO,
      },
      { name: '  memory of all processes', figure: `${Math.round(memoryMiB(filtered.pid))} MiB` },
    ]
    printTable('Ingest beside filters', rows)
  } finally {
    for (const folder of folders) removeDataDir(folder)
  }
}
