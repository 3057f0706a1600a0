/** A session that ended while a page was open: the user signs in again and goes on where they were. */
import { useState } from 'react'
import { useSyncExternalStore } from 'react'
import { onSession, sessionState, signIn } from '../api/session.ts'
import { Button, TextField } from '../design/controls.tsx'
import { Form } from '../design/form.tsx'
import { Dialog } from '../design/layers.tsx'
import { useFormAction } from './action.ts'

export function SessionDialog() {
  const session = useSyncExternalStore(onSession, sessionState)
  const [identity, setIdentity] = useState('')
  const [secret, setSecret] = useState('')
  const enter = useFormAction('You are not signed in', async () => {
    await signIn(identity, secret)
    setSecret('')
  })
  if (session.kind !== 'expired') return null
  return (
    <Dialog title="Your session ended" isFixed onClose={() => undefined}>
      <p>Sign in again to go on where you were. Nothing on this page is lost.</p>
      <Form action={enter} className="form">
        <TextField label="Username or email" value={identity} onChange={setIdentity} autoComplete="username" required />
        <TextField
          label="Password"
          type="password"
          value={secret}
          onChange={setSecret}
          autoComplete="current-password"
          required
        />
        <Button type="submit" kind="primary" busy={enter.isBusy}>
          Sign in
        </Button>
      </Form>
    </Dialog>
  )
}
