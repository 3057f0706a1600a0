/** Group commit: order, bounds and refused items (mechanisms sections 3 and 6). */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { ServiceError } from '../errors/index.ts'
import { createLogger } from '../logging/index.ts'
import type { Batch } from './batch-commit.ts'
import type { GroupCommitOptions } from './group-commit.ts'
import { GroupCommit } from './group-commit.ts'

const logger = createLogger({ name: 'test', level: 'silent' })

/** A queue of numbers whose batches end when the test completes them. */
function heldQueue(options: Partial<GroupCommitOptions<number, string>> = {}) {
  const batches: { items: readonly number[]; commit: () => void; fail: (error: unknown) => void }[] = []
  let arrived: (() => void) | undefined
  const queue = new GroupCommit<number, string>({
    name: 'numbers',
    item: 'the number',
    logger,
    maxItems: 3,
    maxQueuedItems: 100,
    ...options,
    commit({ items }) {
      const { promise, resolve, reject } = Promise.withResolvers<string[]>()
      batches.push({ items, commit: () => resolve(items.map((item) => `stored ${item}`)), fail: reject })
      arrived?.()
      return promise
    },
  })
  /** Resolves with the batch of this number when its write begins. */
  const batch = async (index: number) => {
    while (batches[index] === undefined) {
      await new Promise<void>((resolve) => {
        arrived = resolve
      })
    }
    return batches[index]
  }
  return { queue, batches, batch }
}

const kindOfRefusal = (promise: Promise<unknown>) =>
  promise.then(
    () => 'stored',
    (error: unknown) => (error instanceof ServiceError ? error.kind : error),
  )

