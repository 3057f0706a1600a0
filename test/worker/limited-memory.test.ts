/** A worker whose memory is limited (SKEIN_WORKER_MEMORY): which runs begin, which processes there are. */
import { describe, expect, test } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { sleep } from '#core/time.ts'
import { WORKER_SETTINGS } from '#worker/index.ts'
import { shareMemory } from '../../worker/identity/memory.ts'
import { JoinedWorker } from './joined-worker.ts'
import { exampleBytes, startPool, until } from './pool.ts'
import type { RunOptions, TestPool } from './pool.ts'

const MIB = 1024 * 1024
const memory = shareMemory(256 * MIB)

const limitedPool = (idleMs = 60_000) => startPool({ slots: 4, runners: 1, memory, idleMs })
const underWay = ({ pool }: TestPool) => pool.stats().runners.reduce((sum, one) => sum + one.underWay, 0)

/** Begins a run that ends when it is stopped. */
function begin(host: TestPool, options: RunOptions) {
  const abort = new AbortController()
  let hasStarted = false
  const outcome = host.run('endless', { ...options, onStarted: () => (hasStarted = true) }, abort.signal)
  return {
    get hasStarted() {
      return hasStarted
    },
    stop: async () => {
      abort.abort()
      await outcome
    },
  }
}

describe('runs', () => {
  test('begin as far as their limits fit, and the next when one has ended', async () => {
    await using host = await limitedPool()
    const [one, two, three] = [64, 64, 64].map((mib) => begin(host, { memoryLimitBytes: mib * MIB }))
    await until(() => underWay(host) === 2)
    expect(host.pool.stats()).toMatchObject({ waiting: 1, runners: [{ underWay: 2 }] })
    await one?.stop()
    await until(() => three?.hasStarted === true)
    await Promise.all([two?.stop(), three?.stop()])
  })

  test('that are small do not pass a large one that waits for memory', async () => {
    await using host = await limitedPool()
    const first = begin(host, { memoryLimitBytes: 64 * MIB })
    await until(() => first.hasStarted)
    const large = begin(host, { memoryLimitBytes: 128 * MIB })
    const small = begin(host, { memoryLimitBytes: 8 * MIB })
    await until(() => host.pool.stats().waiting === 2)
    await sleep(500)
    expect([large.hasStarted, small.hasStarted]).toEqual([false, false])
    await first.stop()
    await until(() => large.hasStarted)
    // Beside a run of 128 MiB there is room for one of 8 MiB.
    await until(() => small.hasStarted)
    await Promise.all([large.stop(), small.stop()])
  })

  test('that are larger than all memory begin when they are alone', async () => {
    await using host = await limitedPool()
    const small = begin(host, { memoryLimitBytes: 64 * MIB })
    await until(() => small.hasStarted)
    const huge = begin(host, { memoryLimitBytes: 1024 * MIB })
    await until(() => host.pool.stats().waiting === 1)
    expect(huge.hasStarted).toBe(false)
    await small.stop()
    await until(() => huge.hasStarted)
    await huge.stop()
  })

  test('of another domain get the memory of a runner that is idle', async () => {
    await using host = await startPool({ slots: 4, runners: 1, memory: { ...memory, runnersBytes: 100 * MIB } })
    expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
    const [before] = host.pool.stats().runners
    expect(await host.run('add', { inputs: [2, 2], domain: 'south' })).toMatchObject({ results: [4] })
    expect(host.pool.stats().runners.map(({ pid }) => pid)).not.toContain(before?.pid)
    expect(host.pool.stats().runners).toHaveLength(1)
  })

  test.each([64, 128])('of four domains at once, of %s MiB each, all end', async (mebibytes) => {
    await using host = await limitedPool()
    const domains = ['north', 'south', 'east', 'west']
    const runs = domains.flatMap((domain) =>
      [1, 2, 3].map((n) => host.run('add', { inputs: [n, n], domain, memoryLimitBytes: mebibytes * MIB })),
    )
    for (const outcome of await Promise.all(runs)) expect(outcome).toMatchObject({ state: 'completed' })
  })
})

test('no runner is started before the first run, none waits unused, and the last one leaves', async () => {
  await using host = await limitedPool(50)
  expect(host.pool.stats().runners).toEqual([])
  expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
  expect(host.pool.stats().runners).toHaveLength(1)
  await until(() => host.pool.stats().runners.length === 0)
})

describe('the setting', () => {
  test('sets the memory, the slots and the backlog of the registration, and the memory of Hello', async () => {
    await using joined = await JoinedWorker.start({ SKEIN_WORKER_MEMORY: '256MiB', SKEIN_WORKER_SLOTS: '8' })
    expect(joined.manager.registrations.at(-1)).toMatchObject({
      memoryBytes: BigInt(160 * MIB),
      slots: 2,
      backlog: 0,
    })
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ runMemoryBytes: BigInt(160 * MIB) })
    joined.manager.assign(exampleBytes('add'), 'run-1', { inputsJson: '[1,2]' })
    expect(await joined.manager.result('run-1')).toMatchObject({ resultsJson: '[3]' })
  })

  test('is 0 in Hello without it', async () => {
    await using joined = await JoinedWorker.start()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ runMemoryBytes: 0n })
  })

  test.each(['100MiB', '0', '-1', 'much'])('%s is refused with the least value', (value) => {
    expect(() => readConfig(WORKER_SETTINGS, { SKEIN_WORKER_MEMORY: value })).toThrow(
      `SKEIN_WORKER_MEMORY must be a size of at least ${160 * MIB} bytes`,
    )
  })
})
