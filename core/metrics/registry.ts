/** The metrics that a process shows at `/metrics`: Node's runtime, the build, and the sets that its program exposes. */
import { Registry, collectDefaultMetrics } from 'prom-client'
import { createTurns } from '../turns.ts'
import { readBuildInfo } from '../build-info.ts'
import { defineMetrics, gauge } from './define.ts'
import type { MetricSet } from './define.ts'

const PROCESS_METRICS = defineMetrics('Process', {
  build: gauge('skein_build_info', 'Always 1; the labels say which build runs', {
    labels: { version: 'version of the product', commit: 'commit that the build was made from' },
  }),
})

const { version, commit } = readBuildInfo()
PROCESS_METRICS.build.from(() => [{ labels: { version, commit }, value: 1 }])

/** Exposed by every program. */
export const PROCESS_SET: MetricSet = PROCESS_METRICS.set

/**
 * The interval at which the delay of the event loop is sampled. Each sample wakes an idle process: prom-client's 10 ms take 5 ms of
 * processor time a second, in every process. The samples include the interval, so an idle process shows a delay of 0.1 s.
 */
const EVENT_LOOP_SAMPLE_MS = 100

/**
 * A registry with Node's runtime and these sets; a set that is given twice counts once. `process` becomes a label of every sample
 * where several processes show their metrics together.
 */
export function createRegistry(sets: readonly MetricSet[], process?: string): Registry {
  const registry = new RegistryInTurns()
  if (process !== undefined) registry.setDefaultLabels({ process })
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: EVENT_LOOP_SAMPLE_MS })
  for (const { metrics } of new Set([PROCESS_SET, ...sets])) {
    for (const { instrument } of Object.values(metrics)) registry.registerMetric(instrument)
  }
  return registry
}

/** Renders its text metric by metric, in turns of the event loop: all of them together have megabytes. */
class RegistryInTurns extends Registry {
  override async metrics(): Promise<string> {
    const turns = createTurns()
    const texts: string[] = []
    for (const { name } of this.getMetricsAsArray()) {
      texts.push(await this.getSingleMetricAsString(name))
      if (turns.isOver) await turns.next()
    }
    return `${texts.join('\n\n')}\n`
  }
}

export type { Registry } from 'prom-client'
