/** Metrics of the module proxy, which pulls modules from registries and managers for workers. */
import { counter, defineMetrics, gauge, histogram } from '#core/metrics/index.ts'

const PULL_BOUNDS_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600]
const KIND = 'the kind of the error'
/** The outcomes whose counters start at 0. They include those that alert rules read. */
const outcomes = (...names: string[]) => [...names, 'unavailable', 'timeout'].map((outcome) => ({ outcome }))

export const PROXY_METRICS = defineMetrics('Module proxy', {
  requests: counter('skein_proxy_module_requests_total', 'Modules that were asked for', {
    result: 'hit (it was in the cache) or miss',
  }),
  pulls: counter(
    'skein_proxy_pulls_total',
    'Blobs that were pulled from a registry or a manager',
    {
      outcome: `pulled, or ${KIND}`,
    },
    outcomes('pulled'),
  ),
  pullTime: histogram('skein_proxy_pull_duration_seconds', 'Time of a pull that succeeded', {
    bounds: PULL_BOUNDS_SECONDS,
  }),
  pulledBytes: counter('skein_proxy_pulled_bytes_total', 'Bytes of the blobs that were pulled'),
  lookups: counter(
    'skein_proxy_reference_lookups_total',
    'Questions to a registry what a tag stands for',
    { outcome: `answered, stale (the registry failed and an earlier answer was used), or ${KIND}` },
    outcomes('answered', 'stale'),
  ),
  cacheBytes: gauge('skein_proxy_cache_bytes', 'Bytes in the cache of blobs'),
  cacheLimit: gauge('skein_proxy_cache_limit_bytes', 'Bytes that the cache may hold'),
})
