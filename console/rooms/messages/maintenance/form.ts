/** What the form of a maintenance window makes of its fields. Pure. */
import type { MaintenanceWindow, MaintenanceWindowCreate } from '../../../api/operations.ts'
import type { Tone } from '../../../design/display.tsx'
import { splitTags } from '../../../shell/tags.ts'
import { instantOf, localTextOf } from '../../../shell/local-time.ts'
import { cronOf, formOf as scheduleFormOf } from '../../../shell/schedule-form.ts'
import type { ScheduleForm } from '../../../shell/schedule-form.ts'

export type WindowForm = {
  name: string
  description: string
  isRepeated: boolean
  /** In the time zone of the browser. */
  startsAt: string
  endsAt: string
  schedule: ScheduleForm
  timezone: string
  duration: string
  rules: readonly string[]
  clients: readonly string[]
  groups: readonly string[]
  tags: string
}

/** Sundays at 02:00, until a person says something else. */
const WEEKLY = '0 2 * * 0'
const DURATION = '2h'

/** `zone`: that of the browser. */
export const formOf = (window: MaintenanceWindow | undefined, zone: string): WindowForm => ({
  name: window?.name ?? '',
  description: window?.description ?? '',
  isRepeated: window?.schedule !== undefined,
  startsAt: window?.starts_at === undefined ? '' : localTextOf(new Date(window.starts_at)),
  endsAt: window?.ends_at === undefined ? '' : localTextOf(new Date(window.ends_at)),
  schedule: scheduleFormOf(window?.schedule ?? WEEKLY),
  timezone: window?.timezone ?? zone,
  duration: window?.duration ?? DURATION,
  rules: window?.rules ?? [],
  clients: window?.clients ?? [],
  groups: window?.groups ?? [],
  tags: (window?.tags ?? []).join(', '),
})

/** All of it: what is empty is taken out of a window that exists. */
export const bodyOf = (form: WindowForm) =>
  ({
    name: form.name.trim(),
    description: form.description.trim(),
    starts_at: instantOf(form.startsAt),
    ends_at: instantOf(form.endsAt),
    ...(form.isRepeated
      ? { schedule: cronOf(form.schedule), timezone: form.timezone.trim(), duration: form.duration.trim() }
      : { schedule: '', timezone: '', duration: '' }),
    rules: [...form.rules],
    clients: [...form.clients],
    groups: [...form.groups],
    tags: splitTags(form.tags),
  }) satisfies MaintenanceWindowCreate

/** What is missing before it can be sent: a choice has no field of its own that the browser requires. */
export const lackOf = ({ isRepeated, schedule }: WindowForm): string | undefined =>
  isRepeated && cronOf(schedule) === '' ? 'Say when it starts first' : undefined

export function standingOf({ active_until: until, next_at: next }: MaintenanceWindow): { tone: Tone; text: string } {
  if (until !== undefined) return { tone: 'warn', text: 'In maintenance' }
  return next === undefined ? { tone: 'idle', text: 'Over' } : { tone: 'ok', text: 'Planned' }
}

const TYPES = ['rule', 'client', 'group'] as const

/** What it is about, by names; what was deleted is counted only. */
export function scopeText({ rules, clients, groups, tags, named }: MaintenanceWindow): string {
  const ids = { rule: rules, client: clients, group: groups }
  const parts = TYPES.flatMap((type) => {
    const [first, ...others] = ids[type]
    if (first === undefined) return []
    const name = named.find((one) => one.type === type && one.id === first)?.name
    const more = others.length === 0 ? '' : ` and ${others.length} more`
    return [`${type} ${name === undefined ? 'that was deleted' : name}${more}`]
  })
  const all = [...parts, ...(tags.length === 0 ? [] : [`tag ${tags.join(' or ')}`])]
  return all.length === 0 ? 'all rules and clients' : all.join(', ')
}
