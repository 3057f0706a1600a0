/** Messages between their arrival and their commit. */
import type { CommitObserver } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, histogram } from '#core/metrics/index.ts'

const BATCH_BOUNDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]

export const INGEST_METRICS = defineMetrics('Ingest', {
  queued: gauge('skein_ingest_queue_messages', 'Messages that wait for their commit or are being committed'),
  queuedLimit: gauge('skein_ingest_queue_limit_messages', 'Messages that may wait; further ones are refused'),
  queuedBytes: gauge('skein_ingest_queue_bytes', 'Bytes of the messages that wait'),
  queuedBytesLimit: gauge('skein_ingest_queue_limit_bytes', 'Bytes that may wait; further messages are refused'),
  batch: histogram('skein_ingest_batch_messages', 'Messages in a batch', { bounds: BATCH_BOUNDS }),
  commit: histogram(
    'skein_ingest_commit_duration_seconds',
    'Time from the begin of a batch to its commit, with every attempt',
  ),
  refusals: counter(
    'skein_ingest_refused_messages_total',
    'Messages that were not known to be stored when their publisher was answered',
    { reason: 'queue_full, disk_full, no_standby, quota or timeout (the outcome was not known in time)' },
    ['queue_full', 'disk_full', 'no_standby', 'quota', 'timeout'].map((reason) => ({ reason })),
  ),
})

/** Counts batches of a shard. */
export const INGEST_OBSERVER: CommitObserver = {
  batch(items, durationMs) {
    INGEST_METRICS.batch.observe({}, items)
    INGEST_METRICS.commit.observe({}, durationMs / 1000)
  },
  full: () => INGEST_METRICS.refusals.add({ reason: 'queue_full' }),
  late: () => INGEST_METRICS.refusals.add({ reason: 'timeout' }),
}
