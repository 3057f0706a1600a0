import { expect, test } from 'vitest'
import { createStreamBudget } from './budget.ts'
import type { Account, StreamBudget } from './budget.ts'

const KIB = 1024

const settled = () => Promise.resolve()

function newReader(budget: StreamBudget, bytes = 0) {
  const reader = {
    waitingBytes: bytes,
    keptBytes: 0,
    cuts: 0,
    whenCut: () => undefined as void,
    account: undefined as Account | undefined,
    cut() {
      reader.cuts += 1
      reader.whenCut()
      reader.waitingBytes = 0
      // As a connection does that ends while it is disconnected.
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

test('within the budget nobody is disconnected, and what readers take is counted no more', () => {
  const budget = createStreamBudget(1000 * KIB)
  const [one, other] = [newReader(budget), newReader(budget)]
  one.set(600 * KIB)
  other.set(400 * KIB)
  expect(budget.waitingBytes).toBe(1000 * KIB)
  one.set(0)
  other.account?.close()
  expect(budget).toMatchObject({ waitingBytes: 0, cuts: 0 })
})

test('the reader that has been behind for the longest goes first, not the one with the most waiting', async () => {
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

test('a reader that keeps pace is spared however long it has been sent to', async () => {
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

test('what readers have taken unseen is looked at before anybody is disconnected', () => {
  const budget = createStreamBudget(1000 * KIB)
  const [one, other] = [newReader(budget), newReader(budget)]
  one.set(900 * KIB)
  one.waitingBytes = 0
  other.set(500 * KIB)
  expect(budget).toMatchObject({ waitingBytes: 500 * KIB, cuts: 0 })
})

test('many readers that each have little waiting are bounded too', async () => {
  let now = 0
  const budget = createStreamBudget(1000 * KIB, () => now)
  const readers = Array.from({ length: 100 }, () => newReader(budget))
  for (const reader of readers) reader.set(20 * KIB)
  await settled()
  expect(budget).toMatchObject({ waitingBytes: 2000 * KIB, cuts: 0 })
  readers[0]?.set(30 * KIB)
  await settled()
  // Twice the budget is the end of all patience; else a second is.
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

test('what is kept for many is counted once, and whoever is kept the most goes', async () => {
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

test('a message that waits for many for a moment disconnects nobody who keeps pace', async () => {
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
