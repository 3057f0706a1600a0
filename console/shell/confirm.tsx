/** A question before an action that cannot be undone; for the worst, the name is typed. */
import { useState } from 'react'
import type { ReactNode } from 'react'
import { TextField } from '../design/controls.tsx'
import { Notice } from '../design/display.tsx'
import type { FormAction } from '../design/form.tsx'
import { FormDialog } from '../design/layers.tsx'

export function Confirm({
  title,
  submit,
  typed,
  action,
  disabledReason: reason,
  onClose,
  children,
}: {
  title: string
  submit: string
  /** What the user must type. */
  typed?: string
  action: FormAction
  /** Why the user cannot do it. It is said in the dialog. */
  disabledReason?: string | undefined
  onClose: () => void
  children: ReactNode
}) {
  const [text, setText] = useState('')
  const disabledReason = reason ?? (typed !== undefined && text !== typed ? `Type ${typed} first` : undefined)
  return (
    <FormDialog
      title={title}
      submit={submit}
      isDanger
      action={action}
      onClose={onClose}
      disabledReason={disabledReason}
    >
      <p>{children}</p>
      {reason === undefined ? null : <Notice tone="plain">{reason}.</Notice>}
      {typed === undefined ? null : (
        <TextField label={`Type ${typed}`} value={text} onChange={setText} autoComplete="off" />
      )}
    </FormDialog>
  )
}
