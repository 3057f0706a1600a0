/** Forms of what is desired: by field, with a type each, or as JSON. A change that another user made meanwhile is shown before it is replaced. */
import { useState } from 'react'
import type { DeviceState } from '../../../api/operations.ts'
import { formatJson } from '../../../api/json.ts'
import { Button, Segments, SmallSelect, TextArea, TextField } from '../../../design/controls.tsx'
import { Notice } from '../../../design/display.tsx'
import { FormDialog } from '../../../design/layers.tsx'
import { InputError, useFormAction } from '../../../shell/action.ts'
import { differenceOf } from '../../../shell/changes.ts'
import { FieldFault, TYPES, documentOf, formFieldsOf, parseDocument } from './fields.ts'
import type { Document, FormField, Type } from './fields.ts'
import { Conflict, replaceDesired } from './store.ts'
import type { Place } from './store.ts'

/** A document with more fields is edited as JSON. */
const MAX_FIELDS = 100
const MAX_DIFFERENCES = 20
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
const FIRST: FormField = { id: 0, name: '', type: 'text', text: '' }

type Form = { readonly shape: 'fields' | 'json'; readonly fields: readonly FormField[]; readonly text: string }

function formOf(document: Document): Form {
  const fields = formFieldsOf(document)
  return {
    shape: fields.length > MAX_FIELDS ? 'json' : 'fields',
    fields: fields.length === 0 ? [FIRST] : fields.slice(0, MAX_FIELDS),
    text: formatJson(document, 2),
  }
}

/** Throws `FieldFault`, and an error with a sentence. An empty row is not a field. */
function readForm({ shape, fields, text }: Form): Document {
  return shape === 'json' ? parseDocument(text) : documentOf(fields.filter((one) => one.name !== '' || one.text !== ''))
}

const refused = (error: unknown) =>
  error instanceof FieldFault
    ? new InputError(`field-${error.id}`, error.message)
    : new InputError('document', (error as Error).message)

function read(form: Form): Document {
  try {
    return readForm(form)
  } catch (error) {
    throw refused(error)
  }
}

export function EditDocument({ state, place, onClose }: { state: DeviceState; place: Place; onClose: () => void }) {
  /** What the form began with. Newer reports and changes do not change the form. */
  const [base, setBase] = useState<Pick<DeviceState, 'desired' | 'version'>>(state)
  const [form, setForm] = useState(() => formOf(state.desired))
  const [newer, setNewer] = useState<DeviceState>()
  const save = useFormAction(
    'What is desired was not changed',
    async () => {
      const document = read(form)
      try {
        await replaceDesired(place, document, newer ?? base)
      } catch (error) {
        if (error instanceof Conflict) setNewer(error.current)
        throw error
      }
      return 'Saved'
    },
    onClose,
  )
  const adopt = () => {
    if (newer === undefined) return
    setBase(newer)
    setForm(formOf(newer.desired))
    setNewer(undefined)
    save.clear()
  }
  return (
    <FormDialog
      title="Edit what is desired"
      submit={newer === undefined ? 'Save' : 'Replace the newer one'}
      kind="wide"
      action={save}
      onClose={onClose}
    >
      {newer === undefined ? null : <Newer base={base.desired} newer={newer} onAdopt={adopt} />}
      <DocumentFields form={form} onChange={setForm} />
    </FormDialog>
  )
}

/** What another user changed since the form was opened. */
function Newer({ base, newer, onAdopt }: { base: Document; newer: DeviceState; onAdopt: () => void }) {
  const changes = differenceOf({ before: base, after: newer.desired })
  return (
    <Notice tone="warn" actions={<Button onClick={onAdopt}>Edit the newer one</Button>}>
      Another user changed what is desired while you edited it. Version {newer.version} has:
      <ul aria-label="Changes of the newer document">
        {changes.slice(0, MAX_DIFFERENCES).map(({ field, before, after }) => (
          <li key={field}>
            <code>{field}</code>: {before === undefined ? null : <del>{before}</del>}{' '}
            {after === undefined ? 'removed' : <ins>{after}</ins>}
          </li>
        ))}
        {changes.length > MAX_DIFFERENCES ? <li>and {changes.length - MAX_DIFFERENCES} more</li> : null}
      </ul>
    </Notice>
  )
}

