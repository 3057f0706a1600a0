/** How long messages are kept: the periods that the server has, and a way back to keeping them. */
import { SelectField } from '../design/controls.tsx'
import { formatCount } from '../design/display.tsx'

/** Others are rounded up to one of them. */
const PERIODS_DAYS = [7, 30, 90, 365, 3_650]
const KEPT = ''

/** Null: no period, so that the next wider rule decides. */
export const retentionOf = (value: string): number | null => (value === KEPT ? null : Number(value))

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
  const known = [...new Set([...PERIODS_DAYS, ...(value === KEPT ? [] : [Number(value)])])].toSorted((a, b) => a - b)
  return (
    <SelectField
      label="Messages are"
      field="retention_days"
      value={value}
      onChange={onChange}
      options={[
        [KEPT, none],
        ...known.map((days): [string, string] => [
          String(days),
          `Deleted after ${formatCount(days)} ${days === 1 ? 'day' : 'days'}`,
        ]),
      ]}
      hint={
        value === KEPT
          ? 'Messages that are stored keep the period with which they arrived'
          : 'Messages that arrive from now on are deleted then, some days later at most. Those that are stored keep the period with which they arrived'
      }
    />
  )
}
