/** What exists on this page alone: a dialog that goes without it asks first. */
import { useState } from 'react'
import type { ReactNode } from 'react'
import { Button } from '../design/controls.tsx'
import { localAction } from '../design/form.tsx'
import { Dialog } from '../design/layers.tsx'
import { Confirm } from './confirm.tsx'

export function ShownOnce({
  title,
  what,
  loss,
  isSaved,
  onClose,
  children,
}: {
  title: string
  /** The thing that is shown, as the question names it: "the token". */
  what: string
  /** Why it should be saved first. */
  loss: string
  isSaved: boolean
  onClose: () => void
  children: ReactNode
}) {
  const [isAsking, setAsking] = useState(false)
  const leave = () => (isSaved ? onClose() : setAsking(true))
  return (
    <Dialog
      title={title}
      onClose={leave}
      footer={
        <Button kind="primary" onClick={leave}>
          Done
        </Button>
      }
    >
      {children}
      {isAsking ? (
        <Confirm
          title={`Close without ${what}?`}
          submit="Close without it"
          action={localAction(onClose)}
          onClose={() => setAsking(false)}
        >
          {loss}
        </Confirm>
      ) : null}
    </Dialog>
  )
}
