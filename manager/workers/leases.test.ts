// A heartbeat that read the row of a worker before a drain or a resume does not undo it.
import { expect, test } from 'vitest'
import type { Database } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { DEFAULT_TIMING } from '../model/timing.ts'
import { Cluster } from '../placement/cluster.ts'
import { WorkerSession } from '../placement/worker-session.ts'
import type { RunWriter } from '../writer/writer.ts'
import { LeaseMonitor } from './leases.ts'
import { WORKER_FACTS } from '../placement/worker-facts.ts'

/** A worker whose next heartbeat reads `draining` of its row; `during` runs before the answer arrives. */
async function afterBeat(draining: boolean, during: (session: WorkerSession) => void): Promise<boolean[]> {
  const told: boolean[] = []
  const link = { drain: (isAsked: boolean) => void told.push(isAsked) }
  const session = new WorkerSession(WORKER_FACTS, 0, link as unknown as ConstructorParameters<typeof WorkerSession>[2])
  const cluster = new Cluster({ maxTasks: 10, maxNeeds: 10, maxFunctions: 10 })
  cluster.add(session)
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>()
  const db = {
    query: () => {
      during(session)
      answer()
      return Promise.resolve({ rows: [{ key: WORKER_FACTS.key, draining }] })
    },
  }
  const leases = new LeaseMonitor({
    database: { db } as unknown as Database,
    cluster,
    writer: {} as RunWriter,
    timing: { ...DEFAULT_TIMING, leaseWriteIntervalMs: 5 },
    managerId: 'm1',
    logger: createLogger({ name: 'leases', level: 'silent' }),
  })
  leases.beat(session)
  await answered
  await leases.stop()
  return told
}

test('a drain that another manager received is applied with the next heartbeat', async () => {
  expect(await afterBeat(true, () => undefined)).toEqual([true])
})

test('a heartbeat that read the row before a drain does not undo it', async () => {
  expect(await afterBeat(false, (session) => session.sendDrain(true))).toEqual([true])
})
