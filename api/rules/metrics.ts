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
  silenced: gauge('skein_alarms_silenced', 'Of these, the ones of which nobody was notified because of maintenance', {
    aggregator: 'max',
  }),
  publications: gauge('skein_rule_publications', 'Messages of rules that wait for their publication', {
    aggregator: 'max',
  }),
  steps: counter('skein_rule_steps_total', 'Steps of the rules of a domain'),
  stepSeconds: counter('skein_rule_step_seconds_total', 'Time that these took, in seconds'),
})

export function ruleGauges(database: Database): GaugeSource {
  const { rules, paused, behindSeconds, openAlarms, silenced, publications } = RULE_METRICS
  return {
    name: 'rules',
    gauges: [rules, paused, behindSeconds, openAlarms, silenced, publications],
    async read() {
      const { rows } = await sql<{
        rules: number
        paused: number
        seconds: number
        open: number
        silent: number
        waiting: number
      }>`
        SELECT (SELECT count(*) FROM rules WHERE status = 'enabled') AS rules,
          (SELECT count(*) FROM rules WHERE status = 'enabled' AND paused_at IS NOT NULL) AS paused,
          coalesce(extract(epoch FROM now() - least((SELECT min(behind_since) FROM rule_domains), (SELECT min(since) FROM rule_calls))), 0)::float8 AS seconds,
          a.open, a.silent, (SELECT count(*) FROM rule_publications) AS waiting
          FROM (SELECT count(*) AS open, count(silenced_until) AS silent FROM alarms WHERE cleared_at IS NULL) a`.execute(
        database.db,
      )
      return rows.flatMap((row) => [
        ...gaugeValue(rules, row.rules),
        ...gaugeValue(paused, row.paused),
        ...gaugeValue(behindSeconds, row.seconds),
        ...gaugeValue(openAlarms, row.open),
        ...gaugeValue(silenced, row.silent),
        ...gaugeValue(publications, row.waiting),
      ])
    },
  }
}
