// What is known without a query, and when a query is made.
import { expect, test, vi } from 'vitest'
import { createLogger } from '#core/logging/index.ts'
import { RefreshedUsage } from './refreshed-usage.ts'

const logger = createLogger({ name: 'test', level: 'silent' })

function usageOf(stored: Map<number, number>) {
  const reads: (readonly number[])[] = []
  const usage = new RefreshedUsage({
    logger,
    read: async (domains) => {
      reads.push(domains)
      // A copy: what changes meanwhile is not seen.
      const seen = new Map(stored)
      await Promise.resolve()
      return seen
    },
  })
  return { usage, reads }
}

test('the first question waits for a read, and later ones are answered from memory', async () => {
  const { usage, reads } = usageOf(new Map([[1, 5]]))
  expect(usage.peek(1)).toBeUndefined()
  expect(await usage.find(1)).toBe(5)
  expect(await usage.find(1)).toBe(5)
  expect(usage.peek(1)).toBe(5)
  expect(reads).toEqual([[1]])
})

test('an absent domain uses nothing, and domains that are asked about together are read together', async () => {
  const { usage, reads } = usageOf(new Map([[2, 7]]))
  const first = usage.find(1)
  const found = await Promise.all([first, usage.find(2), usage.find(3)])
  expect(found).toEqual([0, 7, 0])
  expect(reads).toEqual([[1], [2, 3]])
})

test('changes of this process are added, those during a read too', async () => {
  const { usage } = usageOf(new Map([[1, 5]]))
  await usage.find(1)
  usage.add(1, 2)
  expect(usage.peek(1)).toBe(7)
  usage.add(1, -20)
  expect(usage.peek(1)).toBe(0)
})

test('a caller who is refused otherwise waits for a newer figure, if the last one is a second old', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    const stored = new Map([[1, 5]])
    const { usage, reads } = usageOf(stored)
    expect(await usage.findNewer(1)).toBe(5)
    stored.set(1, 4)
    expect([await usage.findNewer(1), reads.length]).toEqual([5, 1])
    vi.advanceTimersByTime(1500)
    expect(await usage.find(1), 'from memory, and read again').toBe(5)
    expect(await usage.findNewer(1)).toBe(4)
    stored.set(1, 3)
    vi.advanceTimersByTime(1500)
    expect([await usage.findNewer(1), reads.length]).toEqual([3, 3])
  } finally {
    vi.useRealTimers()
  }
})

test('a caller who is refused otherwise waits for a figure that was read after what this process changed', async () => {
  const stored = new Map([[1, 5]])
  const { usage, reads } = usageOf(stored)
  await usage.find(1)
  stored.set(1, 6)
  usage.add(1, 1)
  expect([await usage.find(1), reads.length]).toEqual([6, 1])
  expect([await usage.findNewer(1), reads.length]).toEqual([6, 2])
  expect([await usage.findNewer(1), reads.length], 'nothing has changed').toEqual([6, 2])
  stored.set(1, 3)
  usage.removed(1)
  expect([await usage.find(1), reads.length], 'never too low').toEqual([6, 2])
  expect([await usage.findNewer(1), reads.length]).toEqual([3, 3])
})

test('what is added while the figure is read, and is in it already, is not counted twice for a caller who is refused otherwise', async () => {
  const stored = new Map([[1, 5]])
  const { usage } = usageOf(stored)
  const found = usage.find(1)
  await found
  usage.add(1, 0)
  stored.set(1, 6)
  const newer = usage.findNewer(1)
  usage.add(1, 1)
  await newer
  expect(await usage.findNewer(1)).toBe(6)
})

test('without the database there is no figure, and the next question does not ask it at once again', async () => {
  let reads = 0
  const usage = new RefreshedUsage<number>({
    logger,
    read: () => {
      reads += 1
      return Promise.reject(new Error('the database is away'))
    },
  })
  expect(await usage.find(1)).toBeUndefined()
  expect(await usage.find(1)).toBeUndefined()
  expect(reads).toBe(1)
})

test('a read that failed is repeated after twenty times as long as it took, and no more than a minute', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    let reads = 0
    const usage = new RefreshedUsage({
      logger,
      read: () => {
        reads++
        vi.advanceTimersByTime(reads === 1 ? 2_000 : 30_000)
        return Promise.reject(new Error('the database did not answer in time'))
      },
    })
    const ask = async (afterMs: number) => {
      vi.advanceTimersByTime(afterMs)
      await usage.find(1)
      return reads
    }
    expect([await ask(0), await ask(39_000), await ask(1_100)]).toEqual([1, 1, 2])
    expect([await ask(59_000), await ask(1_100)]).toEqual([2, 3])
  } finally {
    vi.useRealTimers()
  }
})
