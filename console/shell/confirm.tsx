/** A question before an action that cannot be undone; for the worst, the name is typed. */
import { useState } from 'react'
import type { ReactNode } from 'react'
import { TextField } from '../design/controls.tsx'
import type { FormAction } from '../design/form.tsx'
import { FormDialog } from '../design/layers.tsx'

export function Confirm({
  title,
  submit,
  typed,
  action,
  onClose,
  children,
}: {
  title: string
  submit: string
  /** What the user must type. */
  typed?: string
  action: FormAction
  onClose: () => void
  children: ReactNode
}) {
  const [text, setText] = useState('')
  const disabledReason = typed !== undefined && text !== typed ? `Type ${typed} first` : undefined
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
      {typed === undefined ? null : (
        <TextField label={`Type ${typed}`} value={text} onChange={setText} autoComplete="off" />
      )}
    </FormDialog>
  )
}
