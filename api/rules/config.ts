/** Settings of rules and alarms. */
import { integer } from '#core/config/index.ts'
import type { ConfigOf } from '#core/config/index.ts'

export const RULES_SETTINGS = {
  alarmRetentionDays: integer(
    'SKEIN_ALARM_RETENTION_DAYS',
    365,
    { min: 1, max: 36_500 },
    'Days that cleared alarms are kept, unless their domain says otherwise',
  ),
} as const

export type RulesConfig = ConfigOf<typeof RULES_SETTINGS>
