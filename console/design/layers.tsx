/** Dialogs, drawers and toasts. Dialogs are those of the browser: focus stays inside, Escape closes. */
import { useEffect, useRef, useSyncExternalStore } from 'react'
import type { ReactNode } from 'react'
import { Button } from './controls.tsx'
import { Icon } from './icon.tsx'

type DialogProps = {
  title: string
  kind?: 'wide' | 'drawer' | 'palette' | 'side' | ''
  onClose: () => void
  children: ReactNode
  footer?: ReactNode
  /** Without its own headline. */
  isBare?: boolean
  /** It cannot be closed. */
  isFixed?: boolean
}

export function Dialog({ title, kind = '', onClose, children, footer, isBare, isFixed }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const opener = document.activeElement
    dialog.current?.showModal()
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus()
    }
  }, [])
  return (
    <dialog
      ref={dialog}
      className={`dialog ${kind}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault()
        if (isFixed !== true) onClose()
      }}
      onPointerDown={(event) => {
        if (event.target === dialog.current && isFixed !== true && isBeside(event.nativeEvent, dialog.current))
          onClose()
      }}
      onKeyDown={(event) => event.stopPropagation()}
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
    </dialog>
  )
}

function isBeside({ clientX, clientY }: PointerEvent, dialog: HTMLDialogElement): boolean {
  const { left, right, top, bottom } = dialog.getBoundingClientRect()
  return clientX < left || clientX > right || clientY < top || clientY > bottom
}

/** A form in a dialog: Enter sends it. */
export function FormDialog({
  title,
  onClose,
  onSubmit,
  submit,
  busy,
  isDanger,
  kind,
  disabledReason,
  children,
}: {
  title: string
  onClose: () => void
  onSubmit: () => void
  submit: string
  busy?: boolean
  isDanger?: boolean
  kind?: 'wide' | ''
  disabledReason?: string | undefined
  children: ReactNode
}) {
  return (
    <Dialog title={title} onClose={onClose} kind={kind ?? ''} isBare>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (busy !== true && disabledReason === undefined) onSubmit()
        }}
      >
        <div className="dialog-head">
          <h2>{title}</h2>
          <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
        </div>
        <div className="dialog-body">{children}</div>
        <div className="dialog-foot">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            kind={isDanger === true ? 'danger' : 'primary'}
            busy={busy ?? false}
            disabledReason={disabledReason}
          >
            {submit}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

type Toast = { id: number; kind: 'ok' | 'bad'; text: string; note?: string | undefined }
const SHOWN_MS = 6_000
let toasts: readonly Toast[] = []
let nextId = 1
const listeners = new Set<() => void>()
const tell = () => listeners.forEach((listener) => listener())

export function showToast(kind: Toast['kind'], text: string, note?: string): void {
  const toast = { id: nextId++, kind, text, note }
  toasts = [...toasts.slice(-3), toast]
  tell()
  setTimeout(() => dismiss(toast.id), SHOWN_MS)
}

function dismiss(id: number): void {
  toasts = toasts.filter((toast) => toast.id !== id)
  tell()
}

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts)
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map(({ id, kind, text, note }) => (
        <div key={id} className="toast">
          <span className={`state ${kind}`}>
            <Icon name={kind} />
          </span>
          <div className="grow">
            <div>{text}</div>
            {note === undefined ? null : <div className="muted small">{note}</div>}
          </div>
          <Button kind="quiet" small icon="close" label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  )
}
