/** Metrics of the supervisor about its processes. */
import { counter, defineMetrics, gauge } from '#core/metrics/index.ts'

export const PROCESS_METRICS = defineMetrics('Processes of one machine', {
  wanted: gauge('skein_processes_wanted', 'Equal processes that the supervisor keeps running (SKEIN_API_PROCESSES)'),
  serving: gauge('skein_processes_serving', 'Processes that serve requests'),
  restarts: counter(
    'skein_process_restarts_total',
    'Processes that ended otherwise than they were meant to and were restarted',
  ),
})
