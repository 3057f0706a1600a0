/** A session that ended while a page was open: the user signs in again and goes on where they were. */
import { useState } from 'react'
import { useSyncExternalStore } from 'react'
import { refresh } from '../api/queries.ts'
import { onSession, sessionState, signIn } from '../api/session.ts'
import { Button, TextField } from '../design/controls.tsx'
import { Dialog } from '../design/layers.tsx'

export function SessionDialog() {
  const session = useSyncExternalStore(onSession, sessionState)
  const [identity, setIdentity] = useState('')
  const [secret, setSecret] = useState('')
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  if (session.kind !== 'expired') return null
  const submit = async () => {
    setBusy(true)
    try {
      await signIn(identity, secret)
      setSecret('')
      setError(undefined)
      await refresh()
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog title="Your session ended" isFixed onClose={() => undefined}>
      <p>Sign in again to go on where you were. Nothing on this page is lost.</p>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          void submit()
        }}
      >
        <TextField label="Username or email" value={identity} onChange={setIdentity} autoComplete="username" required />
        <TextField
          label="Password"
          type="password"
          value={secret}
          onChange={setSecret}
          autoComplete="current-password"
          required
          error={error}
        />
        <Button type="submit" kind="primary" busy={isBusy}>
          Sign in
        </Button>
      </form>
    </Dialog>
  )
}
