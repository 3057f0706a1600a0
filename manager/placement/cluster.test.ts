// How many runs a worker gets beyond its slots: only those of a function whose runs are known to be short.
import { expect, test } from 'vitest'
import { Cluster } from './cluster.ts'
import { WorkerSession } from './worker-session.ts'
import { WORKER_FACTS } from './worker-facts.ts'

const NEEDS = { workerId: null, labels: {}, runtime: 'core', memoryBytes: 2 ** 26 }

function clusterWithWorker() {
  const cluster = new Cluster({ maxTasks: 10, maxNeeds: 10, maxFunctions: 10 })
  const link = { close: () => undefined } as unknown as ConstructorParameters<typeof WorkerSession>[2]
  const session = new WorkerSession(WORKER_FACTS, 0, link)
  cluster.add(session)
  const needs = cluster.storeNeeds({ ...NEEDS, domainId: 'a' })
  const run = (taskKey: number, fields: { digest?: string; called?: string } = {}) => {
    const { digest = 'sha256:1', called = 'add' } = fields
    return { taskKey, digest, needs, spec: { function: null, called, task_name: `task ${taskKey}` } } as never
  }
  /** Placed until the worker takes no more. */
  const placed = (one: never, at = needs) => {
    let count = 0
    while (count < 100 && cluster.place(at, one) !== undefined) count++
    for (let left = count; left > 0; left--) cluster.release(session)
    return count
  }
  return { cluster, session, needs, run, placed }
}

test('a new task of a function whose runs are short gets a place in the backlog; of another function or module it does not', () => {
  const { cluster, session, run, placed } = clusterWithWorker()
  expect(placed(run(1))).toBe(1)
  cluster.recordEnd(run(1), session, 1, false)
  expect(placed(run(2))).toBe(11)
  expect(placed(run(2, { called: 'other' }))).toBe(1)
  expect(placed(run(2, { digest: 'sha256:2' }))).toBe(1)
})

test('a long run of the function counts at once, and a task is expected to last as its own runs did', () => {
  const { cluster, session, run, placed } = clusterWithWorker()
  cluster.recordEnd(run(1), session, 1, false)
  cluster.recordEnd(run(2), session, 5_000, false)
  expect(placed(run(3))).toBe(1)
  expect(placed(run(1))).toBe(11)
})

test('runs of one domain say nothing about those of another', () => {
  const { cluster, session, run, placed } = clusterWithWorker()
  cluster.recordEnd(run(1), session, 1, false)
  const others = cluster.storeNeeds({ ...NEEDS, domainId: 'b' })
  expect(placed(run(2), others)).toBe(1)
})
