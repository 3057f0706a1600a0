/** Buttons, fields and menus. A disabled action says why. */
import { useEffect, useId, useRef, useState } from 'react'
import type { ComponentProps, ReactNode } from 'react'
import { useFieldFault } from './form.tsx'
import { Icon } from './icon.tsx'
import type { IconName } from './icon.tsx'

type ButtonProps = {
  children?: ReactNode
  icon?: IconName
  label?: string
  kind?: 'primary' | 'danger' | 'quiet' | undefined
  small?: boolean
  /** Why the action is not possible now. */
  disabledReason?: string | undefined
  busy?: boolean
  onClick?: (() => void) | undefined
  type?: 'button' | 'submit'
  pressed?: boolean
}

export function Button({
  children,
  icon,
  label,
  kind,
  small,
  disabledReason,
  busy,
  onClick,
  type = 'button',
  pressed,
}: ButtonProps) {
  const isOff = disabledReason !== undefined || busy === true
  const reasonId = useId()
  const button = (
    <button
      type={type}
      className={`button ${kind ?? ''} ${small === true ? 'small' : ''} ${children === undefined ? 'square' : ''}`}
      aria-disabled={isOff || undefined}
      aria-label={label}
      aria-pressed={pressed}
      aria-busy={busy === true || undefined}
      aria-describedby={disabledReason === undefined ? undefined : reasonId}
      title={disabledReason ?? label}
      onClick={(event) => {
        if (isOff) event.preventDefault()
        else onClick?.()
      }}
    >
      {busy === true ? <Icon name="active" className="spin" /> : icon === undefined ? null : <Icon name={icon} />}
      {children}
    </button>
  )
  if (disabledReason === undefined) return button
  return (
    <>
      {button}
      {/* The reason is beside the button: inside, it would be a part of its name. */}
      <span id={reasonId} hidden>
        {disabledReason}
      </span>
    </>
  )
}

type FieldProps = {
  label: string
  hint?: ReactNode
  error?: string | undefined
  /** The path of the field in the API, dotted (`credentials.secret`): what the server refuses there is shown at this field. */
  field?: string | undefined
}

export function Field({
  label,
  hint,
  error: own,
  field,
  children,
}: FieldProps & { children: (ids: FieldIds) => ReactNode }) {
  const id = useId()
  const refused = useFieldFault(field, label)
  const error = own ?? refused
  const noteId = `${id}-note`
  const hasNote = hint !== undefined || error !== undefined
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        'aria-describedby': hasNote ? noteId : undefined,
        'aria-invalid': error === undefined ? undefined : true,
      })}
      {hasNote ? (
        <div
          id={noteId}
          className={error === undefined ? 'hint' : 'error'}
          role={error === undefined ? undefined : 'alert'}
        >
          {error ?? hint}
        </div>
      ) : null}
    </div>
  )
}

export type FieldIds = { id: string; 'aria-describedby': string | undefined; 'aria-invalid': true | undefined }

type TextFieldProps = FieldProps &
  Omit<ComponentProps<'input'>, 'onChange' | 'value' | 'id'> & { value: string; onChange: (value: string) => void }

export function TextField({ label, hint, error, field, value, onChange, ...rest }: TextFieldProps) {
  return (
    <Field label={label} hint={hint} error={error} field={field}>
      {(ids) => (
        <input className="input" {...rest} {...ids} value={value} onChange={(event) => onChange(event.target.value)} />
      )}
    </Field>
  )
}

export function TextArea({
  label,
  hint,
  error,
  field,
  value,
  onChange,
  rows = 6,
}: FieldProps & { value: string; onChange: (value: string) => void; rows?: number }) {
  return (
    <Field label={label} hint={hint} error={error} field={field}>
      {(ids) => (
        <textarea
          className="input"
          spellCheck={false}
          rows={rows}
          {...ids}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  )
}

export function SelectField({
  label,
  hint,
  error,
  field,
  value,
  onChange,
  options,
}: FieldProps & { value: string; onChange: (value: string) => void; options: readonly (readonly [string, string])[] }) {
  return (
    <Field label={label} hint={hint} error={error} field={field}>
      {(ids) => (
        <select className="input" {...ids} value={value} onChange={(event) => onChange(event.target.value)}>
          {options.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

/** A select in a row of a list: its label is read, not shown. */
export function SmallSelect({
  label,
  value,
  options,
  onChange,
  disabledReason,
  busy,
}: {
  label: string
  value: string
  options: readonly (readonly [string, string])[]
  onChange: (value: string) => void
  disabledReason?: string | undefined
  busy?: boolean
}) {
  return (
    <select
      className="input fit"
      aria-label={label}
      title={disabledReason}
      disabled={disabledReason !== undefined || busy === true}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    >
      {options.map(([key, text]) => (
        <option key={key} value={key}>
          {text}
        </option>
      ))}
    </select>
  )
}

export function Check({
  checked,
  onChange,
  children,
}: {
  checked: boolean
  onChange: (checked: boolean) => void
  children: ReactNode
}) {
  return (
    <label className="check">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} />
      <span>{children}</span>
    </label>
  )
}

/** A choice of one of a few values. */
export function Segments<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string
  value: T
  options: readonly (readonly [T, string])[]
  onChange: (value: T) => void
}) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={key === value} onClick={() => onChange(key)}>
          {text}
        </button>
      ))}
    </div>
  )
}

