/** A form of a page that asks, before the page is left, whether what was entered may be lost. */
import { useBlocker } from '@tanstack/react-router'
import { useState } from 'react'
import type { ReactNode } from 'react'
import { Form } from '../design/form.tsx'
import type { FormAction } from '../design/form.tsx'
import { Discard } from '../design/layers.tsx'

export function PageForm({
  action,
  children,
  ...others
}: {
  action: FormAction
  className: string
  disabledReason?: string | undefined
  children: ReactNode
}) {
  const [isChanged, setChanged] = useState(false)
  // What an action does after its success may leave the page.
  const isKept = isChanged && !action.isBusy
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isKept && current.pathname !== next.pathname,
    enableBeforeUnload: () => isKept,
    withResolver: true,
  })
  const run = async () => {
    const isDone = await action.run()
    if (isDone === true) setChanged(false)
    return isDone
  }
  return (
    <Form {...others} action={{ ...action, run }} onChange={() => setChanged(true)}>
      {children}
      {leaving.status === 'blocked' ? <Discard onDiscard={leaving.proceed} onKeep={leaving.reset} /> : null}
    </Form>
  )
}