describe('the queue of a group commit', () => {
  afterEach(() => void vi.useRealTimers())

  test('writes in the order of arrival, one batch at a time; items that arrive during a write join the next batch', async () => {
    const { queue, batches, batch } = heldQueue()
    const results = [1, 2, 3, 4].map((item) => queue.submit(item))
    const first = await batch(0)
    expect(first.items).toEqual([1, 2, 3])
    results.push(queue.submit(5))
    expect(batches).toHaveLength(1)
    expect(queue.pending).toBe(5)
    first.commit()
    const second = await batch(1)
    expect(second.items).toEqual([4, 5])
    second.commit()
    expect(await Promise.all(results)).toEqual([1, 2, 3, 4, 5].map((item) => `stored ${item}`))
    expect(queue.pending).toBe(0)
  })

  test('begins a concurrent batch when a quarter of its work waits, within the bound', async () => {
    const { queue, batches, batch } = heldQueue({ maxItems: 100, maxInFlight: 2, weightOf: (item) => item })
    const results = [3, 5].map((item) => queue.submit(item))
    const first = await batch(0)
    expect(first.items).toEqual([3, 5])
    results.push(queue.submit(1))
    await new Promise(setImmediate)
    expect(batches).toHaveLength(1)
    results.push(queue.submit(1))
    const second = await batch(1)
    expect(second.items).toEqual([1, 1])
    results.push(queue.submit(50))
    await new Promise(setImmediate)
    expect(batches).toHaveLength(2)
    expect(queue.pending).toBe(5)
    second.commit()
    const third = await batch(2)
    expect(third.items).toEqual([50])
    const closed = queue.close()
    third.commit()
    first.commit()
    await closed
    expect(await Promise.all(results)).toEqual([3, 5, 1, 1, 50].map((item) => `stored ${item}`))
    expect(queue.pending).toBe(0)
  })

  test('keeps the order over many thousand items and batches of any size', async () => {
    const written: number[] = []
    const queue = new GroupCommit<number, number>({
      name: 'numbers',
      item: 'the number',
      logger,
      maxItems: 700,
      maxQueuedItems: 20_000,
      commit: ({ items }) => {
        written.push(...items)
        return Promise.resolve(items)
      },
    })
    const items = Array.from({ length: 10_000 }, (_, index) => index)
    expect(await Promise.all(items.map((item) => queue.submit(item)))).toEqual(items)
    expect(written).toEqual(items)
  })

  test('ends a batch at its limit of bytes; a larger item is a batch of its own', async () => {
    const { queue, batch } = heldQueue({ maxItems: 10, maxBytes: 10, sizeOf: (item) => item })
    for (const item of [6, 5, 99, 1]) void queue.submit(item)
    for (const [index, items] of [[6], [5], [99], [1]].entries()) {
      const written = await batch(index)
      expect(written.items).toEqual(items)
      written.commit()
    }
    await queue.close()
    expect(queue.queuedBytes).toBe(0)
  })

  test('rejects items beyond the limits of count and bytes at once, and accepts items when there is room', async () => {
    const { queue, batch } = heldQueue({
      maxItems: 1,
      maxQueuedItems: 2,
      maxQueuedBytes: 100,
      sizeOf: (item) => item,
    })
    const stored = [queue.submit(1)]
    const first = await batch(0)
    stored.push(queue.submit(60))
    expect(await kindOfRefusal(queue.submit(60))).toBe('unavailable')
    stored.push(queue.submit(2))
    expect(await kindOfRefusal(queue.submit(3))).toBe('unavailable')
    first.commit()
    const second = await batch(1)
    stored.push(queue.submit(4))
    second.commit()
    for (const index of [2, 3]) (await batch(index)).commit()
    expect(await Promise.all(stored)).toHaveLength(4)
  })

  test('a write that throws fails its own batch only', async () => {
    const { queue, batch } = heldQueue({ maxItems: 2 })
    const outcomes = Promise.allSettled([1, 2, 3].map((item) => queue.submit(item)))
    const first = await batch(0)
    first.fail(new Error('connection lost'))
    const second = await batch(1)
    expect(second.items).toEqual([3])
    second.commit()
    expect((await outcomes).map((outcome) => outcome.status)).toEqual(['rejected', 'rejected', 'fulfilled'])
  })

  test('an error among the outcomes fails that item only; a wrong number of outcomes fails all', async () => {
    const answers: ((items: readonly number[]) => (string | Error)[])[] = [
      (items) => items.map((item) => (item === 2 ? new ServiceError('malformed', 'two') : `stored ${item}`)),
      () => [],
    ]
    const queue = new GroupCommit<number, string>({
      name: 'numbers',
      item: 'the number',
      logger,
      maxItems: 3,
      maxQueuedItems: 10,
      commit: ({ items }) => Promise.resolve((answers.shift() ?? (() => []))(items)),
    })
    const outcomes = await Promise.allSettled([1, 2, 3].map((item) => queue.submit(item)))
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    await expect(queue.submit(4)).rejects.toMatchObject({
      kind: 'internal',
      cause: expect.objectContaining({ message: '0 outcomes for 1 items' }),
    })
  })

  test('every close during a write waits for the accepted items, and new items are rejected', async () => {
    const { queue, batch } = heldQueue({ maxItems: 1 })
    const stored = [queue.submit(1), queue.submit(2)]
    const closings = [queue.close(), queue.close()]
    expect(await kindOfRefusal(queue.submit(3))).toBe('unavailable')
    for (const index of [0, 1]) (await batch(index)).commit()
    await Promise.all(closings)
    expect(await Promise.all(stored)).toEqual(['stored 1', 'stored 2'])
    await queue.close()
  })

  test('a caller that waits beyond the deadline gets timeout once, and the item is still written', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    const { queue, batch } = heldQueue({ maxItems: 1, answerDeadlineMs: 20 })
    const late = [queue.submit(1), queue.submit(2)].map(kindOfRefusal)
    await vi.advanceTimersByTimeAsync(20)
    expect(await Promise.all(late)).toEqual(['timeout', 'timeout'])
    const inTime = queue.submit(3)
    for (const index of [0, 1, 2]) (await batch(index)).commit()
    expect(await inTime).toBe('stored 3')
    expect(queue.pending).toBe(0)
  })
})

/** Errors of the driver. */
const away = () => Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' })
const sqlError = (code: string, constraint?: string) => Object.assign(new Error(code), { code, constraint })
const refusedData = () => sqlError('22021')
const deadlock = () => sqlError('40P01')

type NumberBatch = Batch<number, string>
const stored = (items: readonly number[]) => items.map((item) => `stored ${item}`)

