/** What happens to a run and to its neighbours when a thread or a runner ends (task-manager.md section 4). */
import { describe, expect, test } from 'vitest'
import { moduleFromText, startPool, until } from './pool.ts'
import type { TestPool } from './pool.ts'

const MIB = 1024 * 1024

/** The one runner of a pool, once `count` calls are under way in it. */
async function runnerWith(host: TestPool, count: number): Promise<number> {
  const find = () => host.pool.stats().runners.find(({ underWay }) => underWay === count)
  await until(() => find() !== undefined)
  return find()?.pid ?? 0
}

describe('stopping', () => {
  test('ends an active call and frees its slot', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    const abort = new AbortController()
    const run = host.run('endless', { onStarted: () => abort.abort() }, abort.signal)
    expect(await run).toMatchObject({ state: 'stopped' })
    expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
  })

  test('ends a waiting call without disturbing the active one', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    const first = new AbortController()
    const running = host.run('endless', {}, first.signal)
    await runnerWith(host, 1)
    const second = new AbortController()
    const waiting = host.run('add', { inputs: [1, 2] }, second.signal)
    second.abort()
    expect(await waiting).toEqual({ state: 'stopped', durationMs: 0 })
    expect(host.pool.stats().runners[0]?.underWay).toBe(1)
    first.abort()
    expect(await running).toMatchObject({ state: 'stopped' })
  })

  test('of the pool ends everything and leaves no process', async () => {
    const host = await startPool()
    const runs = [host.run('endless'), host.run('endless'), host.run('endless')]
    await until(() => host.pool.stats().runners.reduce((sum, { underWay }) => sum + underWay, 0) === 3)
    const pids = host.pool.stats().runners.map(({ pid }) => pid)
    await host[Symbol.asyncDispose]()
    for (const outcome of await Promise.all(runs)) expect(outcome.state).toBe('stopped')
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH')
    await expect(host.pool.run({} as never)).rejects.toThrow('shutting down')
  })
})

describe('a runner that dies', () => {
  test('by kill -9 returns its active runs, and the pool continues', async () => {
    await using host = await startPool({ slots: 2, runners: 1 })
    const runs = [host.run('endless'), host.run('endless')]
    process.kill(await runnerWith(host, 2), 'SIGKILL')
    for (const outcome of await Promise.all(runs)) expect(outcome).toMatchObject({ state: 'requeue' })
    expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
  })

  test('affects no run in another runner', async () => {
    await using host = await startPool({ slots: 2, runners: 2 })
    const abort = new AbortController()
    const first = host.run('endless', {}, abort.signal)
    const victim = await runnerWith(host, 1)
    const second = host.run('endless', {}, abort.signal)
    await until(() => host.pool.stats().runners.filter(({ underWay }) => underWay === 1).length === 2)
    process.kill(victim, 'SIGKILL')
    expect(await first).toMatchObject({ state: 'requeue' })
    expect(host.pool.stats().runners.some(({ underWay }) => underWay === 1)).toBe(true)
    abort.abort()
    expect(await second).toMatchObject({ state: 'stopped' })
  })

  test('six times with one module fails it: three times with others, three times alone', async () => {
    await using host = await startPool({ slots: 2, runners: 1 })
    for (let death = 0; death < 3; death++) {
      const runs = [host.run('endless'), host.run('endless')]
      process.kill(await runnerWith(host, 2), 'SIGKILL')
      for (const outcome of await Promise.all(runs)) expect(outcome.state).toBe('requeue')
    }
    for (let death = 0; death < 3; death++) {
      const started = Promise.withResolvers<void>()
      const run = host.run('endless', { onStarted: started.resolve })
      const neighbour = host.run('add', { inputs: [1, 2] })
      // It runs alone: the other run was before it, or waits for its end. This one is killed in either order.
      await started.promise
      const pid = await runnerWith(host, 1)
      process.kill(pid, 'SIGKILL')
      const outcome = await run
      expect(outcome).toMatchObject(death < 2 ? { state: 'requeue' } : { state: 'failed', reason: 'trap' })
      expect(['completed', 'requeue']).toContain((await neighbour).state)
    }
  })

  test('because of its memory ends the only run in it with oom', async () => {
    const eater = await moduleFromText(`(module (table 1000000 funcref) (elem declare func $f) (func $f)
      (func (export "run") (table.fill (i32.const 0) (ref.func $f) (i32.const 1000000)) (loop $again (br $again))))`)
    let idleBytes = 0
    {
      await using plain = await startPool({ slots: 1, runners: 1 })
      await plain.run('add', { inputs: [1, 2] })
      idleBytes = plain.pool.stats().runners[0]?.residentBytes ?? 0
    }
    // Beside what an idle runner takes, 16 MiB are allowed for the thread and 1 MiB for the run: the table takes more.
    await using host = await startPool({ slots: 1, runners: 1, overheadBytes: idleBytes })
    const outcome = await host.run(eater, { memoryLimitBytes: MIB })
    expect(outcome).toMatchObject({
      state: 'failed',
      reason: 'oom',
      error: expect.stringContaining('resident memory') as string,
    })
    expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
  })
})

