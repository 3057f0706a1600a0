import { expect, test } from 'vitest'
import { WaitingMessages } from './waiting-messages.ts'

const LIMITS = { maxInProgress: 10, maxOfDomain: 4, maxOfStep: 3 }
const [MANY, OTHER, THIRD] = [1, 2, 3]

const range = (from: number, count: number) => Array.from({ length: count }, (_, index) => from + index)
const due = (share: number | null, keys: readonly number[], isCut = false) => ({ share, keys, isCut })

test('a domain with thousands of messages has its share in progress, and the next message of another one is in the next step', () => {
  const waiting = new WaitingMessages(LIMITS)
  waiting.add([due(MANY, range(1, 10_000))], true)
  expect(waiting.take()).toEqual([1, 2, 3])
  expect(waiting.take()).toEqual([4])
  expect(waiting.hasNext).toBe(false)
  expect(waiting.hasWaiting).toBe(true)
  waiting.add([due(OTHER, [20_000])], false)
  expect(waiting.hasNext).toBe(true)
  expect(waiting.take()).toEqual([20_000])
  expect(waiting.take()).toEqual([])
})

test('domains take turns, those with fewer in progress first, and each in the order of its messages', () => {
  const waiting = new WaitingMessages({ ...LIMITS, maxOfStep: 5 })
  waiting.add([due(MANY, range(1, 100)), due(OTHER, range(201, 2)), due(null, range(301, 100))], true)
  const first = waiting.take()
  expect(first).toEqual([1, 201, 301, 2, 202])
  expect(waiting.take()).toEqual([302, 3, 303, 4, 304])
  expect(waiting.hasNext).toBe(false)
  waiting.end(first)
  expect(waiting.take()).toEqual([5, 305, 6])
})

test('when all room is taken, what ends is given to the domain that has nothing in progress', () => {
  const waiting = new WaitingMessages({ maxInProgress: 8, maxOfDomain: 4, maxOfStep: 8 })
  waiting.add([due(MANY, range(1, 100)), due(OTHER, range(201, 100))], true)
  const all = waiting.take()
  expect(all).toEqual([1, 201, 2, 202, 3, 203, 4, 204])
  waiting.add([due(THIRD, [900])], false)
  expect(waiting.take()).toEqual([])
  waiting.end([1])
  expect(waiting.take()).toEqual([900])
})

test('what is in progress or known is not taken twice, however often it is found', () => {
  const waiting = new WaitingMessages(LIMITS)
  waiting.add([due(MANY, [1, 2, 3, 4, 5])], true)
  const step = waiting.take()
  waiting.add([due(MANY, [1, 2, 3, 4, 5, 6])], true)
  expect(waiting.take()).toEqual([4])
  waiting.end(step)
  expect(waiting.take()).toEqual([5, 6])
})

test('newer messages of a domain wait behind those that a look left out, until a look at all of them', () => {
  const waiting = new WaitingMessages({ ...LIMITS, maxOfDomain: 10 })
  waiting.add([due(MANY, [1, 2, 3], true)], true)
  waiting.add([due(MANY, [9])], false)
  const step = waiting.take()
  expect(step).toEqual([1, 2, 3])
  expect(waiting.lacksSome).toBe(true)
  waiting.end(step)
  expect(waiting.lacksSome).toBe(true)
  waiting.add([due(MANY, [4, 5, 9])], true)
  expect(waiting.lacksSome).toBe(false)
  expect(waiting.take()).toEqual([4, 5, 9])
})
