/** Metrics of commands to devices. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

/** Rows that are counted; more show this number. */
const MAX_COUNTED = 100_000

export const COMMAND_METRICS = defineMetrics('Commands', {
  created: counter('skein_commands_created_total', 'Commands that users gave'),
  ended: counter<'status'>('skein_commands_ended_total', 'Commands that ended', {
    status: '`succeeded`, `failed`, `rejected`, `timed_out`, `expired` or `cancelled`',
  }),
  open: gauge('skein_commands_open', 'Commands that are queued or delivered; at most 100,000 are counted', {
    aggregator: 'max',
  }),
  overdueSeconds: gauge(
    'skein_commands_overdue_seconds',
    'How long the oldest open command is past its time; 0: none is',
    {
      aggregator: 'max',
    },
  ),
})

export function commandGauges({ db }: Database): GaugeSource {
  const { open, overdueSeconds } = COMMAND_METRICS
  return {
    name: 'commands',
    gauges: [open, overdueSeconds],
    async read() {
      const { rows } = await sql<{ open: number; overdue: number }>`SELECT
        (SELECT count(*) FROM (SELECT FROM device_commands WHERE ended_at IS NULL LIMIT ${MAX_COUNTED}) AS counted) AS open,
        greatest(coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(due_at) FROM device_commands WHERE ended_at IS NULL)), 0), 0)::float8 AS overdue`.execute(
        db,
      )
      return rows.flatMap((row) => [...gaugeValue(open, row.open), ...gaugeValue(overdueSeconds, row.overdue)])
    },
  }
}
