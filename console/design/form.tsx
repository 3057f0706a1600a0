/**
 * Forms: an error is shown in its form, at the field that it names, and the focus goes there. A form in a dialog is one
 * of them, so an error is never behind its dialog.
 */
import { createContext, useContext, useEffect, useMemo, useRef } from 'react'
import type { ReactNode } from 'react'
import { Details, Notice } from './display.tsx'

/** Why an action failed. */
export type Failure = {
  /** What did not happen: "The client was not created". */
  readonly what: string
  readonly message: string
  readonly fields: readonly FieldFault[]
  /** The id of the request, for support. */
  readonly note?: string | undefined
}

export type FieldFault = {
  /** The path of the field in the body or its name in the query: `/credentials/secret`, `limit`. */
  readonly path: string
  readonly message: string
  /** The message names the field itself. */
  readonly isSentence?: boolean
}

/** What a form does when it is sent. */
export type FormAction = {
  /** Never rejects: `failure` says what went wrong. */
  readonly run: () => Promise<unknown>
  readonly isBusy: boolean
  readonly failure: Failure | undefined
  readonly clear: () => void
}

/** An action that cannot fail, because it asks no server. */
export const localAction = (act: () => void): FormAction => ({
  run: async () => act(),
  isBusy: false,
  failure: undefined,
  clear: () => undefined,
})

/** A field with this name shows the faults that no other field shows. */
export const ANY_FIELD = '*'

type FormState = { readonly failure: Failure | undefined; readonly names: Set<string> }
const FormContext = createContext<FormState | undefined>(undefined)

const dotted = (path: string) => path.replace(/^\//, '').replaceAll('/', '.')

function isNamed(name: string, path: string): boolean {
  const whole = dotted(path)
  return whole === name || whole.startsWith(`${name}.`)
}

/** The name of the field that shows a fault. */
function ownerOf({ path }: FieldFault, names: ReadonlySet<string>): string | undefined {
  const [longest] = [...names].filter((name) => isNamed(name, path)).toSorted((a, b) => b.length - a.length)
  return longest ?? (names.has(ANY_FIELD) ? ANY_FIELD : undefined)
}

/** The fault of a field of the form around it, as a sentence. */
export function useFieldFault(name: string | undefined, label: string): string | undefined {
  const form = useContext(FormContext)
  useEffect(() => {
    if (form === undefined || name === undefined) return
    form.names.add(name)
    return () => void form.names.delete(name)
  }, [form, name])
  if (form === undefined || name === undefined) return undefined
  const faults = (form.failure?.fields ?? []).filter((fault) => ownerOf(fault, form.names) === name)
  return faults.length === 0 ? undefined : faults.map((fault) => sentenceOf(fault, name, label)).join('; ')
}

function sentenceOf({ path, message, isSentence }: FieldFault, name: string, label: string): string {
  if (isSentence === true) return message
  const inside = name === ANY_FIELD ? dotted(path) : dotted(path).slice(name.length + 1)
  return inside === '' ? `${label} ${message}` : `${label}: ${inside} ${message}`
}

type FormProps = {
  action: FormAction
  className?: string
  disabledReason?: string | undefined
  /** Called at every change of a field by the user. */
  onChange?: () => void
  children: ReactNode
}

/** A form without a place for what no field shows: `FormFailure` is that place. */
export function BareForm({ action, className, disabledReason, onChange, children }: FormProps) {
  const form = useRef<HTMLFormElement>(null)
  const names = useRef(new Set<string>())
  const { failure, clear } = action
  const state = useMemo(() => ({ failure, names: names.current }), [failure])
  // A dialog that is opened again begins without the failure of the time before.
  const forget = useRef(clear)
  forget.current = clear
  useEffect(() => () => forget.current(), [])
  useEffect(() => {
    if (failure === undefined) return
    const find = (selector: string) => form.current?.querySelector<HTMLElement>(selector)
    ;(find('[aria-invalid=true]') ?? find('[data-failure]'))?.focus()
  }, [failure])
  return (
    <FormContext value={state}>
      <form
        ref={form}
        className={className}
        onChange={onChange}
        onSubmit={(event) => {
          event.preventDefault()
          if (!action.isBusy && disabledReason === undefined) void action.run()
        }}
      >
        {children}
      </form>
    </FormContext>
  )
}

export function Form({ children, ...props }: FormProps) {
  return (
    <BareForm {...props}>
      <FormFailure />
      {children}
    </BareForm>
  )
}

/** What went wrong and concerns no field of the form. */
export function FormFailure() {
  const form = useContext(FormContext)
  if (form?.failure === undefined) return null
  const { what, message, fields, note } = form.failure
  const others = fields.filter((fault) => ownerOf(fault, form.names) === undefined)
  if (fields.length > 0 && others.length === 0) return null
  const isSaid = others.length === 1 && message.includes(others[0]?.message ?? '')
  return (
    <div data-failure tabIndex={-1}>
      <Notice tone="bad">
        {what}: {message}.
        {isSaid || others.length === 0 ? null : (
          <ul className="small">
            {others.map((fault) => (
              <li key={fault.path}>
                <code>{dotted(fault.path)}</code> {fault.message}
              </li>
            ))}
          </ul>
        )}
        {note === undefined ? null : <Details>{note}</Details>}
      </Notice>
    </div>
  )
}
