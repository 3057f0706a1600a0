/** The metrics of streams: the bytes that wait for readers, and the readers that were disconnected because of them. */
import { counter, defineMetrics, gauge } from '../metrics/index.ts'

export const STREAM_METRICS = defineMetrics('Streams', {
  open: gauge('skein_streams', 'Open event streams, followed outputs and WebSockets'),
  waiting: gauge('skein_stream_waiting_bytes', 'Bytes that wait for readers'),
  limit: gauge('skein_stream_waiting_limit_bytes', 'Bytes that may wait for readers (SKEIN_STREAM_BYTES)'),
  cuts: counter('skein_stream_cuts_total', 'Readers disconnected because too many bytes waited'),
})
