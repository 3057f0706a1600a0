/** Lifecycle of a program: order, deadlines, failures (contract section 15, exit codes). */
import { describe, expect, test } from 'vitest'
import { createLifecycle, errorMessageOf } from './lifecycle.ts'
import { createLogger } from '../logging/index.ts'

const logger = createLogger({ name: 'test', level: 'silent' })

/** A part that records its start and stop. */
const part =
  (name: string, seen: string[], stop: () => Promise<void> = () => Promise.resolve()) =>
  () => {
    seen.push(`${name} starts`)
    return Promise.resolve({
      value: name,
      stop: async () => {
        seen.push(`${name} stops`)
        await stop()
      },
    })
  }

describe('a lifecycle', () => {
  test('stops parts in the reverse of the order in which they started, once', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    for (const name of ['a', 'b', 'c']) expect(await life.start(name, part(name, seen))).toBe(name)
    await Promise.all([life.stop(), life.stop()])
    expect(seen).toEqual(['a starts', 'b starts', 'c starts', 'c stops', 'b stops', 'a stops'])
    expect(await life.ended).toEqual({ exitCode: 0, failure: undefined })
  })

  test('a part that does not stop, or throws, does not block others and makes the exit code 1', async () => {
    const life = createLifecycle(logger, 10)
    const seen: string[] = []
    await life.start('a', part('a', seen))
    await life.start(
      'hung',
      part('hung', seen, () => new Promise(() => undefined)),
    )
    await life.start(
      'broken',
      part('broken', seen, () => Promise.reject(new Error('broken'))),
    )
    await life.stop()
    expect(seen.slice(3)).toEqual(['broken stops', 'hung stops', 'a stops'])
    expect((await life.ended).exitCode).toBe(1)
  })

  test('a stop waits for a part that is starting, stops it too, and rejects later starts', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    const up = Promise.withResolvers<void>()
    const starting = life.start('slow', async () => {
      await up.promise
      return await part('slow', seen)()
    })
    const refused = expect(starting).rejects.toThrow('the program is stopping')
    const stopped = life.stop()
    expect(life.signal.aborted).toBe(true)
    up.resolve()
    await stopped
    await refused
    expect(seen).toEqual(['slow starts', 'slow stops'])
    await expect(life.start('late', part('late', seen))).rejects.toThrow('the program is stopping')
    expect(seen).toHaveLength(2)
  })

  test('parts that start concurrently are all stopped by a stop between them', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    const up = Promise.withResolvers<void>()
    const slow = life.start('slow', async () => {
      await up.promise
      return await part('slow', seen)()
    })
    const quick = life.start('quick', part('quick', seen))
    const stopped = life.stop()
    up.resolve()
    await Promise.allSettled([slow, quick])
    await stopped
    expect(seen.toSorted()).toEqual(['quick starts', 'quick stops', 'slow starts', 'slow stops'])
  })

  test('a delayed stop is visible before parts stop; a failure is not delayed', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    await life.start('a', part('a', seen))
    life.delayStop(50)
    expect(life.isStopping).toBe(false)
    const stopped = life.stop()
    expect([life.isStopping, life.signal.aborted, seen]).toEqual([true, false, ['a starts']])
    await stopped
    expect(seen).toEqual(['a starts', 'a stops'])
    const failing = createLifecycle(logger)
    failing.delayStop(3_600_000)
    failing.fail(new Error('the database server is gone'))
    expect(failing.signal.aborted).toBe(true)
    expect((await failing.ended).exitCode).toBe(1)
  })

  test('after a part fails to start, earlier parts are stopped', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    await life.start('a', part('a', seen))
    await expect(life.start('b', () => Promise.reject(new Error('no port')))).rejects.toThrow('no port')
    await life.stop()
    expect(seen).toEqual(['a starts', 'a stops'])
  })

  test('a part that fails stops everything, and the first failure is reported', async () => {
    const life = createLifecycle(logger)
    const seen: string[] = []
    await life.start('a', part('a', seen))
    const reason = new Error('the database server is gone')
    life.fail(reason)
    life.fail(new Error('and so is this'))
    expect(await life.ended).toEqual({ exitCode: 1, failure: reason })
    expect(seen).toEqual(['a starts', 'a stops'])
  })

  test('work that ends because of the stop is not a failure', async () => {
    const life = createLifecycle(logger)
    const stopped = life.stop()
    life.fail(life.signal.reason)
    await stopped
    expect((await life.ended).exitCode).toBe(0)
  })
})

test('an error without a message is described by its causes', () => {
  const refused = new AggregateError([
    new Error('connect ECONNREFUSED ::1:5432'),
    new Error('connect ECONNREFUSED 127.0.0.1:5432'),
  ])
  expect(errorMessageOf(refused)).toBe('connect ECONNREFUSED ::1:5432; connect ECONNREFUSED 127.0.0.1:5432')
  expect(errorMessageOf(new TypeError(''))).toBe('TypeError')
  expect(errorMessageOf('text')).toBe('text')
})
