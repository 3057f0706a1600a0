/** The metrics of the runtime: an idle process must not be woken often by its own measurements. */
import { expect, test } from 'vitest'
import { createRegistry } from '#core/metrics/index.ts'
import { until } from '../harness/until.ts'

/** The output resets the samples, and the first one after a reset needs two intervals. */
const READ_EVERY_MS = 500
/** A timer may end slightly early; prom-client's own interval is 0.01 s. */
const NEARLY_100_MS = 0.09
/** Without samples the shortest delay is the largest number of the histogram. */
const NO_SAMPLE_SECONDS = 1000

test('the delay of the event loop is sampled every 100 ms', async () => {
  const registry = createRegistry([])
  let nextMs = performance.now() + READ_EVERY_MS
  const shortestSeconds = await until(async () => {
    if (performance.now() < nextMs) return false
    nextMs = performance.now() + READ_EVERY_MS
    const text = await registry.metrics()
    const seconds = Number(/^nodejs_eventloop_lag_min_seconds (\S+)$/m.exec(text)?.[1])
    return seconds < NO_SAMPLE_SECONDS && seconds
  }, 'a sample of the delay of the event loop')
  expect(shortestSeconds).toBeGreaterThan(NEARLY_100_MS)
})
