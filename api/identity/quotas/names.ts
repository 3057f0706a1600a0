/**
 * The quotas of domains and users (contract decision 76). Each is a whole number. An absent quota has the value of its setting, and no limit
 * without one.
 */
import { MAX_QUOTA, MAX_RATE } from './range.ts'

export type QuotaRule = {
  /** The description in the API and of the setting. */
  readonly description: string
  /** The name of the quota in error messages. */
  readonly noun: string
  readonly min: number
  readonly max: number
  /** The limit that applies when neither a value nor a setting is set. Absent: no limit. */
  readonly standard?: number
}

const GIB = 1024 ** 3

const amount = (description: string, noun: string): QuotaRule => ({ description, noun, min: 0, max: MAX_QUOTA })

/** Days begin at midnight in UTC. */
const daily = amount

const rate = (description: string, noun: string): QuotaRule => ({ description, noun, min: 1, max: MAX_RATE })

export const DOMAIN_QUOTAS = {
  clients: amount('Clients of a domain', 'clients'),
  channels: amount('Channels of a domain', 'channels'),
  groups: amount('Groups of a domain', 'groups'),
  consumers: { ...amount('Named consumers of a domain', 'consumers'), standard: 100 },
  rules: { ...amount('Rules of a domain', 'rules'), standard: 1_000 },
  maintenance_windows: { ...amount('Maintenance windows of a domain', 'maintenance windows'), standard: 100 },
  open_alarms: { ...amount('Alarms of a domain that are not cleared', 'open alarms'), standard: 10_000 },
  messages_per_second: rate('Messages that a domain takes in per second', 'messages per second'),
  message_bytes_per_second: rate('Bytes of messages that a domain takes in per second', 'bytes of messages per second'),
  stored_records: amount(
    'Records of a domain that are stored: SenML records, JSON objects and raw payloads',
    'stored records',
  ),
  queued_bytes: {
    ...amount(
      'Bytes of messages of a domain that are kept for what they cause: queued for runs, publication and notification, in doubt at named consumers, and dead letters',
      'bytes of queued messages',
    ),
    standard: 20 * GIB,
  },
  mqtt_connections: amount('Open MQTT connections of the clients of a domain', 'MQTT connections'),
  mqtt_sessions: amount(
    'Stored MQTT sessions of the clients of a domain, with and without a connection',
    'MQTT sessions',
  ),
  mqtt_subscriptions: amount(
    'Subscriptions in the MQTT sessions of the clients of a domain',
    'subscriptions of MQTT sessions',
  ),
  exports_per_day: daily('Exports of messages that a domain starts per day (UTC)', 'exports per day'),
  notifications_per_day: daily(
    'Notifications of a domain that are sent per day (UTC), each attempt counted',
    'notifications per day',
  ),
  commands_per_day: {
    ...daily('Commands that a domain gives to its clients per day (UTC)', 'commands per day'),
    standard: 1_000_000,
  },
  tasks: { ...amount('Tasks of a domain, those of workflows too', 'tasks'), standard: 100_000 },
  workflows: { ...amount('Workflows of a domain', 'workflows'), standard: 10_000 },
  schedules: { ...amount('Tasks of a domain that have a schedule', 'tasks with a schedule'), standard: 20_000 },
  triggers: { ...amount('Tasks of a domain that have a trigger', 'tasks with a trigger'), standard: 20_000 },
  state_keys: { ...amount('Keys of the state of the tasks of a domain', 'keys of state'), standard: 1_000_000 },
  state_bytes: {
    ...amount('Bytes of the state of the tasks of a domain, keys and values', 'bytes of state'),
    standard: 4 * GIB,
  },
  module_bytes: amount('Bytes of the modules that were uploaded to tasks of a domain', 'bytes of modules'),
  cpu_seconds_per_day: daily(
    'Processor seconds that runs of a domain use per day (UTC)',
    'processor seconds of runs per day',
  ),
  run_bytes: {
    ...amount(
      'Bytes of the results and the output that runs of a domain have stored',
      'bytes of results and output of runs',
    ),
    standard: 20 * GIB,
  },
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

/** Quotas of which a day of UTC has its own amount. */
export const DAILY_QUOTAS = [
  'exports_per_day',
  'notifications_per_day',
  'commands_per_day',
  'cpu_seconds_per_day',
] as const
export type DailyQuota = (typeof DAILY_QUOTAS)[number]

/** An amount that is counted by the day on which it was added, for as long as it is kept. */
export const KEPT_QUOTA = 'run_bytes'
export type CountedQuota = DailyQuota | typeof KEPT_QUOTA

/** The values that are set for one domain or user, or by the settings for all. */
export type QuotaValues<N extends string = string> = Readonly<Partial<Record<N, number>>>
