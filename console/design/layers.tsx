/** Dialogs, drawers and toasts. Dialogs are those of the browser: focus stays inside, Escape closes. */
import { useEffect, useId, useRef, useState, useSyncExternalStore } from 'react'
import type { ReactNode } from 'react'
import { Button } from './controls.tsx'
import { Details } from './display.tsx'
import { BareForm, FormFailure } from './form.tsx'
import type { FormAction } from './form.tsx'
import { Icon } from './icon.tsx'

type DialogProps = {
  title: string
  kind?: 'wide' | 'drawer' | 'palette' | 'side' | ''
  onClose: () => void
  children: ReactNode
  footer?: ReactNode
  /** It has no headline of its own. */
  isBare?: boolean
  /** It cannot be closed. */
  isFixed?: boolean
}

/** The focus of a new dialog: its first field, else its first answer. The browser would begin on the button that closes it. */
const FIRST_FIELD = ':is(input, select, textarea):not([disabled], [tabindex="-1"])'
const FIRST_ANSWER = '.dialog-foot .button'

export function Dialog({ title, kind = '', onClose, children, footer, isBare, isFixed }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const layer = useId()
  useEffect(() => {
    const opener = document.activeElement
    dialog.current?.showModal()
    const find = (selector: string) => dialog.current?.querySelector<HTMLElement>(selector)
    ;(find(FIRST_FIELD) ?? find(FIRST_ANSWER))?.focus()
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus()
    }
  }, [])
  useEffect(() => {
    changeLayers([...layers, layer])
    return () => changeLayers(layers.filter((one) => one !== layer))
  }, [layer])
  const leave = () => {
    if (isFixed !== true) onClose()
  }
  return (
    <dialog
      ref={dialog}
      className={`dialog ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault()
        leave()
      }}
      onClose={() => {
        // The browser does not ask a second time. Whether it closes is decided here alone.
        dialog.current?.showModal()
        leave()
      }}
      onPointerDown={(event) => {
        if (event.target === dialog.current && isBeside(event.nativeEvent, dialog.current)) leave()
      }}
      onKeyDown={(event) => {
        event.stopPropagation()
        if (event.key !== 'Escape' || event.nativeEvent.isComposing) return
        // One key closes one dialog: the browser may close those together that were opened without a pointer.
        event.preventDefault()
        leave()
      }}
    >
      {isBare === true ? (
        children
      ) : (
        <>
          <div className="dialog-head">
            <h2>{title}</h2>
            {isFixed === true ? null : <Button kind="quiet" icon="close" label="Close" onClick={onClose} />}
          </div>
          <div className="dialog-body">{children}</div>
          {footer === undefined ? null : <div className="dialog-foot">{footer}</div>}
        </>
      )}
      <Toasts layer={layer} />
    </dialog>
  )
}

function isBeside({ clientX, clientY }: PointerEvent, dialog: HTMLDialogElement): boolean {
  const { left, right, top, bottom } = dialog.getBoundingClientRect()
  return clientX < left || clientX > right || clientY < top || clientY > bottom
}

/**
 * A form in a dialog: Enter sends it, and its errors are shown in it. Closed by a key or beside it, it asks first whether what was entered may
 * be lost; Cancel says so itself.
 */
export function FormDialog({
  title,
  onClose,
  action,
  submit,
  isDanger,
  kind,
  disabledReason,
  children,
}: {
  title: string
  onClose: () => void
  action: FormAction
  submit: string
  isDanger?: boolean
  kind?: 'wide' | ''
  disabledReason?: string | undefined
  children: ReactNode
}) {
  const [isChanged, setChanged] = useState(false)
  const [isAsking, setAsking] = useState(false)
  // A question has nothing to lose.
  const leave = () => (isChanged && isDanger !== true ? setAsking(true) : onClose())
  return (
    <Dialog title={title} onClose={leave} kind={kind ?? ''} isBare>
      <BareForm action={action} disabledReason={disabledReason} onChange={() => setChanged(true)}>
        <div className="dialog-head">
          <h2>{title}</h2>
          <Button kind="quiet" icon="close" label="Close" onClick={leave} />
        </div>
        <div className="dialog-body">
          <FormFailure />
          {children}
        </div>
        <div className="dialog-foot">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            kind={isDanger === true ? 'danger' : 'primary'}
            busy={action.isBusy}
            disabledReason={disabledReason}
          >
            {submit}
          </Button>
        </div>
      </BareForm>
      {isAsking ? <Discard onDiscard={onClose} onKeep={() => setAsking(false)} /> : null}
    </Dialog>
  )
}

/** The question before a form goes without being sent. */
export function Discard({ onDiscard, onKeep }: { onDiscard: () => void; onKeep: () => void }) {
  const answers = (
    <>
      <Button onClick={onKeep}>Keep editing</Button>
      <Button kind="danger" onClick={onDiscard}>
        Discard
      </Button>
    </>
  )
  return (
    <Dialog title="Discard what you entered?" onClose={onKeep} footer={answers}>
      <p>It has not been saved.</p>
    </Dialog>
  )
}

type Toast = { id: number; kind: 'ok' | 'bad'; text: string; note?: string | undefined }
const SHOWN_MS = 6_000
const MAX_TOASTS = 4
let toasts: readonly Toast[] = []
let nextId = 1
/** Open dialogs, the topmost last. What is outside of it can be neither pressed nor read. */
let layers: readonly string[] = []
const PAGE = 'page'
const listeners = new Set<() => void>()
const tell = () => listeners.forEach((listener) => listener())

function changeLayers(next: readonly string[]): void {
  layers = next
  tell()
}

function changeToasts(next: readonly Toast[]): void {
  toasts = next
  tell()
}

/** A success is shown for some seconds. A failure stays until it is dismissed or an action succeeds. */
export function showToast(kind: Toast['kind'], text: string, note?: string): void {
  const toast = { id: nextId++, kind, text, note }
  changeToasts([...toasts.slice(1 - MAX_TOASTS), toast])
  if (kind === 'ok') setTimeout(() => dismiss(toast.id), SHOWN_MS)
}

/** Removes the failures that are shown, after an action that succeeded. */
export function dismissFailures(): void {
  changeToasts(toasts.filter(({ kind }) => kind !== 'bad'))
}

function dismiss(id: number): void {
  changeToasts(toasts.filter((toast) => toast.id !== id))
}

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

/** The toasts are in the top layer, like dialogs, and inside the topmost one: elsewhere, a dialog would cover them. */
export function Toasts({ layer = PAGE }: { layer?: string }) {
  const all = useSyncExternalStore(subscribe, () => toasts)
  const top = useSyncExternalStore(subscribe, () => layers.at(-1) ?? PAGE)
  const region = useRef<HTMLDivElement>(null)
  const isTop = top === layer
  // What is shown last is above the others: the toasts of a dialog are shown after the dialog itself.
  useEffect(() => {
    if (!isTop) return
    region.current?.showPopover()
    return () => region.current?.hidePopover()
  }, [isTop])
  const shown = isTop ? all : []
  return (
    <div ref={region} popover="manual" className="toasts" role="status" aria-live="polite">
      {shown.map(({ id, kind, text, note }) => (
        <div key={id} className="toast">
          <span className={`state ${kind}`}>
            <Icon name={kind} />
          </span>
          <div className="grow">
            <div>{text}</div>
            {note === undefined ? null : <Details>{note}</Details>}
          </div>
          <Button kind="quiet" small icon="close" label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  )
}