test('runs are returned when runner processes do not start', async () => {
  // No code lies there: each process ends before it serves.
  await using host = await startPool({ slots: 1, runners: 1, codeFolder: '/nonexistent' })
  expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({
    state: 'requeue',
    cause: expect.stringContaining('failed to start a runner process') as string,
  })
})

describe('sharing', () => {
  test('many short runs each return their own result', async () => {
    await using host = await startPool({ slots: 2, runners: 2 })
    const outcomes = await Promise.all(Array.from({ length: 500 }, (_, n) => host.run('add', { inputs: [n, 1] })))
    expect(outcomes.map((outcome) => (outcome.state === 'completed' ? outcome.results : outcome))).toEqual(
      Array.from({ length: 500 }, (_, n) => [n + 1]),
    )
  })

  test('a short run does not wait for a long one of the same module', async () => {
    await using host = await startPool({ slots: 2, runners: 1 })
    const module = await moduleFromText(`(module (func (export "run") (param $forever i32)
      (loop $again (br_if $again (local.get $forever)))))`)
    // The module is known as short when one of its runs turns out to be endless.
    for (let run = 0; run < 5; run++) await host.run(module, { inputs: [0] })
    const abort = new AbortController()
    const endless = host.run(module, { inputs: [1] }, abort.signal)
    const short = await Promise.all(Array.from({ length: 20 }, () => host.run(module, { inputs: [0] })))
    expect(short.every(({ state }) => state === 'completed')).toBe(true)
    abort.abort()
    expect(await endless).toMatchObject({ state: 'stopped' })
  })

  test('short runs use the free runner while an endless run occupies the other one', async () => {
    await using host = await startPool({ slots: 2, runners: 2 })
    const runners = () => host.pool.stats().runners.filter(({ underWay }) => underWay > 0).length
    // Both runners know the module, and that it is short.
    const first = new AbortController()
    const both = [host.run('endless', {}, first.signal), host.run('endless', {}, first.signal)]
    await until(() => runners() === 2)
    first.abort()
    await Promise.all(both)
    await Promise.all(Array.from({ length: 200 }, (_, n) => host.run('add', { inputs: [n, 1] })))
    for (let round = 0; round < 4; round++) {
      const abort = new AbortController()
      const endless = host.run('endless', {}, abort.signal)
      await until(() => runners() === 1)
      for (let run = 0; run < 10; run++) {
        const short = await host.run('add', { inputs: [run, 1] }, AbortSignal.timeout(10_000))
        expect(short).toMatchObject({ state: 'completed', results: [run + 1] })
      }
      abort.abort()
      expect(await endless).toMatchObject({ state: 'stopped' })
    }
  })

  test('runs of two domains are active in different runners', async () => {
    await using host = await startPool({ slots: 4, runners: 2 })
    const abort = new AbortController()
    const north = [host.run('endless', {}, abort.signal), host.run('endless', {}, abort.signal)]
    await until(() => host.pool.stats().runners.reduce((sum, { underWay }) => sum + underWay, 0) === 2)
    const before = new Set(
      host.pool
        .stats()
        .runners.filter(({ underWay }) => underWay > 0)
        .map(({ pid }) => pid),
    )
    const south = host.run('endless', { domain: 'south' }, abort.signal)
    await until(() => host.pool.stats().runners.reduce((sum, { underWay }) => sum + underWay, 0) === 3)
    const servedBy = host.pool
      .stats()
      .runners.filter(({ underWay }) => underWay > 0)
      .map(({ pid }) => pid)
    expect(servedBy.filter((pid) => !before.has(pid))).toHaveLength(1)
    abort.abort()
    for (const outcome of await Promise.all([...north, south])) expect(outcome.state).toBe('stopped')
  })

  test('a runner serves its first domain and never another', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    const runnerOf = async (domain: string) => {
      const abort = new AbortController()
      const run = host.run('endless', { domain }, abort.signal)
      const pid = await runnerWith(host, 1)
      abort.abort()
      expect(await run).toMatchObject({ state: 'stopped' })
      return pid
    }
    const north = await runnerOf('north')
    const south = await runnerOf('south')
    expect(south).not.toBe(north)
    expect(await runnerOf('north')).toBe(north)
    expect(await runnerOf('south')).toBe(south)
  })

  test('more domains than runners are served one after the other, with a spare runner for the next', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    for (let domain = 0; domain < 20; domain++) {
      expect(await host.run('add', { domain: `domain ${domain}`, inputs: [domain, 1] })).toMatchObject({
        results: [domain + 1],
      })
      expect(host.pool.stats().runners.length).toBeLessThanOrEqual(16)
    }
  })

  test('a domain with many short runs does not keep another from the only slot', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    let hasEnded = false
    const flood = async () => {
      while (!hasEnded) await host.run('add', { inputs: [1, 2] })
    }
    const floods = Array.from({ length: 20 }, flood)
    expect(await host.run('add', { domain: 'south', inputs: [2, 2] })).toMatchObject({ results: [4] })
    hasEnded = true
    await Promise.all(floods)
  })

  test('a run does not wait for all short runs of another domain that arrived before it', async () => {
    await using host = await startPool({ slots: 1, runners: 1 })
    // Both domains have a runner, and the runs are known as short.
    for (const domain of ['north', 'south'])
      for (let run = 0; run < 5; run++) await host.run('add', { domain, inputs: [1, 2] })
    let ended = 0
    const flood = Array.from({ length: 1000 }, async () => {
      await host.run('add', { inputs: [1, 2] })
      ended++
    })
    expect(await host.run('add', { domain: 'south', inputs: [2, 2] })).toMatchObject({ results: [4] })
    // Those that its thread already held, and what ended in the meantime.
    expect(ended).toBeLessThan(500)
    await Promise.all(flood)
  })

  test('runs beyond the slots wait and all end', async () => {
    await using host = await startPool({ slots: 2, runners: 2 })
    const runs = Array.from({ length: 6 }, () => host.run('endless', { timeoutMs: 50 }))
    for (const outcome of await Promise.all(runs)) expect(outcome).toMatchObject({ reason: 'timeout' })
  })
})

