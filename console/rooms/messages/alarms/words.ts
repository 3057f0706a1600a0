/** Alarms in words. Pure. */
import type { Alarm } from '../../../api/operations.ts'
import { formatJson } from '../../../api/json.ts'
import { formatValue } from '../../../design/display.tsx'
import type { Tone } from '../../../design/display.tsx'

export type Severity = Alarm['severity']
export type AlarmStatus = Alarm['status']

export const SEVERITIES: readonly Severity[] = ['critical', 'major', 'warning', 'info']

export const SEVERITY_WORDS: Readonly<Record<Severity, readonly [Tone, string]>> = {
  critical: ['bad', 'Critical'],
  major: ['bad', 'Major'],
  warning: ['warn', 'Warning'],
  info: ['active', 'Info'],
}

export const STATUS_WORDS: Readonly<Record<AlarmStatus, readonly [Tone, string]>> = {
  active: ['active', 'Active'],
  acknowledged: ['idle', 'Acknowledged'],
  cleared: ['ok', 'Cleared'],
}

/** The value for which the condition last held, with its unit. Empty: none. */
export function valueOf({ value, unit }: Pick<Alarm, 'value' | 'unit'>): string {
  if (value === null || value === undefined) return ''
  const text = typeof value === 'number' ? formatValue(value) : typeof value === 'string' ? value : formatJson(value)
  return unit === '' ? text : `${text} ${unit}`
}

/** What the message was about: the subtopic and the name of the record. Empty for a JSON object without a subtopic. */
export const seriesText = ({ subtopic, name }: Pick<Alarm, 'subtopic' | 'name'>) =>
  [subtopic, name].filter((part) => part !== '').join(' ')

/**
 * The filters with which the messages of the channel show the message that raised the alarm. A position ends with the number of the batch
 * and that of the message in it, which are the id of the message.
 */
export function causeFilters({ cause, name, subtopic }: Pick<Alarm, 'cause' | 'name' | 'subtopic'>) {
  const [, batch = '', message = ''] = cause.split('-')
  const format = subtopic === '' ? 'json' : (subtopic.split(/[./]/).at(-1) ?? '')
  return { message: `${batch}/${message}`, ...(name === '' ? { format } : {}) }
}
