/** Rules and alarms: how much they do, and how far they are behind. */
import type { Database } from '#core/database/index.ts'
import { counter, defineMetrics, gauge, gaugeValue } from '#core/metrics/index.ts'
import type { GaugeSource } from '#core/metrics/index.ts'
import { sql } from '#core/sql.ts'

export const RULE_METRICS = defineMetrics('Rules and alarms', {
  rules: gauge('skein_rules', 'Enabled rules of all domains', { aggregator: 'max' }),
  paused: gauge('skein_rules_paused', 'Enabled rules that are paused', { aggregator: 'max' }),
  behindSeconds: gauge('skein_rules_behind_seconds', 'Age of the oldest message that waits for rules; 0: none does', {
    aggregator: 'max',
  }),
  openAlarms: gauge('skein_alarms_open', 'Alarms of all domains that are not cleared', { aggregator: 'max' }),
  publications: gauge('skein_rule_publications', 'Messages of rules that wait for their publication', {
    aggregator: 'max',
  }),
  steps: counter('skein_rule_steps_total', 'Steps of the rules of a domain'),
  stepSeconds: counter('skein_rule_step_seconds_total', 'Time that these took, in seconds'),
})

export function ruleGauges(database: Database): GaugeSource {
  const { rules, paused, behindSeconds, openAlarms, publications } = RULE_METRICS
  return {
    name: 'rules',
    gauges: [rules, paused, behindSeconds, openAlarms, publications],
    async read() {
      const { rows } = await sql<{ rules: number; paused: number; seconds: number; open: number; waiting: number }>`
        SELECT (SELECT count(*) FROM rules WHERE status = 'enabled') AS rules,
          (SELECT count(*) FROM rules WHERE status = 'enabled' AND paused_at IS NOT NULL) AS paused,
          (SELECT coalesce(extract(epoch FROM now() - min(behind_since)), 0)::float8 FROM rule_domains) AS seconds,
          (SELECT count(*) FROM alarms WHERE cleared_at IS NULL) AS open, (SELECT count(*) FROM rule_publications) AS waiting`.execute(
        database.db,
      )
      return rows.flatMap((row) => [
        ...gaugeValue(rules, row.rules),
        ...gaugeValue(paused, row.paused),
        ...gaugeValue(behindSeconds, row.seconds),
        ...gaugeValue(openAlarms, row.open),
        ...gaugeValue(publications, row.waiting),
      ])
    },
  }
}