test('a run beside one whose start section never ends does not wait for a process that starts slowly', async () => {
  await using host = await startPool({ slots: 2, runners: 2, level: 'process' })
  const options = { domain: 'd', timeoutMs: 600_000 }
  // Every process after the first one is stopped before it is ready.
  const stopped = new Set<number>()
  const timer = setInterval(() => {
    for (const { pid } of host.pool.stats().runners.slice(1)) {
      if (stopped.has(pid)) continue
      stopped.add(pid)
      process.kill(pid, 'SIGSTOP')
    }
  }, 1)
  try {
    expect(await host.run('add', { ...options, inputs: [1, 2] })).toMatchObject({ results: [3] })
    const spin = await moduleFromText('(module (func $s (loop $forever br $forever)) (start $s) (func (export "run")))')
    const ending = new AbortController()
    const endless = host.run(spin, options, ending.signal)
    await runnerWith(host, 1)
    expect(await host.run('add', { ...options, inputs: [3, 4] })).toMatchObject({ results: [7] })
    expect(stopped.size).toBeGreaterThan(0)
    ending.abort()
    expect(await endless).toMatchObject({ state: 'stopped' })
  } finally {
    clearInterval(timer)
    for (const pid of stopped) process.kill(pid, 'SIGKILL')
  }
})
