/** Rows that wait between the platform and the task manager. */
import type { Database } from '#core/database/index.ts'
import { defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { WAITING } from './batches.ts'

/** Rows that are counted; a longer queue shows this number. */
const MAX_COUNTED = 100_000
const QUEUE = {
  queue:
    'messages (they start tasks), publications (results become messages), replays (stored messages start tasks), commands (tasks answer them) or rules (functions decide for them)',
}
const TABLES = {
  messages: 'task_messages',
  publications: 'task_publications',
  replays: 'task_replays',
  commands: 'command_runs',
  rules: 'rule_calls',
} as const
/** Messages of batches are never due. */
const ALSO: Readonly<Record<string, Sql>> = { messages: sql` UNION ALL SELECT FROM task_messages WHERE ${WAITING}` }

export const QUEUE_METRICS = defineMetrics('Queues between platform and task manager', {
  rows: gauge('skein_queue_rows', 'Rows that wait, at most 100,000 are counted', { labels: QUEUE, aggregator: 'max' }),
  overdue: gauge('skein_queue_overdue_seconds', 'Time since the row was due that waits longest; 0: none is due', {
    labels: QUEUE,
    aggregator: 'max',
  }),
  behind: gauge('skein_triggers_behind', 'Triggers whose messages wait in their channels', { aggregator: 'max' }),
  behindSeconds: gauge('skein_triggers_behind_seconds', 'Age of the oldest message that waits there; 0: none does', {
    aggregator: 'max',
  }),
})

export function queueGauges(database: Database): GaugeSource {
  return {
    name: 'queues',
    gauges: [QUEUE_METRICS.rows, QUEUE_METRICS.overdue, QUEUE_METRICS.behind, QUEUE_METRICS.behindSeconds],
    async read() {
      const all = await Promise.all(
        Object.entries(TABLES).map(async ([queue, table]) => {
          const { rows } = await sql<{ waiting: number; overdue: number }>`
            SELECT (SELECT count(*) FROM (SELECT FROM ${sql.raw(table)} WHERE due_at < 'infinity'${ALSO[queue] ?? sql``} LIMIT ${MAX_COUNTED}) AS counted) AS waiting,
              greatest(extract(epoch FROM now() - (SELECT min(due_at) FROM ${sql.raw(table)} WHERE due_at < 'infinity')), 0)::float8 AS overdue`.execute(
            database.db,
          )
          return rows.flatMap((row) => [
            ...gaugeValue(QUEUE_METRICS.rows, row.waiting, { queue }),
            ...gaugeValue(QUEUE_METRICS.overdue, row.overdue, { queue }),
          ])
        }),
      )
      const { rows } = await sql<{ behind: number; seconds: number }>`
        SELECT count(*)::int AS behind, coalesce(extract(epoch FROM now() - min(behind_since)), 0)::float8 AS seconds
          FROM task_triggers WHERE behind_since IS NOT NULL`.execute(database.db)
      const behind = rows.flatMap((row) => [
        ...gaugeValue(QUEUE_METRICS.behind, row.behind),
        ...gaugeValue(QUEUE_METRICS.behindSeconds, row.seconds),
      ])
      return [...all.flat(), ...behind]
    },
  }
}
