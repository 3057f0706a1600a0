/** A fair queue over domains (task-manager.md section 4): requests of one domain do not delay another. */
import { describe, expect, test } from 'vitest'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { DomainQueue } from './domain-queue.ts'

const LIMITS = { maxUnderWay: 1, maxWaiting: 3, waitDeadlineMs: 60_000 }

/** Jobs that end when the test ends them. */
function aWorld(limits: Partial<typeof LIMITS> = {}) {
  const queue = new DomainQueue({ ...LIMITS, ...limits })
  const begun: string[] = []
  const ends = new Map<string, PromiseWithResolvers<void>>()
  return {
    queue,
    begun,
    ask(domain: string, key: string, signal = new AbortController().signal): Promise<void> {
      return queue.run(
        domain,
        key,
        async (left) => {
          begun.push(key)
          const end = Promise.withResolvers<void>()
          ends.set(key, end)
          left.addEventListener('abort', () => end.reject(left.reason), { once: true })
          await end.promise
        },
        signal,
      )
    },
    async end(key: string, error?: Error): Promise<void> {
      if (error === undefined) ends.get(key)?.resolve()
      else ends.get(key)?.reject(error)
      // The next job begins in the same turn of the event loop.
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
}

const kindOfRejection = async (work: Promise<unknown>) => await work.then(() => 'done', kindOf)

describe('work of several domains', () => {
  test('is done in turn: the first job of one domain precedes the second of another', async () => {
    const { ask, end, begun, queue } = aWorld()
    const all = [ask('a', 'a1'), ask('a', 'a2'), ask('a', 'a3'), ask('b', 'b1'), ask('c', 'c1'), ask('b', 'b2')]
    expect(['a1', 'a2', 'b1', 'c1', 'a3', 'b2'].map((key) => queue.positionOf(key))).toEqual([0, 1, 2, 3, 4, 5])
    for (const key of ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']) {
      expect(begun.at(-1)).toBe(key)
      await end(key)
    }
    await Promise.all(all)
    expect(queue.positionOf('a1')).toBeUndefined()
  })

  test('runs another domain while one job takes long, but no second job of the same domain', async () => {
    const { ask, end, begun } = aWorld({ maxUnderWay: 2 })
    const slow = [ask('slow', 's1'), ask('slow', 's2'), ask('slow', 's3')]
    expect(begun).toEqual(['s1'])
    const others = [ask('b', 'b1'), ask('c', 'c1')]
    expect(begun).toEqual(['s1', 'b1'])
    await end('b1')
    expect(begun).toEqual(['s1', 'b1', 'c1'])
    await end('s1')
    expect(begun.at(-1)).toBe('s2')
    for (const key of ['c1', 's2', 's3']) await end(key)
    await Promise.all([...slow, ...others])
  })

  test('is done once for all of its callers, at the first of their turns', async () => {
    const { ask, end, begun } = aWorld()
    const all = [ask('a', 'a1'), ask('a', 'a2'), ask('a', 'shared'), ask('b', 'shared'), ask('b', 'b2')]
    await end('a1')
    await end('a2')
    expect(begun).toEqual(['a1', 'a2', 'shared'])
    await end('shared')
    await end('b2')
    await Promise.all(all)
    expect(begun).toEqual(['a1', 'a2', 'shared', 'b2'])
  })

  test('is bounded for each domain, and refused at once beyond it', async () => {
    const { ask, end } = aWorld()
    const all = [ask('a', 'a1'), ask('a', 'a2'), ask('a', 'a3'), ask('a', 'a4')]
    await expect(ask('a', 'a5')).rejects.toMatchObject({
      kind: 'rate_limited',
      message: 'the component cannot be transpiled now: 3 components of the domain are queued already',
    })
    // A further request for a queued job takes no space, and another domain has its own limit.
    all.push(ask('a', 'a4'), ask('b', 'b1'))
    for (const key of ['a1', 'a2', 'b1', 'a3', 'a4']) await end(key)
    await Promise.all(all)
  })

  test('is rejected when it has waited for too long; a running job has a deadline of its own', async () => {
    const { ask, end, begun } = aWorld({ waitDeadlineMs: 20 })
    const first = ask('a', 'a1')
    expect(await kindOfRejection(ask('b', 'b1'))).toBe('rate_limited')
    await end('a1')
    await first
    expect(begun).toEqual(['a1'])
  })

  test('is aborted when its last caller leaves, and the next one begins', async () => {
    const { ask, end, begun, queue } = aWorld()
    const [leaving, waiting] = [new AbortController(), new AbortController()]
    const gone = new ServiceError('unavailable', 'gone')
    const both = [ask('a', 'a1', leaving.signal), ask('b', 'b1', waiting.signal)].map(kindOfRejection)
    const last = ask('c', 'c1')
    waiting.abort(gone)
    expect(await both[1]).toBe('unavailable')
    expect(queue.positionOf('c1')).toBe(1)
    leaving.abort(gone)
    expect(await both[0]).toBe('unavailable')
    // It is requested again while it still ends.
    const again = ask('a', 'a1')
    await end('a1')
    expect(begun).toEqual(['a1', 'c1'])
    await end('c1')
    await last
    expect(begun).toEqual(['a1', 'c1', 'a1'])
    await end('a1')
    await again
  })

  test('reports its failure to all callers, and continues with the next one', async () => {
    const { ask, end } = aWorld()
    const refused = [ask('a', 'a1'), ask('b', 'a1')].map(kindOfRejection)
    const next = ask('b', 'b1')
    await end('a1', new ServiceError('malformed', 'it is damaged'))
    expect(await Promise.all(refused)).toEqual(['malformed', 'malformed'])
    await end('b1')
    await next
  })
})