export type MenuItem =
  | {
      label: string
      icon?: IconName
      onSelect: () => void
      isDanger?: boolean
      isCurrent?: boolean
      disabledReason?: string | undefined
    }
  | 'line'

/** A button with a menu: arrows, Home, End and Escape work as in every menu. */
export function Menu({
  label,
  icon,
  children,
  items,
  kind = 'quiet',
  align = 'end',
  className = '',
}: {
  label: string
  icon?: IconName
  children?: ReactNode
  items: readonly MenuItem[]
  kind?: 'quiet' | 'plain'
  align?: 'start' | 'end'
  className?: string
}) {
  const [isOpen, setOpen] = useState(false)
  const anchor = useRef<HTMLDivElement>(null)
  const trigger = useRef<HTMLButtonElement>(null)
  const entries = () => [...(anchor.current?.querySelectorAll<HTMLElement>('[role^=menuitem]') ?? [])]
  useEffect(() => {
    if (!isOpen) return
    entries()[0]?.focus()
    const away = (event: Event) => {
      if (event.target instanceof Node && anchor.current?.contains(event.target) !== true) setOpen(false)
    }
    document.addEventListener('pointerdown', away)
    return () => document.removeEventListener('pointerdown', away)
  }, [isOpen])
  const close = () => {
    setOpen(false)
    trigger.current?.focus()
  }
  const onKeyDown = (event: React.KeyboardEvent) => {
    const all = entries()
    const at = all.indexOf(document.activeElement as HTMLElement)
    const goTo = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]
    if (event.key === 'Escape') close()
    else if (event.key === 'Tab') setOpen(false)
    else if (goTo !== undefined) all[(goTo + all.length) % all.length]?.focus()
    else return
    if (event.key !== 'Tab') event.preventDefault()
    event.stopPropagation()
  }
  return (
    <div className={`menu-anchor ${className}`} ref={anchor}>
      <button
        ref={trigger}
        type="button"
        className={`button ${kind === 'quiet' ? 'quiet' : ''} ${children === undefined ? 'square' : 'grow'}`}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-label={children === undefined ? label : undefined}
        title={children === undefined ? label : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        {icon === undefined ? null : <Icon name={icon} />}
        {children}
      </button>
      {isOpen ? (
        <div className={`menu ${align}`} role="menu" aria-label={label} tabIndex={-1} onKeyDown={onKeyDown}>
          {items.map((item, index) =>
            item === 'line' ? (
              <hr key={`line-${index}`} />
            ) : (
              <button
                key={item.label}
                type="button"
                role={item.isCurrent === undefined ? 'menuitem' : 'menuitemradio'}
                aria-checked={item.isCurrent}
                aria-disabled={item.disabledReason === undefined ? undefined : true}
                title={item.disabledReason}
                className={item.isDanger === true ? 'danger' : ''}
                onClick={() => {
                  if (item.disabledReason !== undefined) return
                  close()
                  item.onSelect()
                }}
              >
                {item.icon === undefined ? null : <Icon name={item.icon} />}
                <span className="grow clip">{item.label}</span>
                {item.isCurrent === true ? <Icon name="check" /> : null}
              </button>
            ),
          )}
        </div>
      ) : null}
    </div>
  )
}

export function CopyButton({
  text,
  label = 'Copy',
  onCopy,
}: {
  text: string
  label?: string
  onCopy?: (() => void) | undefined
}) {
  const [isCopied, setCopied] = useState(false)
  useEffect(() => {
    if (!isCopied) return
    const timer = setTimeout(() => setCopied(false), 1_500)
    return () => clearTimeout(timer)
  }, [isCopied])
  return (
    <Button
      kind="quiet"
      small
      icon={isCopied ? 'check' : 'copy'}
      label={isCopied ? 'Copied' : label}
      onClick={() => void copyText(text).then(() => (setCopied(true), onCopy?.()))}
    />
  )
}

/** The clipboard needs a secure context; a selection works over plain HTTP too. */
async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) return await navigator.clipboard.writeText(text)
  const area = document.createElement('textarea')
  area.value = text
  // Behind an open dialog nothing can be selected.
  const dialogs = document.querySelectorAll('dialog[open]')
  ;(dialogs[dialogs.length - 1] ?? document.body).append(area)
  area.select()
  document.execCommand('copy')
  area.remove()
}

export function Code({
  text,
  wrap,
  label,
  onCopy,
}: {
  text: string
  wrap?: boolean
  label: string
  onCopy?: () => void
}) {
  return (
    <div className="code">
      <pre className={wrap === true ? 'wrap' : ''} tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <div className="copy">
        <CopyButton text={text} label={`Copy ${label}`} onCopy={onCopy} />
      </div>
    </div>
  )
}

/** An id, short, with its whole in the clipboard. */
export function Id({ id }: { id: string }) {
  return (
    <span className="row">
      <code title={id}>{id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id}</code>
      <CopyButton text={id} label="Copy id" />
    </span>
  )
}
