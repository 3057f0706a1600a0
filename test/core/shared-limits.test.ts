/** Shared token buckets: one limit for all nodes or processes, and nobody who waits for a Redis that is away. */
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connectSharedLimits, createMemoryLimits } from '#core/limits/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import { newId } from '#core/ids.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { RedisServer, hasRedisServer } from './redis-server.ts'

/** So slow that nothing comes back while the test runs. */
const rule = { burst: 5, perMinute: 0.1 }

/** The promises of shared limits, whatever counts. `nodes` are two that share them. */
function behaveAsSharedLimits(nodes: () => readonly SharedLimits[]): void {
  test('many nodes together take as many tokens as the bucket holds, and get the time of the next one', async () => {
    const bucket = { name: newId(), rule }
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) => (nodes()[index % 2] as SharedLimits).take([bucket])),
    )
    expect(answers.filter((waitMs) => waitMs === 0)).toHaveLength(rule.burst)
    const refused = answers.filter((waitMs) => waitMs !== 0)
    for (const waitMs of refused) expect(waitMs).toSatisfy((ms: number) => ms > 590_000 && ms <= 600_000)
  })

  test('one token of each bucket is taken, or none', async () => {
    const [full, empty] = [
      { name: newId(), rule },
      { name: newId(), rule: { burst: 1, perMinute: 0.1 } },
    ]
    const [node] = nodes() as [SharedLimits]
    expect(await node.take([empty])).toBe(0)
    for (let attempt = 0; attempt < 10; attempt++) expect(await node.take([full, empty])).toBeGreaterThan(0)
    for (let attempt = 0; attempt < rule.burst; attempt++) expect(await node.take([full])).toBe(0)
    expect(await node.take([full])).toBeGreaterThan(0)
  })

  test('a returned token can be taken again, up to the size of the bucket', async () => {
    const bucket = { name: newId(), rule: { burst: 2, perMinute: 0.1 } }
    const [node] = nodes() as [SharedLimits]
    expect(await node.take([bucket])).toBe(0)
    for (let count = 0; count < 5; count++) node.refund([bucket])
    expect([await node.take([bucket]), await node.take([bucket])]).toEqual([0, 0])
    expect(await node.take([bucket])).toBeGreaterThan(0)
  })
}

test('a single process without Redis shares nothing; several of one machine share the count of their supervisor', async () => {
  expect(await connectSharedLimits(undefined, silentLogger)).toBeUndefined()
  const ofMachine = createMemoryLimits()
  expect(await connectSharedLimits(undefined, silentLogger, ofMachine)).toBe(ofMachine)
})

describe('limits in the memory of a supervisor', () => {
  const limits = createMemoryLimits()
  behaveAsSharedLimits(() => [limits, limits])

  test('tokens are refilled over time', async () => {
    let nowMs = 0
    const timed = createMemoryLimits(() => nowMs)
    const bucket = { name: 'a', rule: { burst: 1, perMinute: 60 } }
    expect(await timed.take([bucket])).toBe(0)
    expect(await timed.take([bucket])).toBe(1000)
    nowMs = 1000
    expect(await timed.take([bucket])).toBe(0)
  })
})

describe.skipIf(!hasRedisServer())('limits in Redis (needs redis-server)', () => {
  let redis: RedisServer
  let nodes: SharedLimits[]

  const connected = async (): Promise<SharedLimits> => {
    const limits = (await connectSharedLimits(redis.url, silentLogger)) as SharedLimits
    await until(async () => (await limits.take([{ name: newId(), rule }])) === 0, 'Redis answers')
    return limits
  }
  beforeAll(async () => {
    redis = await RedisServer.start()
    nodes = [await connected(), await connected()]
  })
  afterAll(async () => {
    for (const node of nodes) node.close()
    await redis[Symbol.asyncDispose]()
  })

  behaveAsSharedLimits(() => nodes)

  test('Redis receives a digest of the input, and a full bucket expires', async () => {
    const name = `typed-${newId()}`
    const client = createClient({ url: redis.url })
    await client.connect()
    try {
      // Full again after two seconds: long enough to be seen before on a busy machine.
      await (nodes[0] as SharedLimits).take([{ name, rule: { burst: 5, perMinute: 30 } }])
      expect((await client.keys('*')).filter((key) => key.includes('typed'))).toEqual([])
      const before = await client.dbSize()
      await until(async () => (await client.dbSize()) < before, 'the bucket is forgotten')
    } finally {
      client.destroy()
    }
  })

  test('while Redis is unavailable take returns undefined without a long wait; afterwards counting resumes', async () => {
    const [node] = nodes as [SharedLimits]
    const bucket = { name: newId(), rule }
    await redis.kill()
    await until(async () => (await node.take([bucket])) === undefined, 'nobody can be asked')
    expect(() => node.refund([bucket])).not.toThrow()
    await redis.begin()
    await until(async () => (await node.take([bucket])) === 0, 'it counts again')
  })
})
