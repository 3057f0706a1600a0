/** Before a login: sign in, sign up, recovery of a password. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import type { ReactNode } from 'react'
import { call } from '../../api/call.ts'
import { ApiError } from '../../api/errors.ts'
import { signIn } from '../../api/session.ts'
import { Button, TextField } from '../../design/controls.tsx'
import { Notice } from '../../design/display.tsx'
import { Toasts } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
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

function useForm(submit: () => Promise<void>) {
  const [error, setError] = useState<ApiError>()
  const [isBusy, setBusy] = useState(false)
  const onSubmit = (event: React.FormEvent) => {
    event.preventDefault()
    if (isBusy) return
    setBusy(true)
    setError(undefined)
    submit()
      .catch((failure: unknown) => setError(failure instanceof ApiError ? failure : ApiError.unreachable(failure)))
      .finally(() => setBusy(false))
  }
  return { error, isBusy, onSubmit }
}

const fieldError = (error: ApiError | undefined, ...names: string[]) =>
  error?.details.find(({ path }) => names.some((name) => path.includes(name)))?.message

function FormError({ error }: { error: ApiError | undefined }) {
  if (error === undefined) return null
  return (
    <Notice tone="bad">
      {error.message[0]?.toUpperCase()}
      {error.message.slice(1)}.
      {error.requestId === undefined ? null : <div className="muted small">Request {error.requestId}</div>}
    </Notice>
  )
}

export function SignIn() {
  const navigate = useNavigate()
  const [next] = useView('next')
  const [identity, setIdentity] = useState('')
  const [secret, setSecret] = useState('')
  const { error, isBusy, onSubmit } = useForm(async () => {
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
      <form onSubmit={onSubmit}>
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
        <FormError error={error} />
        <Button type="submit" kind="primary" busy={isBusy}>
          Sign in
        </Button>
      </form>
    </Entrance>
  )
}

export function SignUp() {
  const navigate = useNavigate()
  const [first, setFirst] = useState('')
  const [last, setLast] = useState('')
  const [email, setEmail] = useState('')
  const [username, setUsername] = useState('')
  const [secret, setSecret] = useState('')
  const { error, isBusy, onSubmit } = useForm(async () => {
    const credentials = { username: username.trim(), secret }
    await call('POST /users', {
      isPublic: true,
      body: { first_name: first.trim(), last_name: last.trim(), email: email.trim(), credentials },
    })
    await signIn(username.trim(), secret)
    await navigate({ to: paths.home() })
  })
  return (
    <Entrance
      title="Create an account"
      footer={
        <>
          Already registered? <Link to={paths.signIn()}>Sign in</Link>
        </>
      }
    >
      <form onSubmit={onSubmit}>
        <TextField
          label="First name"
          value={first}
          onChange={setFirst}
          autoComplete="given-name"
          autoFocus
          required
          error={fieldError(error, 'first_name')}
        />
        <TextField
          label="Last name"
          value={last}
          onChange={setLast}
          autoComplete="family-name"
          required
          error={fieldError(error, 'last_name')}
        />
        <TextField
          label="Email"
          type="email"
          value={email}
          onChange={setEmail}
          autoComplete="email"
          required
          error={fieldError(error, 'email')}
        />
        <TextField
          label="Username"
          value={username}
          onChange={setUsername}
          autoComplete="username"
          required
          error={fieldError(error, 'username')}
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
          error={fieldError(error, 'secret')}
        />
        <FormError error={error} />
        <Button type="submit" kind="primary" busy={isBusy}>
          Create account
        </Button>
      </form>
    </Entrance>
  )
}

export function Recovery() {
  const [email, setEmail] = useState('')
  const [isSent, setSent] = useState(false)
  const { error, isBusy, onSubmit } = useForm(async () => {
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
        <form onSubmit={onSubmit}>
          <TextField
            label="Email"
            type="email"
            value={email}
            onChange={setEmail}
            autoComplete="email"
            autoFocus
            required
          />
          <FormError error={error} />
          <Button type="submit" kind="primary" busy={isBusy}>
            Send the link
          </Button>
        </form>
      )}
    </Entrance>
  )
}