export function NewDocument({
  domain,
  client,
  taken,
  onClose,
}: {
  domain: string
  client: string
  taken: readonly string[]
  /** Gets the name of the document that was created. */
  onClose: (made?: string) => void
}) {
  const [name, setName] = useState('')
  const [form, setForm] = useState(() => formOf({}))
  const create = useFormAction(
    'The document was not created',
    async () => {
      if (!NAME.test(name)) throw new InputError('name', 'Use 1 to 64 letters, digits, dots, underscores and hyphens')
      if (taken.includes(name)) throw new InputError('name', 'There is a document with this name')
      await replaceDesired({ domain, client, name }, read(form), { desired: {}, version: 0 })
      return 'Created'
    },
    () => onClose(name),
  )
  return (
    <FormDialog title="New document" submit="Create document" kind="wide" action={create} onClose={() => onClose()}>
      <TextField
        label="Name"
        field="name"
        hint="Such as config or firmware"
        value={name}
        onChange={setName}
        autoFocus
      />
      <DocumentFields form={form} onChange={setForm} />
    </FormDialog>
  )
}

/** Both shapes of one document. A document that cannot be read stays in its shape. */
export function DocumentFields({ form, onChange }: { form: Form; onChange: (form: Form) => void }) {
  const [fault, setFault] = useState<string>()
  const change = (shape: Form['shape']) => {
    if (shape === form.shape) return
    try {
      const document = readForm(form)
      const next = formOf(document)
      if (shape === 'fields' && next.shape === 'json')
        return setFault(`A document with more than ${MAX_FIELDS} fields is edited as JSON`)
      setFault(undefined)
      onChange({ ...next, shape })
    } catch (error) {
      setFault((error as Error).message)
    }
  }
  return (
    <>
      <Segments
        label="Shape"
        value={form.shape}
        onChange={change}
        options={[
          ['fields', 'Fields'],
          ['json', 'JSON'],
        ]}
      />
      {fault === undefined ? null : <Notice tone="warn">{fault}.</Notice>}
      {form.shape === 'json' ? (
        <TextArea
          label="What is desired"
          field="document"
          hint="A JSON object. It replaces what is desired now"
          rows={14}
          value={form.text}
          onChange={(text) => onChange({ ...form, text })}
        />
      ) : (
        <FieldRows fields={form.fields} onChange={(fields) => onChange({ ...form, fields })} />
      )}
    </>
  )
}

const TRUTHS = [
  ['true', 'true'],
  ['false', 'false'],
] as const

function FieldRows({
  fields,
  onChange,
}: {
  fields: readonly FormField[]
  onChange: (fields: readonly FormField[]) => void
}) {
  const change = (id: number, changes: Partial<FormField>) =>
    onChange(fields.map((one) => (one.id === id ? { ...one, ...changes } : one)))
  const retype = ({ id, text }: FormField, type: Type) =>
    change(id, { type, ...(type === 'truth' ? { text: text === 'true' ? 'true' : 'false' } : {}) })
  return (
    <>
      {fields.map((one, at) => (
        <div key={one.id} className="document-field">
          <TextField
            label={`Field ${at + 1}`}
            field={`field-${one.id}`}
            placeholder="led.on"
            value={one.name}
            onChange={(name) => change(one.id, { name })}
          />
          <SmallSelect
            label={`Type of field ${at + 1}`}
            value={one.type}
            options={TYPES}
            onChange={(type) => retype(one, type as Type)}
          />
          {one.type === 'truth' ? (
            <SmallSelect
              label={`Value of field ${at + 1}`}
              value={one.text}
              options={TRUTHS}
              onChange={(text) => change(one.id, { text })}
            />
          ) : (
            <input
              className="input"
              aria-label={`Value of field ${at + 1}`}
              placeholder="Value"
              inputMode={one.type === 'number' ? 'decimal' : 'text'}
              autoComplete="off"
              value={one.text}
              onChange={(event) => change(one.id, { text: event.target.value })}
            />
          )}
          <Button
            kind="quiet"
            icon="close"
            label={`Remove field ${at + 1}`}
            onClick={() => onChange(fields.filter(({ id }) => id !== one.id))}
          />
        </div>
      ))}
      <div className="row">
        <Button
          icon="plus"
          disabledReason={fields.length >= MAX_FIELDS ? 'Use JSON for more fields' : undefined}
          onClick={() => onChange([...fields, { ...FIRST, id: Math.max(-1, ...fields.map(({ id }) => id)) + 1 }])}
        >
          Add field
        </Button>
      </div>
    </>
  )
}
