/** Wire shapes of alarms. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Timestamp } from '#api/identity/index.ts'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { AlarmChange, AlarmRecord } from './repository.ts'

export const SEVERITIES = ['info', 'warning', 'major', 'critical'] as const
export type Severity = (typeof SEVERITIES)[number]

export const ALARM_STATUSES = ['active', 'acknowledged', 'cleared'] as const
export type AlarmStatus = (typeof ALARM_STATUSES)[number]

export const ALARM_CHANGES = [
  'raise',
  'unsilence',
  'escalate',
  'acknowledge',
  'unacknowledge',
  'assign',
  'comment',
  'clear',
] as const

/** Alarms that one call changes. */
export const MAX_BULK = 500
const MAX_COMMENT_CHARS = 4_096
const MAX_TEXT_CHARS = 256
const MAX_TAG_CHARS = 255

export const Severity = Type.Enum([...SEVERITIES])

const optionalId = (description: string) =>
  Type.Optional(Type.String({ description, ...documented({ format: 'uuid' }) }))

export const AlarmView = Type.Object(
  {
    id: Id,
    domain_id: Id,
    rule_id: Type.String({ description: 'Id of the rule, which may be deleted since' }),
    rule_name: Type.String({ description: 'Its name now; of a deleted rule, its last one' }),
    client_id: optionalId('Id of the client that sent the message; absent: a user or a task sent it'),
    client_name: Type.String(),
    channel_id: optionalId('Id of the channel of the message'),
    channel_name: Type.String(),
    subtopic: Type.String(),
    name: Type.String({ description: 'Name of the SenML record; empty for a message without records' }),
    unit: Type.String(),
    severity: Severity,
    status: Type.Enum([...ALARM_STATUSES], {
      description: '`active`: nobody has acknowledged it. `acknowledged` and `active` alarms are open',
    }),
    value: Type.Unknown({ description: 'The last value for which the condition held; null: none' }),
    text: Type.String({ description: 'What the rule says of it' }),
    condition: Type.String({ description: 'The condition of the rule when it raised the alarm' }),
    cause: Type.String({ description: 'Position of the message that raised it' }),
    count: Type.Integer({ description: 'How often the condition was found to hold' }),
    escalations: Type.Integer({ description: 'How often it was escalated, because nobody acknowledged it' }),
    comments: Type.Integer({ description: 'Number of comments; `GET …/history` has them' }),
    first_at: Type.String({ format: 'date-time', description: 'When it was raised' }),
    last_at: Type.String({ format: 'date-time', description: 'When the condition was last found to hold' }),
    acknowledged_at: Type.Optional(Timestamp),
    acknowledged_by: optionalId('Id of the user who acknowledged it'),
    acknowledged_by_name: Type.Optional(Type.String()),
    assignee_id: optionalId('Id of the user who takes care of it'),
    assignee_name: Type.Optional(Type.String()),
    cleared_at: Type.Optional(Timestamp),
    cleared_by: optionalId('Id of the user who cleared it; absent on a cleared alarm: its rule did'),
    cleared_by_name: Type.Optional(Type.String()),
    maintenance_id: optionalId('Id of the maintenance window in which it was raised, which may be deleted since'),
    maintenance_name: Type.Optional(Type.String({ description: 'Name of that window then' })),
    silenced_until: Type.Optional(
      Type.String({
        format: 'date-time',
        description:
          'When the maintenance ends in which it was raised: nobody was notified of it. Absent: its contacts were. A cleared alarm keeps it',
      }),
    ),
    updated_at: Timestamp,
  },
  { $id: 'Alarm', description: 'An alarm: the condition of a rule that holds, or held, for a series of a client' },
)
export type AlarmView = Static<typeof AlarmView>

const Instant = (description: string) =>
  Type.Optional(
    Type.String({ maxLength: 64, description: `${description} (RFC 3339)`, ...documented({ format: 'date-time' }) }),
  )

export const AlarmQuery = Type.Object({
  ...pageQuery(),
  status: Type.Optional(
    Type.Enum(['open', ...ALARM_STATUSES], { description: '`open`: active and acknowledged ones; defaults to all' }),
  ),
  severity: Type.Optional(
    Type.String({
      maxLength: 64,
      description: `One of ${SEVERITIES.join(', ')}, or several separated by commas`,
      ...documented({ pattern: `^(${SEVERITIES.join('|')})(,(${SEVERITIES.join('|')}))*$` }),
    }),
  ),
  rule: Type.Optional(Type.String({ maxLength: 36, description: 'Id of the rule', ...documented({ format: 'uuid' }) })),
  client: Type.Optional(
    Type.String({ maxLength: 36, description: 'Id of the client', ...documented({ format: 'uuid' }) }),
  ),
  group: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Id of a group: of clients in it, and in the groups below it',
      ...documented({ format: 'uuid' }),
    }),
  ),
  tag: Type.Optional(Type.String({ maxLength: MAX_TAG_CHARS, description: 'Of clients with this tag' })),
  assignee: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Id of the user; `none`: of nobody',
      ...documented({ pattern: '^([0-9a-fA-F-]{36}|none)$' }),
    }),
  ),
  silenced: Type.Optional(
    Type.Boolean({ description: 'true: of which nobody was notified, because of maintenance; false: the others' }),
  ),
  from: Instant('Whose condition held at this time or later'),
  to: Instant('Raised before this time'),
  text: Type.Optional(
    Type.String({
      maxLength: MAX_TEXT_CHARS,
      description: 'Part of the text, or of the name of the rule, the client or the record',
    }),
  ),
})
export type AlarmQuery = Static<typeof AlarmQuery>

