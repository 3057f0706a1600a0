import { expect, test } from 'vitest'
import { planBatches as plan } from './plan-batches.ts'

type Given = readonly [lane: string, limit?: number | null, bytes?: number]
const MAX_BYTES = 512 * 1024
const planBatches = (...given: [Parameters<typeof plan>[0], Parameters<typeof plan>[1], Parameters<typeof plan>[2]]) =>
  plan(...given, MAX_BYTES)
const IDLE = { lanes: new Set<string>(), runs: 0 }
const waiting = (...given: Given[]) =>
  given.map(([lane, limit = null, bytes = 100], key) => ({ key, lane, limit, bytes }))
const keys = (planned: ReturnType<typeof planBatches>) => planned.map((messages) => messages.map(({ key }) => key))

test('without an order the messages are divided as they came', () => {
  const all = waiting(['a'], ['a'], ['b'], ['a'], ['c'])
  expect(keys(planBatches({ batch: 2, ordering: null }, all, IDLE))).toEqual([[0, 1], [2, 3], [4]])
  expect(keys(planBatches({ batch: null, ordering: 'none' }, all, IDLE))).toEqual([[0], [1], [2], [3], [4]])
})

test('a batch that is not full waits while many runs have messages, and a full one does not', () => {
  const all = waiting(['a'], ['a'], ['b'])
  expect(keys(planBatches({ batch: 2, ordering: null }, all, { lanes: new Set(), runs: 8 }))).toEqual([[0, 1]])
})

test('messages of a client share a run or wait for it, those of other clients do not', () => {
  const all = waiting(['a'], ['a'], ['b'], ['a'], ['b'])
  expect(keys(planBatches({ batch: null, ordering: 'client' }, all, IDLE))).toEqual([[0], [2]])
  expect(keys(planBatches({ batch: 2, ordering: 'client' }, all, IDLE))).toEqual([
    [0, 1],
    [2, 4],
  ])
  const busy = { lanes: new Set(['a']), runs: 1 }
  expect(keys(planBatches({ batch: 3, ordering: 'client' }, all, busy))).toEqual([[2, 4]])
})

test('of a channel one run at a time has messages', () => {
  const all = waiting(['a'], ['b'], ['c'])
  expect(keys(planBatches({ batch: 2, ordering: 'channel' }, all, IDLE))).toEqual([[0, 1]])
  expect(planBatches({ batch: 2, ordering: 'channel' }, all, { lanes: new Set(['z']), runs: 1 })).toEqual([])
})

test('messages of a batch that failed run in smaller ones, among each other and in their order', () => {
  const all = waiting(['a', 2], ['a', 2], ['b', 2], ['b'], ['c'])
  expect(keys(planBatches({ batch: 4, ordering: null }, all, IDLE))).toEqual([[0, 1], [2], [3, 4]])
  expect(keys(planBatches({ batch: 4, ordering: 'client' }, all, IDLE))).toEqual([[0, 1], [2], [4]])
})

test('large messages are divided by their size, and one alone is never too large', () => {
  const all = waiting(['a', null, 400_000], ['a', null, 400_000], ['b', null, 900_000], ['b'])
  expect(keys(planBatches({ batch: 10, ordering: null }, all, IDLE))).toEqual([[0, 3], [1], [2]])
  expect(keys(planBatches({ batch: 10, ordering: 'client' }, all, IDLE))).toEqual([[0], [2]])
})