/** A queue of numbers with scripted writes, and the batches of all attempts. */
function scriptedQueue(
  attempts: ((batch: NumberBatch) => readonly (string | Error)[])[],
  options: Partial<GroupCommitOptions<number, string>> = {},
) {
  const seen: { id: string; items: readonly number[]; isInDoubt: boolean; isShared: boolean }[] = []
  const queue = new GroupCommit<number, string>({
    name: 'numbers',
    item: 'the number',
    logger,
    maxItems: 10,
    maxQueuedItems: 100,
    isCommittedBefore: (error) => (error as { constraint?: string }).constraint === 'batches_key',
    ...options,
    commit: async (batch) => {
      const { id, items, isInDoubt, isShared } = batch
      seen.push({ id, items: [...items], isInDoubt, isShared })
      await Promise.resolve()
      return (attempts.shift() ?? (() => stored(items)))(batch)
    },
  })
  return {
    queue,
    seen,
    submitAll: (items: readonly number[]) => Promise.allSettled(items.map((item) => queue.submit(item))),
  }
}
const fail = (error: unknown) => () => {
  throw error
}
const failInDoubt = (error: unknown) => (batch: NumberBatch) => {
  batch.committing(batch.items.map((item) => `expected ${item}`))
  throw error
}
const outcomeOf = (one: PromiseSettledResult<string>) =>
  one.status === 'fulfilled' ? one.value : one.reason instanceof ServiceError ? one.reason.kind : String(one.reason)

describe('a batch in doubt', () => {
  test('keeps its id and is looked up; items committed by an earlier attempt are not written again', async () => {
    const { seen, submitAll } = scriptedQueue([failInDoubt(away()), fail(sqlError('23505', 'batches_key'))])
    expect((await submitAll([1, 2])).map(outcomeOf)).toEqual(['expected 1', 'expected 2'])
    expect(seen.map(({ isInDoubt }) => isInDoubt)).toEqual([false, true])
    expect(seen[0]?.id).toBe(seen[1]?.id)
  })

  test('is answered when what the look-up found is replicated', async () => {
    const steps: string[] = []
    const replicated = [
      () => Promise.reject(away()),
      () => {
        steps.push('replicated')
        return Promise.resolve()
      },
    ]
    const committed = fail(sqlError('23505', 'batches_key'))
    const { seen, submitAll } = scriptedQueue([failInDoubt(away()), committed, committed], {
      replicated: () => (replicated.shift() ?? fail(new Error('asked too often')))(),
    })
    expect((await submitAll([1])).map(outcomeOf)).toEqual(['expected 1'])
    expect(steps).toEqual(['replicated'])
    expect(seen.map(({ isInDoubt }) => isInDoubt)).toEqual([false, true, true])
  })

  test('is written again when the look-up finds no commit', async () => {
    const { seen, submitAll } = scriptedQueue([failInDoubt(away())])
    expect((await submitAll([1])).map(outcomeOf)).toEqual(['stored 1'])
    expect(seen).toHaveLength(2)
  })

  test('stays in doubt after an error before the look-up, and not after invalid data', async () => {
    const { seen, submitAll } = scriptedQueue([
      failInDoubt(away()),
      fail(deadlock()),
      fail(refusedData()),
      (batch) => stored(batch.items),
      fail(refusedData()),
    ])
    expect((await submitAll([1, 2])).map(outcomeOf)).toEqual(['stored 1', 'internal'])
    expect(seen.map(({ items, isInDoubt }) => [items, isInDoubt])).toEqual([
      [[1, 2], false],
      [[1, 2], true],
      [[1, 2], true],
      [[1], false],
      [[2], false],
    ])
  })

  test('is not in doubt when PostgreSQL answered that it is rolled back', async () => {
    const { seen, submitAll } = scriptedQueue([failInDoubt(deadlock())])
    expect((await submitAll([1])).map(outcomeOf)).toEqual(['stored 1'])
    expect(seen.map(({ isInDoubt }) => isInDoubt)).toEqual([false, false])
  })

  test('fails with timeout when its look-up is never answered', async () => {
    const { submitAll } = scriptedQueue(
      Array.from({ length: 50 }, () => failInDoubt(away())),
      { inDoubtMs: 150 },
    )
    const [outcome] = await submitAll([1])
    expect(outcome).toMatchObject({
      status: 'rejected',
      reason: { kind: 'timeout', message: 'the database did not say whether the number was stored' },
    })
  })
})

