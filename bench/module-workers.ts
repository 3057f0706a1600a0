/**
 * Workers of `modules.ts` in a process of their own, as real workers are: each has a cache and a connection and downloads
 * with the worker's code. All begin at `go`; the answer is the time of each.
 */
import { createLogger } from '#core/logging/index.ts'
import { dialWithoutTls } from '#proto/index.ts'
import { ModuleCache, ProxySource } from '../worker/modules/index.ts'
import type { ModuleRequest } from '../worker/modules/index.ts'

export type Orders = { folder: string; wanted: ModuleRequest }[]
export type Took = { tookMs: number[]; cpuMs: number }

const DEADLINE_MS = 120_000
const logger = createLogger({ name: 'bench', level: 'silent' })

process.once('disconnect', () => process.exit(0))
process.once('message', (orders: Orders) => void prepare(orders))

async function prepare(orders: Orders): Promise<void> {
  const workers = await Promise.all(orders.map(openWorker))
  process.once('message', () => void go(workers))
  process.send?.('ready')
}

async function openWorker({ folder, wanted }: Orders[number]) {
  const proxy = new ProxySource({
    dial: () => Promise.resolve(dialWithoutTls()),
    managerAddress: () => wanted.sourceAddress,
  })
  const maxBytes = 2 * wanted.sizeBytes
  const cache = await ModuleCache.open({
    folder,
    maxBytes,
    maxModuleBytes: maxBytes,
    source: proxy.read.bind(proxy),
    logger,
  })
  return () => cache.get(wanted, AbortSignal.timeout(DEADLINE_MS))
}

async function go(workers: readonly (() => Promise<unknown>)[]): Promise<void> {
  const [beganMs, spent] = [performance.now(), process.cpuUsage()]
  const tookMs = await Promise.all(
    workers.map(async (get) => {
      await get()
      return performance.now() - beganMs
    }),
  )
  const { user, system } = process.cpuUsage(spent)
  process.send?.({ tookMs, cpuMs: (user + system) / 1000 } satisfies Took)
}
