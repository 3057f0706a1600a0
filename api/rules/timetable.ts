/** Schedules as the source of rules: what may be said beside them, and when they are due. */
import { refusedField } from '#core/errors/index.ts'
import { requireSchedule } from '#core/schedule.ts'
import { nextTick } from '#core/ticks.ts'
import type { Timetable } from '#core/ticks.ts'
import { parseDurationMs } from '#core/time.ts'
import type { Expression } from './engine/index.ts'
import type { RuleDefinition } from './schema.ts'

/** The times of a rule whose source is a schedule, and what it does at each. */
export type ScheduleSource = Timetable & {
  /** It is evaluated for each series that matches; otherwise it acts once for each scheduled time. */
  isOverSeries: boolean
  /** Without a condition it acts each time, and has no state. */
  hasCondition: boolean
}

const DEFAULT_ZONE = 'UTC'
const OF_SCHEDULE = ['schedule', 'timezone', 'catch_up'] as const
/** What is chosen of the series. */
const OF_SERIES = ['subtopic', 'clients', 'groups', 'tags'] as const
/** A series has no message. */
const OF_MESSAGES: readonly string[] = ['string_value', 'bool_value', 'json', 'protocol']

/** Undefined: the rule is about something else. Throws `malformed`, which names the field. */
export function scheduleOf(definition: RuleDefinition): ScheduleSource | undefined {
  const { source } = definition
  if (source.type !== 'schedule') {
    for (const field of OF_SCHEDULE)
      if (source[field] !== undefined) throw refusedField(`/source/${field}`, 'must be absent: it is of schedule')
    return undefined
  }
  const { schedule = '', timezone = DEFAULT_ZONE, catch_up: catchUp = 'none' } = source
  if (schedule === '') throw refusedField('/source/schedule', 'is required: a cron expression such as 0 6 * * *')
  requireSchedule(schedule, timezone, '/source')
  const isOverSeries = source.names !== undefined
  for (const field of isOverSeries ? [] : OF_SERIES)
    if (source[field] !== undefined)
      throw refusedField(`/source/${field}`, 'requires `names`: without them the rule looks at no series')
  const hasCondition = definition.condition !== ''
  if (hasCondition && !isOverSeries)
    throw refusedField('/condition', 'requires `names` in `source`: without them there is no series to look at')
  if (!hasCondition) refuseShape(definition)
  return { schedule, timezone, catchUp, isOverSeries, hasCondition }
}

/** Without a condition nothing begins to hold, and nothing ends. */
function refuseShape({ for: hold, clear_when: clearWhen, clear_for: clearHold, cooldown, actions }: RuleDefinition) {
  if ((clearWhen ?? '') !== '')
    throw refusedField('/clear_when', 'must be absent: a schedule without a condition has no end')
  for (const [field, text] of [
    ['for', hold],
    ['clear_for', clearHold],
    ['cooldown', cooldown],
  ] as const)
    if (text !== undefined && text !== '' && parseDurationMs(text, `/${field}`) !== 0)
      throw refusedField(`/${field}`, 'must be absent: a schedule without a condition acts each time')
  if (actions === undefined || actions.length === 0)
    throw refusedField('/actions', 'is required: a schedule without a condition raises no alarm')
  const alarm = actions.findIndex(({ type }) => type === 'alarm')
  if (alarm !== -1)
    throw refusedField(`/actions/${alarm}`, 'must not be an alarm: without a condition nothing would clear it')
  for (const [index, action] of actions.entries())
    if (action.type !== 'alarm' && action.on !== undefined && !action.on.includes('raise'))
      throw refusedField(
        `/actions/${index}/on`,
        'must have `raise`: a schedule without a condition has no other moment',
      )
}

/** Throws `malformed` for what conditions of a schedule cannot look at. */
export function requireOfSeries(
  schedule: ScheduleSource | undefined,
  conditions: Readonly<Record<string, Expression | undefined>>,
): void {
  if (schedule === undefined) return
  for (const [path, expression] of Object.entries(conditions)) {
    const found = [...(expression?.variables ?? [])].find((name) => OF_MESSAGES.includes(name))
    if (found !== undefined) throw refusedField(path, `must not have ${found}: it is of messages`)
  }
}

/** The first scheduled time after this one; null: there is none, or the rule is about something else. */
export function nextTickOf({ source }: Pick<RuleDefinition, 'source'>, after: Date): Date | null {
  if (source.type !== 'schedule' || source.schedule === undefined) return null
  return nextTick(source.schedule, source.timezone ?? DEFAULT_ZONE, after) ?? null
}

/** Whether both have the same scheduled times. */
export const isSameTimetable = (one: RuleDefinition['source'], other: RuleDefinition['source']): boolean =>
  one.type === other.type &&
  one.schedule === other.schedule &&
  (one.timezone ?? DEFAULT_ZONE) === (other.timezone ?? DEFAULT_ZONE)
