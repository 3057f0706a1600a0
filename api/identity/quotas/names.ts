/**
 * The quotas of domains and users (contract decision 76). Each is a whole number. An absent quota has the value of its setting, and no limit
 * without one.
 */
import { MAX_QUOTA, MAX_RATE } from './range.ts'

export type QuotaRule = {
  /** The description in the API and of the setting. */
  readonly description: string
  /** What the error message says. */
  readonly noun: string
  readonly min: number
  readonly max: number
  /** In force without a value and a setting; absent: no limit. */
  readonly standard?: number
}

const amount = (description: string, noun: string): QuotaRule => ({ description, noun, min: 0, max: MAX_QUOTA })

const rate = (description: string, noun: string): QuotaRule => ({ description, noun, min: 1, max: MAX_RATE })

export const DOMAIN_QUOTAS = {
  clients: amount('Clients of a domain', 'clients'),
  channels: amount('Channels of a domain', 'channels'),
  groups: amount('Groups of a domain', 'groups'),
  messages_per_second: rate('Messages that a domain takes in per second', 'messages per second'),
  message_bytes_per_second: rate('Bytes of messages that a domain takes in per second', 'bytes of messages per second'),
  queued_runs: amount('Runs of a domain that wait for a worker', 'queued runs'),
  concurrent_runs: amount('Runs of a domain that workers of one task manager have at a time', 'concurrent runs'),
  run_weight: {
    description: 'Weight of a domain when runs of several domains wait for slots: its part of them',
    noun: 'weight of runs',
    min: 1,
    max: 100,
    standard: 1,
  },
} as const satisfies Record<string, QuotaRule>

export const USER_QUOTAS = {
  domains: amount('Domains that a user created and that are not deleted', 'domains'),
} as const satisfies Record<string, QuotaRule>

export type DomainQuota = keyof typeof DOMAIN_QUOTAS
export type UserQuota = keyof typeof USER_QUOTAS
export type QuotaName = DomainQuota | UserQuota

/** The values that are set for one domain or user, or by the settings for all. */
export type QuotaValues<N extends string = string> = Readonly<Partial<Record<N, number>>>