export const AlarmPage = Type.Object({ ...pageFields, alarms: Type.Array(AlarmView) })

const changes = {
  status: Type.Optional(
    Type.Enum([...ALARM_STATUSES], {
      description:
        '`acknowledged` takes notice of it, `active` takes that back, `cleared` ends it. A cleared alarm stays cleared',
    }),
  ),
  assignee_id: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Id of a user who may read alarms of the domain; empty: nobody',
      ...documented({ pattern: '^([0-9a-fA-F-]{36})?$' }),
    }),
  ),
  comment: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_COMMENT_CHARS })),
}

export const AlarmUpdate = Type.Object(changes, { $id: 'AlarmUpdate', description: 'Absent fields are unchanged' })
export type AlarmUpdate = Static<typeof AlarmUpdate>

export const AlarmBulkUpdate = Type.Object(
  { ids: Type.Array(Id, { minItems: 1, maxItems: MAX_BULK, description: 'Ids of alarms' }), ...changes },
  { $id: 'AlarmBulkUpdate', description: 'Absent fields are unchanged. All alarms are changed, or none' },
)
export type AlarmBulkUpdate = Static<typeof AlarmBulkUpdate>

export const AlarmList = Type.Object({ alarms: Type.Array(AlarmView) })

const AlarmHistoryItem = Type.Object(
  {
    at: Timestamp,
    change: Type.Enum([...ALARM_CHANGES]),
    actor_id: optionalId('Id of the user; absent: the rule'),
    actor_name: Type.Optional(Type.String()),
    assignee_id: optionalId('Of `assign`: to whom; absent: to nobody'),
    assignee_name: Type.Optional(Type.String()),
    comment: Type.Optional(Type.String()),
  },
  { $id: 'AlarmHistoryItem' },
)
export const AlarmHistoryQuery = Type.Object(pageQuery())
export type AlarmHistoryQuery = Static<typeof AlarmHistoryQuery>
export const AlarmHistoryPage = Type.Object({ ...pageFields, history: Type.Array(AlarmHistoryItem) })

const given = <Name extends string, Value>(name: Name, value: Value | null) =>
  (value === null ? {} : { [name]: value }) as { [K in Name]?: Value }
const time = <Name extends string>(name: Name, value: string | null) =>
  given(name, value === null ? null : formatTime(value))

export function presentAlarm(record: AlarmRecord, domainId: string): AlarmView {
  return {
    id: record.id,
    domain_id: domainId,
    rule_id: record.ruleId,
    rule_name: record.ruleName,
    ...given('client_id', record.clientId),
    client_name: record.clientName,
    ...given('channel_id', record.channelId),
    channel_name: record.channelName,
    subtopic: record.subtopic,
    name: record.name,
    unit: record.unit,
    severity: record.severity,
    status: record.clearedAt !== null ? 'cleared' : record.acknowledgedAt !== null ? 'acknowledged' : 'active',
    value: record.value,
    text: record.text,
    condition: record.condition,
    cause: record.cause,
    count: record.count,
    escalations: record.escalations,
    comments: record.comments,
    first_at: formatTime(record.firstAt),
    last_at: formatTime(record.lastAt),
    ...time('acknowledged_at', record.acknowledgedAt),
    ...given('acknowledged_by', record.acknowledgedBy),
    ...given('acknowledged_by_name', record.acknowledgedByName),
    ...given('assignee_id', record.assigneeId),
    ...given('assignee_name', record.assigneeName),
    ...time('cleared_at', record.clearedAt),
    ...given('cleared_by', record.clearedBy),
    ...given('cleared_by_name', record.clearedByName),
    ...given('maintenance_id', record.maintenanceId),
    ...given('maintenance_name', record.maintenanceName === '' ? null : record.maintenanceName),
    ...time('silenced_until', record.silencedUntil),
    updated_at: formatTime(record.updatedAt),
  }
}

export function presentChange(change: AlarmChange): Static<typeof AlarmHistoryItem> {
  return {
    at: formatTime(change.at),
    change: change.change,
    ...given('actor_id', change.actorId),
    ...given('actor_name', change.actorName),
    ...given('assignee_id', change.assigneeId),
    ...given('assignee_name', change.assigneeName),
    ...given('comment', change.comment === '' ? null : change.comment),
  }
}
