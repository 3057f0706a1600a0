/** Hints between processes: fast where possible, and nothing depends on their arrival (mechanisms section 2). */
import { describe, expect, test } from 'vitest'
import { MAX_HINT_BYTES, createLocalBus } from '#core/bus/index.ts'
import type { Bus, HintPeers } from '#core/bus/index.ts'
import { createRedisBus } from '#core/bus/redis.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { RedisServer, hasRedisServer } from './redis-server.ts'
import { Writable } from 'node:stream'

const bytes = (text: string) => Buffer.from(text)

/** What arrives at a subscriber. */
function heard(bus: Bus, topic: string) {
  const hints: string[] = []
  const end = bus.subscribe(topic, (payload) => hints.push(Buffer.from(payload).toString()))
  return { hints, end }
}

/** Publishes until the hint arrives: a subscription in Redis takes effect a moment after it was asked for. */
async function arrives(from: Bus, topic: string, at: { hints: string[] }, mark: string): Promise<void> {
  await until(() => {
    from.publish(topic, bytes(mark))
    return at.hints.includes(mark)
  }, `${mark} arrives`)
}

/** The promises of every bus, whatever carries it. */
function behavesAsABus(create: () => Promise<Bus>): void {
  test('a hint reaches every subscriber of its topic in this process, each once and in order, and no other', async () => {
    const bus = await create()
    const [one, two, other] = [heard(bus, 'a'), heard(bus, 'a'), heard(bus, 'b')]
    for (const text of ['1', '2', '3']) bus.publish('a', bytes(text))
    expect(one.hints).toEqual([])
    await until(() => two.hints.length === 3, 'the hints arrive')
    expect([one.hints, two.hints, other.hints]).toEqual([['1', '2', '3'], ['1', '2', '3'], []])
    await bus.close()
  })

  test('an ended subscription receives no hints, and ending it twice ends no other subscription', async () => {
    const bus = await create()
    const first = heard(bus, 'a')
    first.end()
    const second = heard(bus, 'a')
    first.end()
    bus.publish('a', bytes('1'))
    await until(() => second.hints.length === 1, 'the hint arrives')
    expect(first.hints).toEqual([])
    await bus.close()
  })

  test('a hint that is too large is dropped and counted', async () => {
    const bus = await create()
    const one = heard(bus, 'a')
    bus.publish('a', Buffer.alloc(MAX_HINT_BYTES + 1))
    bus.publish('a', bytes('small'))
    await until(() => one.hints.length === 1, 'the small one arrives')
    expect(one.hints).toEqual(['small'])
    expect(bus.dropped).toBeGreaterThanOrEqual(1)
    await bus.close()
  })

  test('closing the bus twice and publishing afterwards have no effect', async () => {
    const bus = await create()
    await bus.close()
    await bus.close()
    bus.publish('a', bytes('late'))
  })
}

describe('the bus within a process', () => {
  behavesAsABus(() => Promise.resolve(createLocalBus()))
})

describe('the bus of the processes of one machine', () => {
  const alone: HintPeers = { send: () => true, listen: () => undefined, isConnected: true }
  behavesAsABus(() => Promise.resolve(createLocalBus(alone)))

  test('hints reach the other processes once, and hints that could not be sent to a process are counted', async () => {
    const sent: string[] = []
    let deliver: (topic: string, payload: Uint8Array) => void = () => undefined
    const bus = createLocalBus({
      send: (topic, payload) => sent.push(`${topic} ${Buffer.from(payload).toString()}`) < 3,
      listen: (handler) => void (deliver = handler),
      isConnected: false,
    })
    const mine = heard(bus, 'a')
    for (const text of ['1', '2', '3']) bus.publish('a', bytes(text))
    deliver('a', bytes('theirs'))
    deliver('b', bytes('of another topic'))
    await until(() => mine.hints.length === 4, 'the hints arrive')
    expect(sent).toEqual(['a 1', 'a 2', 'a 3'])
    expect([bus.dropped, bus.isConnected]).toEqual([1, false])
    expect(mine.hints.toSorted()).toEqual(['1', '2', '3', 'theirs'])
    await bus.close()
    deliver('a', bytes('late'))
    expect(mine.hints).toHaveLength(4)
  })
})

describe('the bus over an unavailable Redis', () => {
  // Port 9 is "discard": nobody listens there.
  behavesAsABus(() => createRedisBus({ url: 'redis://127.0.0.1:9', logger: silentLogger }))

  test('reports once that Redis is unavailable, without the address, which contains its password', async () => {
    const lines: string[] = []
    const stream = new Writable({ write: (chunk: Buffer, _encoding, done) => (lines.push(chunk.toString()), done()) })
    const bus = await createRedisBus({
      url: 'redis://user:hunter2@127.0.0.1:9',
      logger: createLogger({ name: 'test', level: 'info', stream }),
    })
    await until(() => lines.length >= 2, 'both connections are missed')
    expect(lines.every((line) => line.includes('Redis is unavailable'))).toBe(true)
    expect(lines.join('')).not.toContain('hunter2')
    await bus.close()
  })

  test.each(['nonsense hunter2', 'http://hunter2@host', 'redis//:hunter2@host'])(
    'refuses %j as its address without repeating it',
    async (url) => {
      const refusal: unknown = await createRedisBus({ url, logger: silentLogger }).catch((error: unknown) => error)
      expect(refusal).toBeInstanceOf(ServiceError)
      expect(String(refusal)).toContain('SKEIN_REDIS_URL must be an address such as')
      expect(JSON.stringify(refusal)).not.toContain('hunter2@')
    },
  )
})

describe.skipIf(!hasRedisServer())('the bus over Redis (needs redis-server)', () => {
  test('hints reach other processes, and no process gets one twice', async () => {
    await using server = await RedisServer.start()
    const [here, there] = await Promise.all([1, 2].map(() => createRedisBus({ url: server.url, logger: silentLogger })))
    if (here === undefined || there === undefined) throw new Error('two buses')
    const [mine, theirs] = [heard(here, 'a'), heard(there, 'a')]
    await arrives(here, 'a', theirs, 'ready')
    await arrives(there, 'a', mine, 'ready too')
    mine.hints.length = 0
    here.publish('a', bytes('once'))
    await until(() => theirs.hints.includes('once'), 'it arrives there')
    // A hint that came back through Redis would have arrived before this one does.
    await arrives(there, 'a', mine, 'after')
    expect(mine.hints.filter((hint) => hint === 'once')).toEqual(['once'])
    await Promise.all([here.close(), there.close()])
  })

  test('a killed Redis loses hints but fails no calls, and hints flow again when it is back', async () => {
    await using server = await RedisServer.start()
    const here = await createRedisBus({ url: server.url, logger: silentLogger })
    const there = await createRedisBus({ url: server.url, logger: silentLogger })
    const [mine, theirs] = [heard(here, 'a'), heard(there, 'a')]
    await arrives(here, 'a', theirs, 'before')
    await server.kill()
    await until(() => {
      here.publish('a', bytes('while away'))
      return here.dropped > 0
    }, 'hints are dropped and counted')
    expect(theirs.hints).not.toContain('while away')
    await until(() => mine.hints.includes('while away'), 'its own process still hears them')
    const late = heard(there, 'b')
    await server.begin()
    await arrives(here, 'a', theirs, 'after')
    await arrives(here, 'b', late, 'subscribed while away')
    await Promise.all([here.close(), there.close()])
  })
})
