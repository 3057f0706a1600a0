/** What is read in the background: shown while it is fresh, gone when it is not, and never waited for. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createLogger } from '../logging/index.ts'
import { COLLECTOR_METRICS, gaugeValue, startCollector } from './collector.ts'
import { defineMetrics, gauge } from './define.ts'
import { createRegistry } from './registry.ts'

const logger = createLogger({ name: 'test', level: 'fatal' })
const METRICS = defineMetrics('Test', {
  depth: gauge('test_depth_meters', 'Depth'),
  shared: gauge('test_shared_bytes', 'Bytes', { labels: { of: 'a or b' }, aggregator: 'max' }),
})
const registry = createRegistry([METRICS.set, COLLECTOR_METRICS.set])
const sample = async (name: string) =>
  (await registry.getSingleMetricAsString(name)).split('\n').filter((line) => !line.startsWith('#'))

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

test('a value is shown from the first reading on, and disappears when it can no longer be read', async () => {
  let isThere = true
  const collector = startCollector({
    logger,
    intervalMs: 100,
    deadlineMs: 50,
    maxAgeMs: 350,
    collected: [
      {
        name: 'depth',
        gauges: [METRICS.depth],
        read: () => (isThere ? Promise.resolve(gaugeValue(METRICS.depth, 7)) : Promise.reject(new Error('away'))),
      },
    ],
  })
  await vi.advanceTimersByTimeAsync(0)
  expect(await sample('test_depth_meters')).toEqual(['test_depth_meters 7'])
  isThere = false
  await vi.advanceTimersByTimeAsync(300)
  expect(await sample('test_depth_meters')).toEqual(['test_depth_meters 7'])
  await vi.advanceTimersByTimeAsync(100)
  expect(await sample('test_depth_meters')).toEqual([])
  expect(await sample('skein_collector_age_seconds')).toEqual(['skein_collector_age_seconds{reading="depth"} 0.4'])
  expect(await sample('skein_collector_failures_total')).toEqual(['skein_collector_failures_total{reading="depth"} 4'])
  isThere = true
  await vi.advanceTimersByTimeAsync(100)
  expect(await sample('test_depth_meters')).toEqual(['test_depth_meters 7'])
  await collector.stop()
  expect(await sample('test_depth_meters')).toEqual([])
})

test('a reading that hangs is requested once, and delays neither other readings nor the response', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  let asked = 0
  const collector = startCollector({
    logger,
    intervalMs: 100,
    deadlineMs: 50,
    maxAgeMs: 350,
    collected: [
      {
        name: 'hanging',
        gauges: [METRICS.depth],
        read: async () => {
          asked += 1
          await promise
          return []
        },
      },
      {
        name: 'other',
        gauges: [METRICS.shared],
        read: () => Promise.resolve(gaugeValue(METRICS.shared, 3, { of: 'a' })),
      },
    ],
  })
  await vi.advanceTimersByTimeAsync(500)
  expect(asked).toBe(1)
  expect(await sample('test_depth_meters')).toEqual([])
  expect(await sample('test_shared_bytes')).toEqual(['test_shared_bytes{of="a"} 3'])
  resolve()
  await vi.advanceTimersByTimeAsync(100)
  expect(asked).toBe(2)
  await collector.stop()
})

test('the values of a gauge from several sources are added, or the largest is shown where all sources measure the same thing', async () => {
  const remove = [
    METRICS.depth.fromValue(() => 2),
    METRICS.depth.fromValue(() => 3),
    METRICS.depth.fromValue(() => undefined),
    METRICS.shared.from(() => [{ labels: { of: 'b' }, value: 4 }]),
    METRICS.shared.from(() => [{ labels: { of: 'b' }, value: 5 }]),
  ]
  expect(await sample('test_depth_meters')).toEqual(['test_depth_meters 5'])
  expect(await sample('test_shared_bytes')).toEqual(['test_shared_bytes{of="b"} 5'])
  for (const one of remove) one()
  expect(await sample('test_depth_meters')).toEqual([])
})
