/** The pages before a login: sign in, sign up, recovery of a password. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import type { ReactNode } from 'react'
import { call } from '../../api/call.ts'
import { signIn } from '../../api/session.ts'
import { Button, TextField } from '../../design/controls.tsx'
import { Notice } from '../../design/display.tsx'
import { Form } from '../../design/form.tsx'
import { Toasts } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useFormAction } from '../../shell/action.ts'
import { Brand, ThemeMenu } from '../../shell/frame.tsx'
import { useView } from '../../shell/url.ts'

function Entrance({ title, children, footer }: { title: string; children: ReactNode; footer: ReactNode }) {
  return (
    <main className="entrance">
      <div className="entrance-box">
        <div className="row spread">
          <Brand />
          <ThemeMenu />
        </div>
        <h1>{title}</h1>
        {children}
        <p className="muted">{footer}</p>
      </div>
      <Toasts />
    </main>
  )
}

export function SignIn() {
  const navigate = useNavigate()
  const [next] = useView('next')
  const [identity, setIdentity] = useState('')
  const [secret, setSecret] = useState('')
  const submit = useFormAction('You are not signed in', async () => {
    await signIn(identity.trim(), secret)
    // A page of the console, never another address.
    await navigate({ to: next.startsWith('/') && !next.startsWith('//') ? next : paths.home() })
  })
  return (
    <Entrance
      title="Sign in"
      footer={
        <>
          No account? <Link to={paths.signUp()}>Sign up</Link> · <Link to={paths.recovery()}>Forgot the password?</Link>
        </>
      }
    >
      <Form action={submit}>
        <TextField
          label="Username or email"
          value={identity}
          onChange={setIdentity}
          autoComplete="username"
          autoFocus
          required
        />
        <TextField
          label="Password"
          type="password"
          value={secret}
          onChange={setSecret}
          autoComplete="current-password"
          required
        />
        <Button type="submit" kind="primary" busy={submit.isBusy}>
          Sign in
        </Button>
      </Form>
    </Entrance>
  )
}

/** The link of an invitation by mail. Its token is behind the `#`, which no request contains. */
function invitationOfLink(): { token: string; email: string } | undefined {
  const given = new URLSearchParams(location.hash.slice(1))
  const [token, email] = [given.get('invitation'), given.get('email')]
  return token === null || email === null ? undefined : { token, email }
}

export function SignUp() {
  const navigate = useNavigate()
  const [first, setFirst] = useState('')
  const [last, setLast] = useState('')
  const [invitation] = useState(invitationOfLink)
  const [email, setEmail] = useState(invitation?.email ?? '')
  const [username, setUsername] = useState('')
  const [secret, setSecret] = useState('')
  const submit = useFormAction('The account was not created', async () => {
    const credentials = { username: username.trim(), secret }
    await call('POST /users', {
      isPublic: true,
      ...(invitation === undefined ? {} : { headers: { Authorization: `Invitation ${invitation.token}` } }),
      body: { first_name: first.trim(), last_name: last.trim(), email: email.trim(), credentials },
    })
    await signIn(username.trim(), secret)
    await navigate({ to: paths.home() })
  })
  return (
    <Entrance
      title={invitation === undefined ? 'Create an account' : 'You are invited: create your account'}
      footer={
        <>
          Already registered? <Link to={paths.signIn()}>Sign in</Link>
        </>
      }
    >
      <Form action={submit}>
        <TextField
          label="First name"
          value={first}
          onChange={setFirst}
          autoComplete="given-name"
          autoFocus
          required
          field="first_name"
        />
        <TextField
          label="Last name"
          value={last}
          onChange={setLast}
          autoComplete="family-name"
          required
          field="last_name"
        />
        <TextField
          label="Email"
          type="email"
          value={email}
          onChange={setEmail}
          autoComplete="email"
          required
          readOnly={invitation !== undefined}
          hint={invitation === undefined ? undefined : 'The address that was invited'}
          field="email"
        />
        <TextField
          label="Username"
          value={username}
          onChange={setUsername}
          autoComplete="username"
          required
          field="credentials.username"
        />
        <TextField
          label="Password"
          type="password"
          value={secret}
          onChange={setSecret}
          autoComplete="new-password"
          required
          minLength={8}
          hint="At least 8 characters"
          field="credentials.secret"
        />
        <Button type="submit" kind="primary" busy={submit.isBusy}>
          Create account
        </Button>
      </Form>
    </Entrance>
  )
}

export function Recovery() {
  const [email, setEmail] = useState('')
  const [isSent, setSent] = useState(false)
  const submit = useFormAction('The link was not sent', async () => {
    await call('POST /password/reset-request', { isPublic: true, body: { email: email.trim() } })
    setSent(true)
  })
  return (
    <Entrance
      title="Set a new password"
      footer={
        <>
          Remembered it? <Link to={paths.signIn()}>Sign in</Link>
        </>
      }
    >
      {isSent ? (
        <Notice tone="ok">
          If an account has this address, a mail with a link is on its way. The link leads to a page where you set a new
          password.
        </Notice>
      ) : (
        <Form action={submit}>
          <TextField
            label="Email"
            type="email"
            value={email}
            onChange={setEmail}
            autoComplete="email"
            autoFocus
            required
          />
          <Button type="submit" kind="primary" busy={submit.isBusy}>
            Send the link
          </Button>
        </Form>
      )}
    </Entrance>
  )
}
