/** A process of simulated workers, which the bench starts with `fork` and asks one question at a time. */
import { join } from 'node:path'
import { startRelay } from './http2-frames.ts'
import type { Wire } from './http2-frames.ts'
import { SAMPLED } from './orders.ts'
import type { Order, Report } from './orders.ts'
import { Gate, startSimulatedWorker } from './simulated-worker.ts'
import type { SimulatedWorker } from './simulated-worker.ts'

/** Workers that join at the same time. After a loss of the manager, all reconnect by themselves. */
const JOINING = 50

const workers: SimulatedWorker[] = []
const wire: Wire = { frames: 0, bytes: 0 }
const gate = new Gate()

async function joinAll({ address, token, folder, count, name }: Extract<Order, { do: 'join' }>): Promise<void> {
  const relayed = await startRelay(address, wire)
  let next = 0
  const joinNext = async () => {
    for (let index = next++; index < count; index = next++) {
      const worker = await startSimulatedWorker({
        address: index < SAMPLED ? relayed : address,
        token,
        folder: join(folder, `${name}-${index}`),
        name: `${name}-${index}`,
        gate,
      })
      workers.push(worker)
      await worker.joined
    }
  }
  await Promise.all(Array.from({ length: JOINING }, joinNext))
}

async function obey(order: Order): Promise<unknown> {
  switch (order.do) {
    case 'join':
      return await joinAll(order)
    case 'report': {
      const connected = workers.filter(({ membership }) => membership.isConnected).length
      return { connected, wire, calls: gate.calls.size } satisfies Report
    }
    case 'open':
      return gate.open()
    case 'calls':
      return [...gate.calls]
  }
}

process.on('message', (order: Order) => {
  void obey(order).then(
    (value) => process.send?.({ value }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.on('disconnect', () => process.exit())
