// task-manager.md section 3, rule 9
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hashNeeds, memoryClassBytes, type RunNeeds } from '../model/needs.ts'
import { BACKLOG_TARGET_MS, capacityFor, selectWorker, unfitReason, type WorkerView } from './placement.ts'

const MIB = 1024 * 1024

function aWorker(changes: Partial<WorkerView> = {}): WorkerView {
  return {
    id: 'w1',
    domainId: null,
    labels: {},
    runtimes: ['core'],
    isPlatformOnly: false,
    memoryBytes: 1024 * MIB,
    isAlive: true,
    isSuspect: false,
    isDraining: false,
    slots: 2,
    backlog: 128,
    held: 0,
    lastPlaced: 0,
    ...changes,
  }
}

function someNeeds(changes: Partial<RunNeeds> = {}): RunNeeds {
  return { domainId: null, workerId: null, labels: {}, runtime: 'core', memoryBytes: 64 * MIB, ...changes }
}

const noFacts = () => ({ expectedMs: undefined, hasModule: false, recentFailures: 0 })

test('a worker that fits is not refused', () => {
  expect(
    unfitReason(someNeeds({ labels: { zone: 'north' } }), aWorker({ labels: { zone: 'north', gpu: 'no' } })),
  ).toBeUndefined()
})

test.each([
  [{ isAlive: false }, {}, 'dead'],
  [{ isSuspect: true }, {}, 'two heartbeats'],
  [{ isDraining: true }, {}, 'draining'],
  [{}, { workerId: 'w2' }, 'pinned to worker w2'],
  [{}, { labels: { zone: 'north' } }, 'label zone is not set, not north'],
  [{ labels: { zone: 'south' } }, { labels: { zone: 'north' } }, 'label zone is south, not north'],
  [{}, { runtime: 'component' }, 'does not run component modules, only core'],
  [{ memoryBytes: 32 * MIB }, {}, 'bytes of memory'],
  [{ domainId: 'd1' }, { domainId: 'd2' }, 'own domain only'],
  [{ domainId: 'd1' }, { domainId: null }, 'own domain only'],
  [{ isPlatformOnly: true }, { domainId: 'd1' }, 'SKEIN_WORKER_ISOLATION'],
] as const)('a worker %j is refused for %j with the reason "%s"', (worker, needs, reason) => {
  expect(unfitReason(someNeeds(needs), aWorker(worker))).toContain(reason)
})

test('a platform-only worker accepts tasks of no domain', () => {
  expect(unfitReason(someNeeds(), aWorker({ isPlatformOnly: true }))).toBeUndefined()
})

test('a platform worker accepts tasks of every domain', () => {
  expect(unfitReason(someNeeds({ domainId: 'd1' }), aWorker())).toBeUndefined()
})

test('a run of unknown length waits for a free slot, a short one can wait at the worker', () => {
  const full = aWorker({ held: 2 })
  expect(capacityFor(full, undefined)).toBe(0)
  expect(capacityFor(full, BACKLOG_TARGET_MS * 2)).toBe(0)
  expect(capacityFor(full, 10)).toBe(20)
  expect(capacityFor(full, 0.05)).toBe(128)
  expect(capacityFor(aWorker({ held: 130 }), 0.05)).toBe(0)
})

test('a worker with limited memory gets runs as far as their memory fits, short ones too', () => {
  const limited = (heldBytes: number) =>
    aWorker({ slots: 4, backlog: 128, runMemoryBytes: 160 * MIB, heldBytes, held: 1 })
  expect(capacityFor(limited(0), undefined, 64 * MIB)).toBe(2)
  expect(capacityFor(limited(64 * MIB), undefined, 64 * MIB)).toBe(1)
  expect(capacityFor(limited(64 * MIB), 1, 64 * MIB)).toBe(1)
  expect(capacityFor(limited(64 * MIB), undefined, 128 * MIB)).toBe(0)
  expect(capacityFor(limited(192 * MIB), undefined, 64 * MIB)).toBe(0)
  const open = aWorker({ id: 'w2', held: 1, slots: 2 })
  const facts = () => ({ ...noFacts(), memoryBytes: 128 * MIB })
  expect(selectWorker([limited(64 * MIB), open], facts)).toBe(open)
  expect(selectWorker([limited(64 * MIB)], facts)).toBeUndefined()
})

test('no worker is chosen when all are full', () => {
  expect(selectWorker([aWorker({ held: 2 }), aWorker({ id: 'w2', held: 3 })], noFacts)).toBeUndefined()
})

test('the less loaded worker is chosen, then the one with the module, then the one with fewer failures', () => {
  const workers = [aWorker({ id: 'busy', held: 1 }), aWorker({ id: 'idle' })]
  expect(selectWorker(workers, noFacts)?.id).toBe('idle')
  const cached = (worker: WorkerView) => ({ ...noFacts(), hasModule: worker.id === 'idle2' })
  expect(selectWorker([aWorker({ id: 'idle1' }), aWorker({ id: 'idle2' })], cached)?.id).toBe('idle2')
  const failed = (worker: WorkerView) => ({ ...noFacts(), recentFailures: worker.id === 'idle1' ? 1 : 0 })
  expect(selectWorker([aWorker({ id: 'idle1' }), aWorker({ id: 'idle2' })], failed)?.id).toBe('idle2')
})

test('ties rotate', () => {
  const workers = [aWorker({ id: 'a', slots: 9 }), aWorker({ id: 'b', slots: 9 }), aWorker({ id: 'c', slots: 9 })]
  const chosen: string[] = []
  for (let turn = 1; turn <= 6; turn++) {
    const worker = selectWorker(workers, noFacts) as WorkerView
    worker.held += 1
    worker.lastPlaced = turn
    chosen.push(worker.id)
  }
  expect(chosen).toEqual(['a', 'b', 'c', 'a', 'b', 'c'])
})

test('placing until no worker is chosen fills every slot and no more', () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ slots: fc.integer({ min: 0, max: 8 }), held: fc.integer({ min: 0, max: 8 }) }), {
        maxLength: 6,
      }),
      (shapes) => {
        const workers = shapes.map((shape, index) => aWorker({ id: `w${index}`, ...shape }))
        const room = workers.reduce((sum, worker) => sum + Math.max(worker.slots - worker.held, 0), 0)
        let placed = 0
        for (
          let worker = selectWorker(workers, noFacts);
          worker !== undefined;
          worker = selectWorker(workers, noFacts)
        ) {
          worker.held += 1
          worker.lastPlaced = ++placed
        }
        expect(placed).toBe(room)
      },
    ),
  )
})

test('equal needs share a queue whatever the order of labels, different ones do not', () => {
  const left = someNeeds({ labels: { a: '1', b: '2' } })
  const right = someNeeds({ labels: { b: '2', a: '1' } })
  expect(hashNeeds(left)).toBe(hashNeeds(right))
  expect(hashNeeds(left)).not.toBe(hashNeeds(someNeeds({ labels: { a: '1' } })))
})

test('memory classes are powers of two that hold the limit', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 * 1024 * MIB }), (limit) => {
      const size = memoryClassBytes(limit)
      expect(size).toBeGreaterThanOrEqual(limit)
      expect(Math.log2(size) % 1).toBe(0)
    }),
  )
})
