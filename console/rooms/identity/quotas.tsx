/** What a domain uses of its quotas. */
import type { Answer } from '../../api/call.ts'
import { Notice, formatBytes, formatCount } from '../../design/display.tsx'

type QuotaUses = Answer<'GET /domains/{domain_id}/usage'>['quotas']
type Name = keyof QuotaUses

const WORDS: Readonly<Record<Name, string>> = {
  clients: 'Clients',
  channels: 'Channels',
  groups: 'Groups',
  consumers: 'Named consumers',
  rules: 'Rules',
  maintenance_windows: 'Maintenance windows',
  open_alarms: 'Open alarms',
  messages_per_second: 'Messages per second',
  message_bytes_per_second: 'Bytes of messages per second',
  stored_records: 'Stored records',
  mqtt_connections: 'MQTT connections',
  mqtt_sessions: 'MQTT sessions',
  mqtt_subscriptions: 'MQTT subscriptions',
  exports_per_day: 'Exports today',
  notifications_per_day: 'Notifications today',
  commands_per_day: 'Commands today',
  tasks: 'Tasks',
  workflows: 'Workflows',
  schedules: 'Tasks with a schedule',
  triggers: 'Tasks with a trigger',
  state_keys: 'Keys of the state of tasks',
  state_bytes: 'Size of the state of tasks',
  module_bytes: 'Size of modules',
  cpu_seconds_per_day: 'Processor seconds of runs today',
  queued_runs: 'Queued runs',
  run_bytes: 'Size of results and output of runs',
  queued_bytes: 'Size of queued messages and dead letters',
  concurrent_runs: 'Concurrent runs',
  run_weight: 'Weight among domains whose runs wait',
}
const IN_BYTES: ReadonlySet<Name> = new Set([
  'message_bytes_per_second',
  'module_bytes',
  'queued_bytes',
  'run_bytes',
  'state_bytes',
])
/** From this part of a quota on, there is a warning. */
const NEARLY = 0.9

const amount = (name: Name, value: number) => (IN_BYTES.has(name) ? formatBytes(value) : formatCount(value))

export function Quotas({ quotas }: { quotas: QuotaUses }) {
  const rows = (Object.keys(WORDS) as Name[]).map((name) => ({ name, ...quotas[name] }))
  const full = rows.filter(({ limit, used }) => limit !== null && used !== null && limit > 0 && used >= limit * NEARLY)
  return (
    <>
      {full.length === 0 ? null : (
        <Notice tone="warn">Nearly used up: {full.map(({ name }) => WORDS[name]).join(', ')}.</Notice>
      )}
      <table className="plain" aria-label="Quotas">
        <thead>
          <tr>
            <th>Quota</th>
            <th className="num">Used</th>
            <th className="num">Limit</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, limit, used }) => (
            <tr key={name}>
              <td>{WORDS[name]}</td>
              <td className="num">{used === null ? <span className="muted">not counted</span> : amount(name, used)}</td>
              <td className="num">{limit === null ? <span className="muted">none</span> : amount(name, limit)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="muted small">An administrator of the platform sets the limits.</p>
    </>
  )
}