describe('an unavailable database', () => {
  test('rejects items without a retry time at once, before anything could be committed', async () => {
    const { seen, submitAll } = scriptedQueue([fail(away())])
    expect((await submitAll([1, 2])).map(outcomeOf)).toEqual(['unavailable', 'unavailable'])
    expect(seen).toHaveLength(1)
  })

  test('is awaited for items with a retry time; the others leave the batch with an error', async () => {
    const { seen, submitAll } = scriptedQueue([fail(away()), fail(away())], {
      retryMs: (item) => (item === 2 ? 0 : 60_000),
    })
    expect((await submitAll([1, 2, 3])).map(outcomeOf)).toEqual(['stored 1', 'unavailable', 'stored 3'])
    expect(seen.map(({ items }) => items)).toEqual([
      [1, 2, 3],
      [1, 3],
      [1, 3],
    ])
  })

  test('is no longer awaited when the program stops', async () => {
    const stopping = new AbortController()
    const { submitAll } = scriptedQueue(
      Array.from({ length: 50 }, () => () => {
        stopping.abort()
        throw away()
      }),
      { retryMs: () => 60_000, signal: stopping.signal },
    )
    expect((await submitAll([1])).map(outcomeOf)).toEqual(['unavailable'])
  })
})

describe('a batch that PostgreSQL rejects', () => {
  test('is halved until the invalid items are alone, in order, and all others are stored', async () => {
    const written: number[] = []
    const poisoned = new Set([3, 7])
    const halving = new GroupCommit<number, string>({
      name: 'numbers',
      item: 'the number',
      logger,
      maxItems: 10,
      maxQueuedItems: 100,
      refuseAlone: (item) => new ServiceError('malformed', `${item} is poison`),
      commit: ({ items }) => {
        if (items.some((item) => poisoned.has(item))) return Promise.reject(refusedData())
        written.push(...items)
        return Promise.resolve(stored(items))
      },
    })
    const outcomes = await Promise.allSettled([1, 2, 3, 4, 5, 6, 7, 8].map((item) => halving.submit(item)))
    expect(outcomes.map(outcomeOf)).toEqual([
      'stored 1',
      'stored 2',
      'malformed',
      'stored 4',
      'stored 5',
      'stored 6',
      'malformed',
      'stored 8',
    ])
    expect(written).toEqual([1, 2, 4, 5, 6, 8])
  })

  test('is repeated after a deadlock and after a repaired error, a limited number of times', async () => {
    const repaired: unknown[] = []
    const { seen, submitAll } = scriptedQueue([fail(deadlock()), fail(sqlError('23514'))], {
      repair: (error) => (error as { code?: string }).code === '23514' && repaired.push(error) > 0,
    })
    expect((await submitAll([1])).map(outcomeOf)).toEqual(['stored 1'])
    expect([seen.length, repaired.length]).toEqual([3, 1])
    const hopeless = scriptedQueue(Array.from({ length: 50 }, () => fail(deadlock())))
    expect((await hopeless.submitAll([1])).map(outcomeOf)).toEqual(['unavailable'])
    expect(hopeless.seen).toHaveLength(5)
  })
})

test('a repeated batch runs alone; other batches share when they may', async () => {
  const running: string[] = []
  const begun: string[] = []
  let failures = 1
  const queue = new GroupCommit<number, string>({
    name: 'numbers',
    item: 'the number',
    logger,
    maxItems: 1,
    maxQueuedItems: 100,
    maxInFlight: 2,
    mayShare: (items) => !items.includes(9),
    retryMs: () => 60_000,
    commit: async ({ items, isShared }) => {
      const name = `${items.join()} ${isShared ? 'shared' : 'alone'}`
      running.push(name)
      begun.push(name)
      if (!isShared) expect(running).toEqual([name])
      await new Promise(setImmediate)
      running.splice(running.indexOf(name), 1)
      if (items[0] === 1 && failures-- > 0) throw away()
      return stored(items)
    },
  })
  await Promise.all([1, 2, 9, 3, 4].map((item) => queue.submit(item)))
  expect(begun).toContain('1 alone')
  expect(begun).toContain('9 alone')
  expect(begun).toContain('3 shared')
})
