/** The archive: how much is copied, how far it is behind, and which files no snapshot refers to. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'
import { findState } from './repository.ts'

/** The counts read every row of the files. */
const INTERVAL_MS = 60_000

export const ARCHIVE_METRICS = defineMetrics('Archive', {
  waiting: gauge('skein_archive_waiting_ranges', 'Ranges of records whose copy in the archive is due', {
    aggregator: 'max',
  }),
  behindSeconds: gauge('skein_archive_behind_seconds', 'Time since when the oldest of them is due; 0: none is', {
    aggregator: 'max',
  }),
  records: gauge('skein_archive_records', 'Records in the archive', { aggregator: 'max' }),
  bytes: gauge('skein_archive_bytes', 'Size of the files of the archive', { aggregator: 'max' }),
  unreferencedFiles: gauge(
    'skein_archive_unreferenced_files',
    'Files that no snapshot refers to: of an export that is running, or deleted within a day',
    { aggregator: 'max' },
  ),
  overdueFiles: gauge(
    'skein_archive_overdue_files',
    'Files that should have been deleted for an hour or longer. Absent while no node copies records',
    { aggregator: 'max' },
  ),
  roundAgeSeconds: gauge(
    'skein_archive_round_age_seconds',
    'Time since the copy made progress without a failure. Absent while no node copies records',
    { aggregator: 'max' },
  ),
  exports: counter('skein_archive_exports_total', 'Ranges that were copied to the archive'),
  failures: counter(
    'skein_archive_failures_total',
    'Steps of a round that failed for a domain or a file and are repeated',
    { step: 'expiry, audit, export or sweep' },
    [{ step: 'expiry' }, { step: 'audit' }, { step: 'export' }, { step: 'sweep' }],
  ),
  exportedRecords: counter('skein_archive_exported_records_total', 'Records that were copied to the archive'),
  exportSeconds: counter('skein_archive_export_seconds_total', 'Time that these took, in seconds'),
})

export function archiveGauges(database: Database): GaugeSource {
  const { waiting, behindSeconds, records, bytes, unreferencedFiles, overdueFiles, roundAgeSeconds } = ARCHIVE_METRICS
  return {
    name: 'archive',
    gauges: [waiting, behindSeconds, records, bytes, unreferencedFiles, overdueFiles, roundAgeSeconds],
    intervalMs: INTERVAL_MS,
    async read() {
      const { rows } = await sql<{
        waiting: number
        seconds: number
        records: number
        bytes: number
        unreferenced: number
      }>`
        SELECT due.waiting, due.seconds, files.*
          FROM (SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(due_at)), 0)::float8 AS seconds
                  FROM archive_ranges WHERE exported_changes IS DISTINCT FROM changes) due,
               (SELECT coalesce(sum(records) FILTER (WHERE state = 'live' AND kind = 'data'), 0)::bigint AS records,
                       coalesce(sum(bytes), 0)::bigint AS bytes, count(*) FILTER (WHERE state <> 'live') AS unreferenced
                  FROM archive_files) files`.execute(database.db)
      const state = await findState(database.db)
      const ofRounds =
        state === undefined
          ? []
          : [...gaugeValue(overdueFiles, state.overdueFiles), ...gaugeValue(roundAgeSeconds, state.roundAgeSeconds)]
      const ofTables = rows.flatMap((row) => [
        ...gaugeValue(waiting, row.waiting),
        ...gaugeValue(behindSeconds, row.seconds),
        ...gaugeValue(records, row.records),
        ...gaugeValue(bytes, row.bytes),
        ...gaugeValue(unreferencedFiles, row.unreferenced),
      ])
      return [...ofRounds, ...ofTables]
    },
  }
}
