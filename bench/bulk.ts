/** Bulk calls, all or nothing: ten thousand clients, ten thousand channels, a hundred thousand connections. */
import { newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, perSecond, printTable, repeat } from './statistics.ts'
import type { Row } from './statistics.ts'

const ENTITIES = 10_000
const TARGET_ENTITIES_MS = 2000
const [CLIENTS, CHANNELS] = [1000, 100]
const TARGET_CONNECTIONS_MS = 5000
const REPEATS = 5

type Made = { clients?: { id: string }[]; channels?: { id: string }[] }

export async function benchBulk(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const { token, domainId } = await prepareDevices(platform, 1)
    const create = (type: 'clients' | 'channels', count: number) => {
      const items = Array.from({ length: count }, (_, index) => ({
        name: `${type} ${index}`,
        tags: ['bench'],
        metadata: { serial: index },
      }))
      return platform.call<Made>('POST', `/${domainId}/${type}/bulk`, items, token)
    }
    printTable('Bulk creation and connection over HTTP', [
      await measured(`${ENTITIES.toLocaleString('en')} clients`, ENTITIES, TARGET_ENTITIES_MS, () =>
        timed(() => create('clients', ENTITIES)),
      ),
      await measured(`${ENTITIES.toLocaleString('en')} channels`, ENTITIES, TARGET_ENTITIES_MS, () =>
        timed(() => create('channels', ENTITIES)),
      ),
      await measured(
        `${CLIENTS.toLocaleString('en')} clients with each of ${CHANNELS} channels`,
        CLIENTS * CHANNELS,
        TARGET_CONNECTIONS_MS,
        () => connect(platform, `/${domainId}/channels/connect`, token, create),
      ),
    ])
  } finally {
    removeDataDir(dataDir)
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

async function measured(name: string, items: number, targetMs: number, work: () => Promise<number>): Promise<Row> {
  const times = await repeat(1, REPEATS, work)
  const slowest = Math.max(...times)
  return {
    name,
    figure: `median ${milliseconds(median(times))}, slowest ${milliseconds(slowest)}, ${perSecond((items / median(times)) * 1000, 'rows')}`,
    target: milliseconds(targetMs),
    isReached: slowest < targetMs,
  }
}

/** Creates new clients and channels each time, so that every connection is written; creating them is not measured. */
async function connect(
  platform: Platform,
  path: string,
  token: string,
  create: (type: 'clients' | 'channels', count: number) => Promise<Made>,
): Promise<number> {
  const { clients = [] } = await create('clients', CLIENTS)
  const { channels = [] } = await create('channels', CHANNELS)
  const body = {
    client_ids: clients.map(({ id }) => id),
    channel_ids: channels.map(({ id }) => id),
    types: ['publish', 'subscribe'],
  }
  return await timed(() => platform.call('POST', path, body, token))
}
