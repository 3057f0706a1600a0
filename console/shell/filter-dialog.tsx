/** The form of the filters of a list. */
import { useState } from 'react'
import { SelectField, TextField } from '../design/controls.tsx'
import { localAction } from '../design/form.tsx'
import { FormDialog } from '../design/layers.tsx'
import { OneEntity } from './entity-choice.tsx'
import type { FilterField } from './filters.tsx'
import { localTextOf } from './local-time.ts'
import { useDomainId, useViews } from './url.ts'

/** Seconds since 1970 as a field of a form shows them, in the time zone of the browser. */
const toLocal = (seconds: string) => (seconds === '' ? '' : localTextOf(new Date(Number(seconds) * 1_000)))

const toSeconds = (local: string) => (local === '' ? '' : String(new Date(local).getTime() / 1_000))

export function FilterDialog({ fields, onClose }: { fields: readonly FilterField[]; onClose: () => void }) {
  const [views, setViews] = useViews()
  const domain = useDomainId()
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
      {fields.map(({ name, label, hint, options, isTime, of }) =>
        of !== undefined ? (
          <OneEntity
            key={name}
            type={of}
            domain={domain}
            label={label}
            hint={hint}
            id={values[name] ?? ''}
            onChange={(id) => setValues({ ...values, [name]: id })}
          />
        ) : isTime === true ? (
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
