// task-manager.md section 3, rule 8
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MAX_BACKOFF_MS } from './limits.ts'
import { afterFailure, backoffMs, conflictDelayMs } from './retry.ts'
import { FAILURE_REASONS } from './run.ts'

const spec = { max_attempts: null, backoff_ms: 1000, on_lost: 'requeue' } as const

test.each(['worker_lost', 'fetch_failed'] as const)('%s has three attempts', (reason) => {
  expect(afterFailure(spec, 1, reason, 0.5)).toEqual({ retry: true, delayMs: 1000 })
  expect(afterFailure(spec, 2, reason, 0.5)).toEqual({ retry: true, delayMs: 2000 })
  expect(afterFailure(spec, 3, reason, 0.5)).toEqual({ retry: false })
})

test.each(['timeout', 'oom', 'trap', 'guest_error'] as const)('%s has one attempt by default', (reason) => {
  expect(afterFailure(spec, 1, reason, 0.5)).toEqual({ retry: false })
  expect(afterFailure({ ...spec, max_attempts: 2 }, 1, reason, 0.5)).toEqual({ retry: true, delayMs: 1000 })
  expect(afterFailure({ ...spec, max_attempts: 2 }, 2, reason, 0.5)).toEqual({ retry: false })
})

test('a module that is invalid or has no such function is never retried', () => {
  for (const reason of ['module_invalid', 'no_such_function'] as const) {
    expect(afterFailure({ ...spec, max_attempts: 10 }, 1, reason, 0.5)).toEqual({ retry: false })
  }
})

test('on_lost fail makes the loss of a worker final', () => {
  expect(afterFailure({ ...spec, on_lost: 'fail', max_attempts: 10 }, 1, 'worker_lost', 0.5)).toEqual({ retry: false })
})

test('a task ends after a bounded number of attempts for any failures', () => {
  fc.assert(
    fc.property(fc.constantFrom(...FAILURE_REASONS), fc.integer({ min: 1, max: 20 }), (reason, maxAttempts) => {
      let attempt = 1
      while (afterFailure({ ...spec, max_attempts: maxAttempts }, attempt, reason, 0.5).retry) attempt += 1
      expect(attempt).toBeLessThanOrEqual(maxAttempts)
    }),
  )
})

test('the backoff doubles up to 100 s and varies by a fifth', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 200 }), fc.double({ min: 0, max: 0.999, noNaN: true }), (attempt, random) => {
      const plain = Math.min(1000 * 2 ** (attempt - 1), MAX_BACKOFF_MS)
      const delay = backoffMs(1000, attempt, random)
      expect(delay).toBeGreaterThanOrEqual(plain * 0.8 - 1)
      expect(delay).toBeLessThanOrEqual(plain * 1.2 + 1)
    }),
  )
})

test('a run that met a conflict waits for anything up to a time that doubles, and longer where attempts take longer', () => {
  expect([0, 1, 4].map((before) => conflictDelayMs(before, 5, 1))).toEqual([61, 121, 961])
  expect([0, 1].map((before) => conflictDelayMs(before, 500, 0.5))).toEqual([1001, 2001])
  expect(conflictDelayMs(4, 600_000, 0.999)).toBeLessThanOrEqual(60_001)
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 5 }), fc.double({ min: 0, max: 1e6, noNaN: true }), (before, attemptMs) => {
      expect(conflictDelayMs(before, attemptMs, 0)).toBe(1)
    }),
  )
})
