/** Group commit: order, bounds and refusals (mechanisms sections 3 and 6). */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { ServiceError } from '../errors/index.ts'
import type { BatcherOptions } from './batcher.ts'
import { createBatcher } from './batcher.ts'

/** A batcher of numbers whose batches end when the test says so. */
function heldBatcher(options: Partial<BatcherOptions<number, string>> = {}) {
  const batches: { items: readonly number[]; commit: () => void; fail: (error: unknown) => void }[] = []
  let arrived: (() => void) | undefined
  const batcher = createBatcher<number, string>({
    name: 'numbers',
    maxItems: 3,
    maxQueuedItems: 100,
    ...options,
    write(items) {
      const { promise, resolve, reject } = Promise.withResolvers<string[]>()
      batches.push({ items, commit: () => resolve(items.map((item) => `stored ${item}`)), fail: reject })
      arrived?.()
      return promise
    },
  })
  /** Resolves with the batch of this number as soon as it is being written. */
  const batch = async (index: number) => {
    while (batches[index] === undefined) {
      await new Promise<void>((resolve) => {
        arrived = resolve
      })
    }
    return batches[index]
  }
  return { batcher, batches, batch }
}

const kindOfRefusal = (promise: Promise<unknown>) =>
  promise.then(
    () => 'stored',
    (error: unknown) => (error instanceof ServiceError ? error.kind : error),
  )

describe('a batcher', () => {
  afterEach(() => void vi.useRealTimers())

  test('writes in the order of arrival, one batch at a time, what arrives meanwhile in the next', async () => {
    const { batcher, batches, batch } = heldBatcher()
    const results = [1, 2, 3, 4].map((item) => batcher.submit(item))
    const first = await batch(0)
    expect(first.items).toEqual([1, 2, 3])
    results.push(batcher.submit(5))
    expect(batches).toHaveLength(1)
    expect(batcher.pending).toBe(5)
    first.commit()
    const second = await batch(1)
    expect(second.items).toEqual([4, 5])
    second.commit()
    expect(await Promise.all(results)).toEqual([1, 2, 3, 4, 5].map((item) => `stored ${item}`))
    expect(batcher.pending).toBe(0)
  })

  test('begins another batch beside one when a quarter of its work waits, and never more than it may', async () => {
    const { batcher, batches, batch } = heldBatcher({ maxItems: 100, maxInFlight: 2, weightOf: (item) => item })
    const results = [3, 5].map((item) => batcher.submit(item))
    const first = await batch(0)
    expect(first.items).toEqual([3, 5])
    results.push(batcher.submit(1))
    await new Promise(setImmediate)
    expect(batches).toHaveLength(1)
    results.push(batcher.submit(1))
    const second = await batch(1)
    expect(second.items).toEqual([1, 1])
    results.push(batcher.submit(50))
    await new Promise(setImmediate)
    expect(batches).toHaveLength(2)
    expect(batcher.pending).toBe(5)
    second.commit()
    const third = await batch(2)
    expect(third.items).toEqual([50])
    const closed = batcher.close()
    third.commit()
    first.commit()
    await closed
    expect(await Promise.all(results)).toEqual([3, 5, 1, 1, 50].map((item) => `stored ${item}`))
    expect(batcher.pending).toBe(0)
  })

  test('keeps the order over many thousand items and batches of any size', async () => {
    const written: number[] = []
    const batcher = createBatcher<number, number>({
      name: 'numbers',
      maxItems: 700,
      maxQueuedItems: 20_000,
      write: (items) => {
        written.push(...items)
        return Promise.resolve(items)
      },
    })
    const items = Array.from({ length: 10_000 }, (_, index) => index)
    expect(await Promise.all(items.map((item) => batcher.submit(item)))).toEqual(items)
    expect(written).toEqual(items)
  })

  test('ends a batch at its bound of bytes; an item above the bound is a batch of its own', async () => {
    const { batcher, batch } = heldBatcher({ maxItems: 10, maxBytes: 10, sizeOf: (item) => item })
    for (const item of [6, 5, 99, 1]) void batcher.submit(item)
    for (const [index, items] of [[6], [5], [99], [1]].entries()) {
      const written = await batch(index)
      expect(written.items).toEqual(items)
      written.commit()
    }
    await batcher.close()
    expect(batcher.queuedBytes).toBe(0)
  })

  test('refuses at once what exceeds the queue, by count and by bytes, and takes more when there is room', async () => {
    const { batcher, batch } = heldBatcher({
      maxItems: 1,
      maxQueuedItems: 2,
      maxQueuedBytes: 100,
      sizeOf: (item) => item,
    })
    const stored = [batcher.submit(1)]
    const first = await batch(0)
    stored.push(batcher.submit(60))
    expect(await kindOfRefusal(batcher.submit(60))).toBe('unavailable')
    stored.push(batcher.submit(2))
    expect(await kindOfRefusal(batcher.submit(3))).toBe('unavailable')
    first.commit()
    const second = await batch(1)
    stored.push(batcher.submit(4))
    second.commit()
    for (const index of [2, 3]) (await batch(index)).commit()
    expect(await Promise.all(stored)).toHaveLength(4)
  })

  test('a write that throws refuses its own batch and nothing else', async () => {
    const { batcher, batch } = heldBatcher({ maxItems: 2 })
    const outcomes = Promise.allSettled([1, 2, 3].map((item) => batcher.submit(item)))
    const first = await batch(0)
    first.fail(new Error('connection lost'))
    const second = await batch(1)
    expect(second.items).toEqual([3])
    second.commit()
    expect((await outcomes).map((outcome) => outcome.status)).toEqual(['rejected', 'rejected', 'fulfilled'])
  })

  test('an error among the outcomes refuses that item alone; a wrong number of outcomes refuses all', async () => {
    const answers: ((items: readonly number[]) => (string | Error)[])[] = [
      (items) => items.map((item) => (item === 2 ? new ServiceError('malformed', 'two') : `stored ${item}`)),
      () => [],
    ]
    const batcher = createBatcher<number, string>({
      name: 'numbers',
      maxItems: 3,
      maxQueuedItems: 10,
      write: (items) => Promise.resolve((answers.shift() ?? (() => []))(items)),
    })
    const outcomes = await Promise.allSettled([1, 2, 3].map((item) => batcher.submit(item)))
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    await expect(batcher.submit(4)).rejects.toThrow('0 outcomes for 1 items')
  })

  test('a close while it writes waits for everything taken, for every caller of it, and takes nothing more', async () => {
    const { batcher, batch } = heldBatcher({ maxItems: 1 })
    const stored = [batcher.submit(1), batcher.submit(2)]
    const closings = [batcher.close(), batcher.close()]
    expect(await kindOfRefusal(batcher.submit(3))).toBe('unavailable')
    for (const index of [0, 1]) (await batch(index)).commit()
    await Promise.all(closings)
    expect(await Promise.all(stored)).toEqual(['stored 1', 'stored 2'])
    await batcher.close()
  })

  test('who waits beyond the deadline is told so, once, and his item is written all the same', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    const { batcher, batch } = heldBatcher({ maxItems: 1, answerDeadlineMs: 20 })
    const late = [batcher.submit(1), batcher.submit(2)].map(kindOfRefusal)
    await vi.advanceTimersByTimeAsync(20)
    expect(await Promise.all(late)).toEqual(['timeout', 'timeout'])
    const inTime = batcher.submit(3)
    for (const index of [0, 1, 2]) (await batch(index)).commit()
    expect(await inTime).toBe('stored 3')
    expect(batcher.pending).toBe(0)
  })
})
