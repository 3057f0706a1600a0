import { expect, test } from 'vitest'
import { TASK_STATE } from '#proto/index.ts'
import { WORKER_FACTS } from '../placement/worker-facts.ts'
import { WorkerSession } from '../placement/worker-session.ts'
import type { WorkerLink } from '../placement/worker-session.ts'
import { takeTogether } from './reconcile-runs.ts'
import type { BegunSession } from './reconcile-runs.ts'

/** It claims this many runs. */
function helloOf(key: number, claimed = 0): BegunSession {
  const running = Array.from({ length: claimed }, (_, index) => {
    const run = { id: `${key}-${index}`, attempt: 1, fence: 1 }
    return [run.id, { run, state: TASK_STATE.running }] as const
  })
  const session = new WorkerSession({ ...WORKER_FACTS, key }, 0, {} as WorkerLink)
  return { session, claims: { bootId: 'boot', running: new Map(running), spooled: new Map() }, leaseMs: 60_000 }
}

const keysOf = (hellos: readonly BegunSession[]) => hellos.map(({ session }) => session.key)

test('workers that were restarted and claim nothing count with the runs that they had', () => {
  const hellos = Array.from({ length: 100 }, (_, index) => helloOf(index))
  const held = new Map(hellos.map(({ session }) => [session.key, 800]))
  expect(keysOf(takeTogether(hellos, held))).toEqual([0, 1, 2, 3, 4, 5])
})

test('workers that claim more runs than they had count with what they claim', () => {
  const hellos = Array.from({ length: 10 }, (_, index) => helloOf(index, 2_000))
  expect(keysOf(takeTogether(hellos, new Map([[0, 1]])))).toEqual([0, 1])
})

test('a worker with more runs than the others together may have is alone', () => {
  const hellos = [helloOf(1), helloOf(2), helloOf(3)]
  expect(keysOf(takeTogether(hellos, new Map([[1, 20_000]])))).toEqual([1])
  expect(keysOf(takeTogether(hellos, new Map([[2, 20_000]])))).toEqual([1])
})

test('at most 100 workers are together, and each with one session', () => {
  const hellos = Array.from({ length: 150 }, (_, index) => helloOf(index))
  expect(takeTogether(hellos, new Map())).toHaveLength(100)
  const again = helloOf(0)
  expect(takeTogether([...hellos.slice(0, 3), again], new Map())).not.toContain(again)
})
