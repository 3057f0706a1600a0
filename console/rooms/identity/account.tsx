/** The user's own account: profile, password, logins. */
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { User } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Id, Segments, TextField } from '../../design/controls.tsx'
import { Card, Facts, State, Time, isNever } from '../../design/display.tsx'
import { PageForm } from '../../shell/page-form.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { UserJournal } from '../../shell/entity-journal.tsx'
import { QueryView } from '../../shell/states.tsx'
import { PersonalTokens } from './personal-tokens.tsx'
import { setTheme, useTheme } from '../../shell/theme.ts'

export function Account() {
  const profile = useQuery(query('GET /users/profile'))
  const theme = useTheme()
  useEffect(() => {
    document.title = 'Your account · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Your account</h1>
      </div>
      <QueryView result={profile}>
        {(user) => (
          <div className="grid">
            <div className="half stack wide">
              <Profile key={user.id} user={user} />
              <Card title="Theme">
                <Segments
                  label="Theme"
                  value={theme}
                  onChange={setTheme}
                  options={[
                    ['light', 'Light'],
                    ['dark', 'Dark'],
                    ['system', 'As the system'],
                  ]}
                />
              </Card>
            </div>
            <div className="half stack wide">
              <Password />
              <Logins />
              <PersonalTokens />
            </div>
            <div>
              <UserJournal id={user.id} />
            </div>
          </div>
        )}
      </QueryView>
    </>
  )
}

function Profile({ user }: { user: User }) {
  const [first, setFirst] = useState(user.first_name ?? '')
  const [last, setLast] = useState(user.last_name ?? '')
  const save = useFormAction('The profile was not saved', async () => {
    await call('PATCH /users/{user_id}', {
      params: { user_id: user.id },
      body: { first_name: first.trim(), last_name: last.trim() },
    })
    return 'Saved'
  })
  return (
    <Card title="Profile">
      <PageForm action={save} className="form">
        <TextField label="First name" field="first_name" value={first} onChange={setFirst} />
        <TextField label="Last name" field="last_name" value={last} onChange={setLast} />
        <div className="row">
          <Button type="submit" kind="primary" busy={save.isBusy}>
            Save
          </Button>
        </div>
      </PageForm>
      <Facts
        rows={[
          ['Username', user.credentials?.username ?? ''],
          [
            'Email',
            <span key="email" className="row">
              {user.email} {isNever(user.verified_at) ? <State tone="warn">Not confirmed</State> : null}
            </span>,
          ],
          ['Role', user.role === 'admin' ? 'platform administrator' : 'user'],
          ['Id', <Id key="id" id={user.id} />],
        ]}
      />
    </Card>
  )
}

function Password() {
  const [before, setBefore] = useState('')
  const [next, setNext] = useState('')
  const change = useFormAction('The password was not changed', async () => {
    await call('PATCH /users/secret', { body: { old_secret: before, new_secret: next } })
    setBefore('')
    setNext('')
    return 'The password is changed'
  })
  return (
    <Card title="Password">
      <PageForm action={change} className="form">
        <TextField
          label="Current password"
          field="old_secret"
          type="password"
          value={before}
          onChange={setBefore}
          autoComplete="current-password"
          required
        />
        <TextField
          label="New password"
          field="new_secret"
          type="password"
          value={next}
          onChange={setNext}
          autoComplete="new-password"
          required
          minLength={8}
        />
        <div className="row">
          <Button type="submit" busy={change.isBusy}>
            Change
          </Button>
        </div>
      </PageForm>
    </Card>
  )
}

function Logins() {
  const result = useQuery(query('GET /users/tokens/refresh-tokens', { query: { limit: 100 } }))
  const [end] = useAction('The login was not ended', async (id: string) => {
    await call('DELETE /users/tokens/refresh-tokens/{session_id}', { params: { session_id: id } })
    return 'Ended: its tokens are invalid within a second'
  })
  return (
    <Card title="Logins" flush>
      <QueryView result={result}>
        {({ refresh_tokens: sessions }) =>
          sessions.map((session) => (
            <div key={session.id} className="list-row">
              <div className="grow">
                <div className="clip">{session.user_agent === '' ? session.kind : session.user_agent}</div>
                <div className="muted small">
                  {session.address} · last used <Time at={session.last_used_at} />
                </div>
              </div>
              {session.current ? (
                <span className="tag">this one</span>
              ) : (
                <Button small kind="quiet" icon="close" label="End this login" onClick={() => void end(session.id)} />
              )}
            </div>
          ))
        }
      </QueryView>
    </Card>
  )
}
