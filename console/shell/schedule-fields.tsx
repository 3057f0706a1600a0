/** When something starts by itself: a rhythm or a cron expression, the time zone, and the next times. */
import { nextTimes } from '#core/cron.ts'
import { SelectField, TextField } from '../design/controls.tsx'
import { Notice } from '../design/display.tsx'
import { BROWSER_ZONE } from './local-time.ts'
import { MINUTES, RHYTHMS, WEEKDAYS, cronOf } from './schedule-form.ts'
import type { Rhythm, ScheduleForm } from './schedule-form.ts'

const SHOWN_TIMES = 5
const ZONES_LIST = 'zones-of-schedules'

export function ScheduleFields({
  form,
  onChange,
  timezone,
  onTimezone,
  isRequired = false,
}: {
  form: ScheduleForm
  onChange: (form: ScheduleForm) => void
  timezone: string
  onTimezone: (timezone: string) => void
  /** There is no choice without a schedule. */
  isRequired?: boolean
}) {
  const schedule = cronOf(form)
  const change = (changes: Partial<ScheduleForm>) => onChange({ ...form, ...changes })
  return (
    <>
      <SelectField
        label="Starts"
        value={form.rhythm}
        // A rhythm that becomes an expression begins as this rhythm.
        onChange={(value) => change({ rhythm: value as Rhythm, ...(value === 'cron' ? { cron: schedule } : {}) })}
        options={RHYTHMS.filter(([rhythm]) => !isRequired || rhythm !== 'none')}
      />
      <RhythmFields form={form} onChange={change} />
      {schedule === '' ? null : (
        <>
          <TextField
            label="Time zone"
            field="timezone"
            value={timezone}
            onChange={onTimezone}
            list={ZONES_LIST}
            hint={`The zone of this browser is ${BROWSER_ZONE}`}
          />
          <datalist id={ZONES_LIST}>
            {Intl.supportedValuesOf('timeZone').map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
          <NextTimes schedule={schedule} timezone={timezone.trim()} />
        </>
      )}
    </>
  )
}

function RhythmFields({ form, onChange }: { form: ScheduleForm; onChange: (changes: Partial<ScheduleForm>) => void }) {
  const { rhythm, every, minute, time, weekday, day, cron } = form
  const hasTime = ['daily', 'weekdays', 'weekly', 'monthly'].includes(rhythm)
  return (
    <>
      {rhythm === 'minutes' ? (
        <SelectField
          label="Minutes between two starts"
          value={every}
          onChange={(value) => onChange({ every: value })}
          options={MINUTES.map((one): [string, string] => [one, one])}
        />
      ) : null}
      {rhythm === 'hourly' ? (
        <TextField
          label="At minute"
          type="number"
          min={0}
          max={59}
          required
          value={minute}
          onChange={(value) => onChange({ minute: value })}
        />
      ) : null}
      {rhythm === 'weekly' ? (
        <SelectField
          label="Day"
          value={weekday}
          onChange={(value) => onChange({ weekday: value })}
          options={WEEKDAYS}
        />
      ) : null}
      {rhythm === 'monthly' ? (
        <TextField
          label="Day of the month"
          type="number"
          min={1}
          max={31}
          required
          value={day}
          onChange={(value) => onChange({ day: value })}
          hint={Number(day) > 28 ? 'A month without this day is left out' : undefined}
        />
      ) : null}
      {hasTime ? (
        <TextField label="At" type="time" required value={time} onChange={(value) => onChange({ time: value })} />
      ) : null}
      {rhythm === 'cron' ? (
        <TextField
          label="Cron"
          field="schedule"
          value={cron}
          onChange={(value) => onChange({ cron: value })}
          placeholder="0 9 * * 1-5"
          hint="Minute, hour, day of the month, month, day of the week; six fields begin with the second. Empty: no schedule"
        />
      ) : null}
    </>
  )
}

function NextTimes({ schedule, timezone }: { schedule: string; timezone: string }) {
  let times: Date[] | undefined
  let shown: Intl.DateTimeFormat | undefined
  try {
    shown = new Intl.DateTimeFormat(undefined, {
      weekday: 'short',
      year: 'numeric',
      month: 'short',
      day: 'numeric',
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
      timeZone: timezone,
      timeZoneName: 'short',
    })
    times = nextTimes(schedule, timezone, new Date(), SHOWN_TIMES)
  } catch {
    times = undefined
  }
  if (times === undefined || shown === undefined)
    return <Notice tone="warn">This is not a cron expression in a time zone, such as Europe/Paris.</Notice>
  if (times.length === 0) return <Notice tone="warn">There is no such time.</Notice>
  const format = shown
  return (
    <div className="stack">
      <h3>The next times</h3>
      <ol className="plain-list" aria-label="Next times">
        {times.map((at) => (
          <li key={at.getTime()}>{format.format(at)}</li>
        ))}
      </ol>
    </div>
  )
}
