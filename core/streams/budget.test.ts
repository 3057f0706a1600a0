import { expect, test } from 'vitest'
import { createStreamBudget } from './budget.ts'
import type { BudgetEntry, StreamBudget } from './budget.ts'

const KIB = 1024

const settled = () => Promise.resolve()

function newReader(budget: StreamBudget, bytes = 0) {
  const reader = {
    waitingBytes: bytes,
    keptBytes: 0,
    cuts: 0,
    whenCut: () => undefined as void,
    account: undefined as BudgetEntry | undefined,
    cut() {
      reader.cuts += 1
      reader.whenCut()
      reader.waitingBytes = 0
      // A connection that ends while it is being disconnected does this.
      reader.account?.update()
      reader.account?.close()
    },
    set(waitingBytes: number) {
      reader.waitingBytes = waitingBytes
      reader.account?.update()
    },
  }
  reader.account = budget.open(reader)
  return reader
}

test('within the budget no reader is disconnected, and delivered bytes are no longer counted', () => {
  const budget = createStreamBudget(1000 * KIB)
  const [one, other] = [newReader(budget), newReader(budget)]
  one.set(600 * KIB)
  other.set(400 * KIB)
  expect(budget.waitingBytes).toBe(1000 * KIB)
  one.set(0)
  other.account?.close()
  expect(budget).toMatchObject({ waitingBytes: 0, cuts: 0 })
})

test('the reader that has been behind for longest is disconnected first, not the one with the most waiting bytes', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const [slow, late, prompt] = [newReader(budget), newReader(budget), newReader(budget)]
  slow.set(200 * KIB)
  now = 1
  late.set(500 * KIB)
  now = 2000
  prompt.set(400 * KIB)
  await settled()
  expect([slow.cuts, late.cuts, prompt.cuts]).toEqual([1, 0, 0])
  expect(budget.waitingBytes).toBe(900 * KIB)
  expect(budget.cuts).toBe(1)
})

test('a reader that keeps pace is not disconnected, however long its stream is', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const [steady, stalled] = [newReader(budget), newReader(budget)]
  steady.set(60 * KIB)
  stalled.set(900 * KIB)
  now = 2000
  stalled.set(1000 * KIB)
  await settled()
  expect([steady.cuts, stalled.cuts]).toEqual([0, 1])
})

test('delivered bytes are recounted before a reader is disconnected', () => {
  const budget = createStreamBudget(1000 * KIB)
  const [one, other] = [newReader(budget), newReader(budget)]
  one.set(900 * KIB)
  one.waitingBytes = 0
  other.set(500 * KIB)
  expect(budget).toMatchObject({ waitingBytes: 500 * KIB, cuts: 0 })
})

test('many readers with few waiting bytes each are bounded too', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const readers = Array.from({ length: 100 }, () => newReader(budget))
  for (const reader of readers) reader.set(20 * KIB)
  await settled()
  expect(budget).toMatchObject({ waitingBytes: 2000 * KIB, cuts: 0 })
  readers[0]?.set(30 * KIB)
  await settled()
  // The grace period of a second applies up to twice the budget.
  expect(budget.waitingBytes).toBeLessThanOrEqual(1000 * KIB)
  for (const reader of readers) if (reader.cuts === 0) reader.set(30 * KIB)
  await settled()
  expect(budget.waitingBytes).toBeGreaterThan(1000 * KIB)
  now = 1000
  readers.at(-1)?.set(30 * KIB)
  await settled()
  expect(budget.waitingBytes).toBeLessThanOrEqual(1000 * KIB)
  expect(readers.filter(({ cuts }) => cuts === 0).length).toBeGreaterThan(20)
  expect(readers.every(({ cuts }) => cuts <= 1)).toBe(true)
})

test('shared bytes are counted once, and the reader with the most is disconnected', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const [one, other] = [newReader(budget), newReader(budget)]
  one.keptBytes = 600 * KIB
  other.keptBytes = 900 * KIB
  budget.keep(900 * KIB)
  one.set(50 * KIB)
  expect(budget).toMatchObject({ waitingBytes: 950 * KIB, cuts: 0 })
  other.whenCut = () => budget.keep(-300 * KIB)
  one.set(60 * KIB)
  budget.keep(100 * KIB)
  await settled()
  expect(budget.cuts).toBe(0)
  now = 1000
  one.set(60 * KIB)
  await settled()
  expect([one.cuts, other.cuts]).toEqual([0, 1])
  expect(budget.waitingBytes).toBe(760 * KIB)
})

test('a message that waits for many readers briefly disconnects no reader that keeps pace', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const readers = Array.from({ length: 9 }, () => newReader(budget))
  for (let message = 0; message < 10; message++) {
    for (const reader of readers) reader.set(200 * KIB)
    now += 300
    for (const reader of readers) reader.set(0)
    await settled()
  }
  expect(budget).toMatchObject({ waitingBytes: 0, cuts: 0 })
})
