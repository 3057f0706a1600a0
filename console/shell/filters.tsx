/** The filter bar of a list: a name, and chips for everything else. All of it is in the address. */
import { useEffect, useState } from 'react'
import { Button, SelectField, TextField } from '../design/controls.tsx'
import { absoluteTime } from '../design/display.tsx'
import { localAction } from '../design/form.tsx'
import { Icon } from '../design/icon.tsx'
import { FormDialog } from '../design/layers.tsx'
import { localTextOf } from './local-time.ts'
import { useViews } from './url.ts'

export type FilterField = {
  readonly name: string
  readonly label: string
  readonly hint?: string
  readonly options?: readonly string[]
  /** A moment: seconds since 1970 in the address. */
  readonly isTime?: boolean
}

const TYPING_MS = 250

export const splitTags = (text: string) =>
  text
    .split(',')
    .map((tag) => tag.trim())
    .filter((tag) => tag !== '')

export function Filters({
  fields,
  placeholder = 'Filter by name',
  hasName = true,
}: {
  fields: readonly FilterField[]
  placeholder?: string
  /** Whether the rows have names to filter by. */
  hasName?: boolean
}) {
  const [views, setViews] = useViews()
  const [text, setText] = useState(views['name'] ?? '')
  const [isAdding, setAdding] = useState(false)
  const given = views['name'] ?? ''
  useEffect(() => setText(given), [given])
  useEffect(() => {
    if (text === given) return
    const timer = setTimeout(() => setViews({ name: text }), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text, given, setViews])
  const chips = fields.filter(({ name }) => (views[name] ?? '') !== '')
  return (
    <div className="row wrap">
      {hasName ? (
        <div className="search">
          <Icon name="search" />
          <input
            className="input"
            data-filter
            type="search"
            placeholder={placeholder}
            aria-label={placeholder}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </div>
      ) : null}
      <div className="chips">
        {chips.map(({ name, label, isTime }) => (
          <span key={name} className="chip">
            {label}: {isTime === true ? absoluteTime(Number(views[name]) * 1_000) : views[name]}
            <button type="button" aria-label={`Remove the filter ${label}`} onClick={() => setViews({ [name]: '' })}>
              <Icon name="close" size="small" />
            </button>
          </span>
        ))}
        {chips.length === fields.length ? null : (
          <Button kind="quiet" icon="plus" onClick={() => setAdding(true)}>
            Filter
          </Button>
        )}
      </div>
      {isAdding ? <FilterDialog fields={fields} onClose={() => setAdding(false)} /> : null}
    </div>
  )
}

/** Seconds since 1970 as a field of a form shows them, in the time zone of the browser. */
const toLocal = (seconds: string) => (seconds === '' ? '' : localTextOf(new Date(Number(seconds) * 1_000)))

const toSeconds = (local: string) => (local === '' ? '' : String(new Date(local).getTime() / 1_000))

function FilterDialog({ fields, onClose }: { fields: readonly FilterField[]; onClose: () => void }) {
  const [views, setViews] = useViews()
  const [values, setValues] = useState<Record<string, string>>(
    Object.fromEntries(fields.map(({ name }) => [name, views[name] ?? ''])),
  )
  return (
    <FormDialog
      title="Filter"
      submit="Apply"
      onClose={onClose}
      action={localAction(() => {
        setViews(values)
        onClose()
      })}
    >
      {fields.map(({ name, label, hint, options, isTime }) =>
        isTime === true ? (
          <TextField
            key={name}
            label={label}
            hint={hint}
            type="datetime-local"
            step={1}
            value={toLocal(values[name] ?? '')}
            onChange={(value) => setValues({ ...values, [name]: toSeconds(value) })}
          />
        ) : options === undefined ? (
          <TextField
            key={name}
            label={label}
            hint={hint}
            value={values[name] ?? ''}
            onChange={(value) => setValues({ ...values, [name]: value })}
          />
        ) : (
          <SelectField
            key={name}
            label={label}
            hint={hint}
            value={values[name] ?? ''}
            onChange={(value) => setValues({ ...values, [name]: value })}
            options={[['', 'Any'], ...options.map((one): [string, string] => [one, one])]}
          />
        ),
      )}
    </FormDialog>
  )
}
