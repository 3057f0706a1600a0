/** Readiness is the worst of its checks, each since its last change; probes answer from memory. */
import { Writable } from 'node:stream'
import { expect, test, vi } from 'vitest'
import { createLogger } from '../logging/index.ts'
import { createLifecycle } from '../program/index.ts'
import { startProbe } from './probe.ts'
import { Readiness, startReadiness } from './readiness.ts'

test('the worst check decides, and a status keeps the time at which it began', () => {
  const readiness = new Readiness()
  const lacking = new Set<string>()
  const check = (name: string, isRequired: boolean) => ({
    name,
    isRequired,
    read: () => (lacking.has(name) ? `${name} is away` : undefined),
  })
  readiness.add(check('database', true), check('cache', false))
  const first = readiness.read()
  expect(first.status).toBe('ready')
  lacking.add('cache')
  expect(readiness.read()).toMatchObject({
    status: 'degraded',
    checks: { cache: { status: 'degraded', reason: 'cache is away' } },
  })
  lacking.add('database')
  const worst = readiness.read()
  expect(worst.status).toBe('unavailable')
  expect(readiness.read()).toEqual(worst)
  lacking.clear()
  expect(readiness.read()).toMatchObject({ status: 'ready', checks: { database: { status: 'ready' } } })
  expect(readiness.read().checks['database']).not.toHaveProperty('reason')
})

test('a probe that is not answered, or fails, gives its reason', async () => {
  const answers: (() => Promise<string | undefined>)[] = [
    () => new Promise(() => undefined),
    () => Promise.reject(new Error('the password is hunter2')),
    () => Promise.resolve('not now'),
    () => Promise.resolve(undefined),
  ]
  const seen: (string | undefined)[] = []
  const done = Promise.withResolvers<void>()
  let read = (): string | undefined => 'first'
  const probe = startProbe({
    ask() {
      seen.push(read())
      const next = answers.shift()
      if (next === undefined) done.resolve()
      return next?.() ?? Promise.resolve(undefined)
    },
    failure: 'no answer',
    intervalMs: 1,
    deadlineMs: 10,
  })
  read = probe.read
  await done.promise
  await probe.stop()
  expect(seen.slice(1)).toEqual(['no answer', 'no answer', 'not now', undefined])
})

test('checks are logged after the start, and one that has not succeeded yet ten seconds later', async () => {
  vi.useFakeTimers()
  try {
    let text = ''
    const stream = new Writable({
      write(chunk: Buffer, _encoding, done) {
        text += chunk.toString()
        done()
      },
    })
    const logger = createLogger({ name: 'test', level: 'info', stream })
    const life = createLifecycle(logger)
    const readiness = await startReadiness(life, logger)
    const lacking = new Set(['workers'])
    for (const name of ['workers', 'changelog'])
      readiness.add({ name, isRequired: false, read: () => (lacking.has(name) ? 'away' : undefined) })
    await vi.advanceTimersByTimeAsync(15_000)
    lacking.add('changelog')
    await vi.advanceTimersByTimeAsync(15_000)
    lacking.delete('changelog')
    life.started()
    await vi.advanceTimersByTimeAsync(9_000)
    expect(text).toBe('')
    lacking.add('changelog')
    await vi.advanceTimersByTimeAsync(500)
    expect(text).toContain('changelog: away')
    expect(text).not.toContain('workers')
    await vi.advanceTimersByTimeAsync(1_000)
    expect(text).toContain('workers: away')
    await life.stop()
  } finally {
    vi.useRealTimers()
  }
})
