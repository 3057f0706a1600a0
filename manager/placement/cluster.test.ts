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
    for (let left = count; left > 0; left--) cluster.release(session, NEEDS.memoryBytes)
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

test('the memory of a limited worker is held from the placement of a run to its end, and free again afterwards', () => {
  const MIB = 2 ** 20
  const cluster = new Cluster({ maxTasks: 10, maxNeeds: 10, maxFunctions: 10 })
  const link = { close: () => undefined, assign: () => undefined } as unknown as ConstructorParameters<
    typeof WorkerSession
  >[2]
  const session = new WorkerSession({ ...WORKER_FACTS, slots: 4, runMemoryBytes: 160 * MIB }, 0, link)
  cluster.add(session)
  const place = (id: string, mebibytes: number) => {
    const needs = cluster.storeNeeds({ ...NEEDS, domainId: 'a', memoryBytes: mebibytes * MIB })
    const spec = { function: null, called: 'add', task_name: 'task', memory_limit_bytes: (mebibytes - 1) * MIB }
    const run = { id, fence: 1, taskKey: 1, digest: 'sha256:1', needs, spec } as never
    const placed = cluster.place(needs, run)
    return { run, isPlaced: placed !== undefined }
  }
  const [one, two, three] = [place('1', 64), place('2', 64), place('3', 64)]
  expect([one.isPlaced, two.isPlaced, three.isPlaced, session.heldBytes]).toEqual([true, true, false, 128 * MIB])
  cluster.assign(session, one.run)
  cluster.release(session, 64 * MIB)
  expect([session.heldBytes, place('4', 128).isPlaced]).toEqual([64 * MIB, false])
  // It is confirmed again, as after a reconnection.
  session.runs.set('1', one.run)
  expect(session.heldBytes).toBe(64 * MIB)
  session.runs.delete('1')
  session.runs.delete('1')
  expect([session.heldBytes, place('4', 128).isPlaced, session.heldBytes]).toEqual([0, true, 128 * MIB])
  cluster.release(session, 128 * MIB)
  session.runs.set('1', one.run)
  session.runs.clear()
  expect([session.heldBytes, session.held]).toEqual([0, 0])
})
