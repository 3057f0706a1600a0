/** The time picker of a page of charts. */
import { useState } from 'react'
import { Button, Segments, SelectField, TextField } from '../../../design/controls.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { InputError, useFormAction } from '../../../shell/action.ts'
import { BROWSER_ZONE, localTextOf } from '../../../shell/local-time.ts'
import { RANGES, calendarRanges } from './ranges.ts'
import type { Range } from './ranges.ts'
import type { PageRange } from './use-range.ts'

/** A time with its day, in the zone of the page. */
export function timeText(seconds: number, isUtc: boolean): string {
  return new Date(seconds * 1_000).toLocaleString(undefined, {
    dateStyle: 'medium',
    timeStyle: 'medium',
    hourCycle: 'h23',
    ...(isUtc ? { timeZone: 'UTC' } : {}),
  })
}

export function RangeBar({ range }: { range: PageRange }) {
  const [isChoosing, setChoosing] = useState(false)
  const { from, to, quick, isUtc, isLive } = range
  return (
    <div className="range-bar" role="group" aria-label="Time">
      <Segments
        label="Range"
        value={quick ?? ''}
        onChange={range.setQuick}
        options={Object.keys(RANGES).map((key): [string, string] => [key, key])}
      />
      <span className="row">
        <Button icon="left" label="Earlier" onClick={() => range.shift(-1)} />
        <Button icon="wait" onClick={() => setChoosing(true)}>
          {isLive ? `Last ${quick ?? ''}` : `${timeText(from, isUtc)} to ${timeText(to, isUtc)}`}
        </Button>
        <Button
          icon="right"
          label="Later"
          onClick={() => range.shift(1)}
          disabledReason={isLive ? 'The range ends now' : undefined}
        />
        <Button icon="minus" label="Zoom out" onClick={range.zoomOut} />
      </span>
      <Segments
        label="Time zone"
        value={isUtc ? 'utc' : 'browser'}
        onChange={(zone) => range.setUtc(zone === 'utc')}
        options={[
          ['browser', BROWSER_ZONE === 'UTC' ? 'Browser' : BROWSER_ZONE],
          ['utc', 'UTC'],
        ]}
      />
      {isChoosing ? <RangeDialog range={range} onClose={() => setChoosing(false)} /> : null}
    </div>
  )
}

/** Returns the time as a field for a date and a time shows and reads it, to the second. */
function fieldText(seconds: number, isUtc: boolean): string {
  const at = new Date(Math.floor(seconds) * 1_000)
  return isUtc ? at.toISOString().slice(0, 19) : localTextOf(at)
}

function secondsOf(field: 'from' | 'to', text: string, isUtc: boolean): number {
  const at = Date.parse(isUtc ? `${text}Z` : text) / 1_000
  if (Number.isNaN(at)) throw new InputError(field, 'Enter a date and a time')
  return at
}

const CUSTOM = 'Custom'

function RangeDialog({ range, onClose }: { range: PageRange; onClose: () => void }) {
  const { isUtc } = range
  const [texts, setTexts] = useState({ from: fieldText(range.from, isUtc), to: fieldText(range.to, isUtc) })
  const [named, setNamed] = useState(CUSTOM)
  const calendar = calendarRanges(Date.now(), isUtc)
  const fill = ({ from, to }: Range) => setTexts({ from: fieldText(from, isUtc), to: fieldText(to, isUtc) })
  const show = useFormAction('The range was not changed', () => {
    const [from, to] = [secondsOf('from', texts.from, isUtc), secondsOf('to', texts.to, isUtc)]
    if (to <= from) throw new InputError('to', 'The end must be later than the beginning')
    range.setRange({ from, to })
    onClose()
    return Promise.resolve()
  })
  const field = (name: 'from' | 'to', label: string) => (
    <TextField
      label={label}
      field={name}
      type="datetime-local"
      step={1}
      required
      value={texts[name]}
      onChange={(text) => {
        setTexts({ ...texts, [name]: text })
        setNamed(CUSTOM)
      }}
    />
  )
  return (
    <FormDialog title="Range of time" submit="Show" action={show} onClose={onClose}>
      <SelectField
        label="Calendar"
        value={named}
        onChange={(name) => {
          setNamed(name)
          const found = calendar.find((one) => one.name === name)
          if (found !== undefined) fill(found.range)
        }}
        options={[CUSTOM, ...calendar.map(({ name }) => name)].map((name): [string, string] => [name, name])}
      />
      {field('from', 'From')}
      {field('to', 'To')}
      <p className="muted small">Times are in {isUtc ? 'UTC' : `the zone of the browser, ${BROWSER_ZONE}`}.</p>
    </FormDialog>
  )
}
