/** Wire shapes of maintenance windows. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Name, RequiredName, Timestamp } from '#api/identity/index.ts'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatDurationMs, formatTime } from '#core/time.ts'
import type { WindowRecord } from './repository.ts'

const MAX_DESCRIPTION_CHARS = 1_024
const MAX_TIME_CHARS = 64
const MAX_SCHEDULE_CHARS = 256
const MAX_TIMEZONE_CHARS = 64
const MAX_DURATION_CHARS = 32
const MAX_TAG_CHARS = 255
const MAX_LISTED = 100

const ids = (what: string) =>
  Type.Optional(Type.Array(Id, { maxItems: MAX_LISTED, uniqueItems: true, description: what }))

const instant = (description: string) =>
  Type.Optional(
    Type.String({
      maxLength: MAX_TIME_CHARS,
      description: `${description} (RFC 3339); empty: none`,
      ...documented({ format: 'date-time' }),
    }),
  )

const fields = {
  description: Type.Optional(Type.String({ maxLength: MAX_DESCRIPTION_CHARS })),
  starts_at: instant('When it starts; with `schedule`, nothing before it is maintenance'),
  ends_at: instant('When it ends; with `schedule`, nothing from then on is maintenance'),
  schedule: Type.Optional(
    Type.String({
      maxLength: MAX_SCHEDULE_CHARS,
      description:
        'Cron expression of the times when it starts, such as `0 2 * * 0` for each Sunday at 02:00; empty: it is once, from `starts_at` to `ends_at`',
    }),
  ),
  timezone: Type.Optional(
    Type.String({ maxLength: MAX_TIMEZONE_CHARS, description: 'Time zone of `schedule`; defaults to UTC' }),
  ),
  duration: Type.Optional(
    Type.String({
      maxLength: MAX_DURATION_CHARS,
      description:
        'With `schedule`: how long it lasts each time, 1m to 720h and less than from one start to the next. It is elapsed time, also where daylight saving begins or ends',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
  ),
  rules: ids('Ids of the rules that it is about; absent or empty: all'),
  clients: ids('Ids of the clients that it is about; absent or empty: all'),
  groups: ids('Only clients in these groups, and in the groups below them'),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: MAX_TAG_CHARS }), {
      maxItems: MAX_LISTED,
      uniqueItems: true,
      description: 'Only clients with one of these tags',
    }),
  ),
}

export const NewWindow = Type.Object({ name: RequiredName, ...fields }, { $id: 'MaintenanceWindowCreate' })
export type NewWindow = Static<typeof NewWindow>

export const WindowUpdate = Type.Object(
  { name: Type.Optional(RequiredName), ...fields },
  {
    $id: 'MaintenanceWindowUpdate',
    description: 'Absent fields are unchanged; an empty text or list takes the field out',
  },
)
export type WindowUpdate = Static<typeof WindowUpdate>

export const WindowQuery = Type.Object({ ...pageQuery(), name: Type.Optional(Name) })
export type WindowQuery = Static<typeof WindowQuery>

const NAMED = ['rule', 'client', 'group'] as const

export const WindowView = Type.Object(
  {
    id: Id,
    domain_id: Id,
    name: Type.String(),
    description: Type.String(),
    starts_at: Type.Optional(Timestamp),
    ends_at: Type.Optional(Timestamp),
    schedule: Type.Optional(Type.String({ description: 'Absent: it is once' })),
    timezone: Type.Optional(Type.String()),
    duration: Type.Optional(Type.String()),
    rules: Type.Array(Id, { description: 'Empty: all' }),
    clients: Type.Array(Id, { description: 'Empty: all' }),
    groups: Type.Array(Id, { description: 'Empty: all' }),
    tags: Type.Array(Type.String(), { description: 'Empty: all' }),
    named: Type.Array(Type.Object({ type: Type.Enum([...NAMED]), id: Id, name: Type.String() }), {
      description: 'Names of what it names by id; deleted entities are absent',
    }),
    active_until: Type.Optional(
      Type.String({ format: 'date-time', description: 'When the maintenance ends that is now; absent: none is' }),
    ),
    next_at: Type.Optional(
      Type.String({ format: 'date-time', description: 'When it starts next; absent: it does not' }),
    ),
    created_by: Id,
    created_at: Timestamp,
    updated_by: Type.Optional(Id),
    updated_at: Timestamp,
  },
  {
    $id: 'MaintenanceWindow',
    description: 'Planned times in which rules raise alarms, and neither send mails nor call webhooks',
  },
)
export type WindowView = Static<typeof WindowView>

export const WindowPage = Type.Object({ ...pageFields, maintenance_windows: Type.Array(WindowView) })

const time = <Name extends string>(name: Name, ms: number | null | undefined) =>
  (ms === null || ms === undefined ? {} : { [name]: formatTime(new Date(ms)) }) as { [K in Name]?: string }

export function presentWindow(record: WindowRecord, domainId: string): WindowView {
  const { plan } = record
  const { schedule } = plan
  return {
    id: record.id,
    domain_id: domainId,
    name: record.name,
    description: record.description,
    ...time('starts_at', plan.startsAtMs),
    ...time('ends_at', plan.endsAtMs),
    ...(schedule === null
      ? {}
      : {
          schedule: schedule.expression,
          timezone: schedule.timezone,
          duration: formatDurationMs(schedule.durationMs),
        }),
    rules: [...(record.rules ?? [])],
    clients: [...(record.clients ?? [])],
    groups: [...(record.groups ?? [])],
    tags: [...(record.tags ?? [])],
    named: record.named,
    ...time('active_until', record.activeUntilMs),
    ...time('next_at', record.nextAtMs),
    created_by: record.createdBy,
    created_at: formatTime(record.createdAt),
    ...(record.updatedBy === null ? {} : { updated_by: record.updatedBy }),
    updated_at: formatTime(record.updatedAt),
  }
}
