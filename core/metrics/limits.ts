/** Counts requests that were refused because a limit was reached, by the name of the limit and never by the caller. */
import { counter, defineMetrics } from './define.ts'

/** Limits of several rooms; each is counted where it refuses. */
const LIMIT_NAMES = [
  'login',
  'password_hashing',
  'password_mail',
  'verification_mail',
  'anonymous_provisioning',
  'bootstrap_key',
  'given_secret',
  'notification_rate',
  'notification_quota',
  'streams',
] as const

export type LimitName = (typeof LIMIT_NAMES)[number]

export const LIMIT_METRICS = defineMetrics('Limits', {
  refusals: counter(
    'skein_limit_refusals_total',
    'Requests and deliveries that a limit refused',
    { limit: LIMIT_NAMES.join(', ') },
    LIMIT_NAMES.map((limit) => ({ limit })),
  ),
})

export function countRefusal(limit: LimitName): void {
  LIMIT_METRICS.refusals.add({ limit })
}
