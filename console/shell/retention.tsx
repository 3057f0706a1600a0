/** How long messages and alarms are kept: periods to choose from, and a way back to what applies without one. */
import { SelectField } from '../design/controls.tsx'
import { formatCount } from '../design/display.tsx'

/** The server rounds periods of messages up to one of these. */
const PERIODS_DAYS = [7, 30, 90, 365, 3_650]
const KEPT = ''

/** Null: no period, so that the next wider rule decides. */
export const retentionOf = (value: string): number | null => (value === KEPT ? null : Number(value))

function optionsOf(value: string, none: string): [string, string][] {
  const known = [...new Set([...PERIODS_DAYS, ...(value === KEPT ? [] : [Number(value)])])].toSorted((a, b) => a - b)
  return [
    [KEPT, none],
    ...known.map((days): [string, string] => [
      String(days),
      `Deleted after ${formatCount(days)} ${days === 1 ? 'day' : 'days'}`,
    ]),
  ]
}

/** `none`: what applies without a period. */
export function RetentionField({
  value,
  onChange,
  none,
}: {
  value: string
  onChange: (value: string) => void
  none: string
}) {
  return (
    <SelectField
      label="Messages are"
      field="retention_days"
      value={value}
      onChange={onChange}
      options={optionsOf(value, none)}
      hint={
        value === KEPT
          ? 'Messages that are stored keep the period with which they arrived'
          : 'Messages that arrive from now on are deleted then, some days later at most. Those that are stored keep the period with which they arrived'
      }
    />
  )
}

export function AlarmRetentionField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <SelectField
      label="Cleared alarms are"
      field="alarm_retention_days"
      value={value}
      onChange={onChange}
      options={optionsOf(value, 'Deleted when the platform says it, by default after 365 days')}
      hint="With their comments, within an hour after the period. Open alarms are kept"
    />
  )
}
