/** The users of the platform, for its administrators. */
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { User } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Id } from '../../design/controls.tsx'
import { Card, Empty, EntityStatus, Facts, State, Time, isNever } from '../../design/display.tsx'
import { Dialog } from '../../design/layers.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { Filters } from '../../shell/filters.tsx'
import { useSession } from '../../shell/session.ts'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import { useViews } from '../../shell/url.ts'

const REFRESH_MS = 30_000
const FIELDS = [
  { name: 'email', label: 'Email', hint: 'A part of the address' },
  { name: 'status', label: 'Status', options: ['enabled', 'disabled', 'deleted'] },
] as const

type Status = 'enabled' | 'disabled' | 'deleted' | 'all'
const nameOf = (user: User) => user.credentials?.username ?? user.email ?? user.id

export function Users() {
  const session = useSession()
  const ownId = session.kind === 'signed-in' ? session.userId : undefined
  const [views, setViews] = useViews()
  const [managed, setManaged] = useState<string>()
  const [asking, setAsking] = useState<{ what: keyof typeof QUESTIONS; user: User }>()
  const filters = { username: views['name'], email: views['email'], status: (views['status'] ?? 'all') as Status }
  useEffect(() => {
    document.title = 'Users · Skein'
  }, [])
  const [enable] = useAction('The user was not enabled', async (id: string) => {
    await call('POST /users/{user_id}/enable', { params: { user_id: id } })
    return 'Enabled'
  })
  const act = useFormAction('The user was not changed', async () => {
    if (asking === undefined) return
    const params = { user_id: asking.user.id }
    if (asking.what === 'disable') await call('POST /users/{user_id}/disable', { params })
    else if (asking.what === 'delete') await call('DELETE /users/{user_id}', { params })
    else
      await call('PATCH /users/{user_id}/role', {
        params,
        body: { role: asking.what === 'promote' ? 'admin' : 'user' },
      })
    setAsking(undefined)
    // A deleted user is listed, and cannot be viewed.
    if (asking.what === 'delete') setManaged(undefined)
    return {
      disable: 'Disabled: their logins end',
      delete: 'The user is deleted',
      promote: 'They administer the platform',
      demote: 'They no longer administer the platform',
    }[asking.what]
  })
  const hasFilter = views['name'] !== undefined || FIELDS.some(({ name }) => views[name] !== undefined)
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Users</h1>
      </div>
      <Filters fields={FIELDS} placeholder="Filter by username" />
      <DataTable<User>
        label="Users"
        queryKey={['GET /users', filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /users', { query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.users }
        }}
        rowId={({ id }) => id}
        columns={[
          {
            key: 'name',
            title: 'User',
            width: 'minmax(120px, 1fr)',
            cell: (user) => (
              <span dir="auto" title={user.id}>
                {nameOf(user)}
              </span>
            ),
          },
          {
            key: 'email',
            title: 'Email',
            width: 'minmax(160px, 1.5fr)',
            isMinor: true,
            cell: ({ email, verified_at: at }) => (
              <span className="row">
                <span className="clip">{email}</span>
                {isNever(at) ? <State tone="warn">Not confirmed</State> : null}
              </span>
            ),
          },
          {
            key: 'role',
            title: 'Role',
            width: '130px',
            isMinor: true,
            cell: ({ role }) => (role === 'admin' ? 'administrator' : 'user'),
          },
          {
            key: 'status',
            title: 'Status',
            width: '110px',
            cell: ({ status = '' }) => <EntityStatus status={status} />,
          },
          {
            key: 'created',
            title: 'Created',
            width: '110px',
            isMinor: true,
            cell: ({ created_at: at }) => <Time at={at} />,
          },
          {
            key: 'actions',
            title: '',
            width: '50px',
            cell: (user) =>
              user.status === 'deleted' ? null : (
                <Button
                  small
                  kind="quiet"
                  icon="more"
                  label={`Manage ${nameOf(user)}`}
                  onClick={() => setManaged(user.id)}
                />
              ),
          },
        ]}
        empty={
          <Card>
            <Empty
              icon="search"
              title="No user matches"
              actions={
                hasFilter ? (
                  <Button onClick={() => setViews({ name: '', email: '', status: '' })}>Clear filters</Button>
                ) : undefined
              }
            />
          </Card>
        }
      />
      {managed === undefined ? null : (
        <UserDrawer
          id={managed}
          isOwn={managed === ownId}
          onEnable={() => void enable(managed)}
          onAsk={(what, user) => setAsking({ what, user })}
          onClose={() => setManaged(undefined)}
        />
      )}
      {asking === undefined ? null : <Question {...asking} action={act} onClose={() => setAsking(undefined)} />}
    </>
  )
}

/** One user, with what an administrator of the platform may do to them. */
function UserDrawer({
  id,
  isOwn,
  onEnable,
  onAsk,
  onClose,
}: {
  id: string
  isOwn: boolean
  onEnable: () => void
  onAsk: (what: keyof typeof QUESTIONS, user: User) => void
  onClose: () => void
}) {
  const result = useQuery(query('GET /users/{user_id}', { params: { user_id: id } }))
  const own = isOwn ? 'This is you' : undefined
  return (
    <Dialog title="User" kind="drawer" onClose={onClose}>
      <QueryView result={result}>
        {(user) => {
          return (
            <>
              <Facts
                rows={[
                  [
                    'Username',
                    <span key="name" dir="auto">
                      {nameOf(user)}
                    </span>,
                  ],
                  [
                    'Name',
                    <span key="full" dir="auto">
                      {user.name ?? ''}
                    </span>,
                  ],
                  ['Email', user.email ?? ''],
                  ['Email confirmed', <Time key="verified" at={user.verified_at} />],
                  ['Role', user.role === 'admin' ? 'administrator of the platform' : 'user'],
                  ['Status', <EntityStatus key="status" status={user.status ?? ''} />],
                  ['Created', <Time key="created" at={user.created_at} />],
                  ['Id', <Id key="id" id={user.id} />],
                ]}
              />
              <div className="row wrap">
                {user.status === 'enabled' ? (
                  <Button icon="stop" disabledReason={own} onClick={() => onAsk('disable', user)}>
                    Disable
                  </Button>
                ) : (
                  <Button icon="play" onClick={onEnable}>
                    Enable
                  </Button>
                )}
                {user.role === 'admin' ? (
                  <Button icon="lock" disabledReason={own} onClick={() => onAsk('demote', user)}>
                    Remove administrator role
                  </Button>
                ) : (
                  <Button icon="lock" onClick={() => onAsk('promote', user)}>
                    Make administrator
                  </Button>
                )}
                <Button kind="danger" icon="trash" disabledReason={own} onClick={() => onAsk('delete', user)}>
                  Delete
                </Button>
              </div>
            </>
          )
        }}
      </QueryView>
    </Dialog>
  )
}

const QUESTIONS = {
  disable: ['Disable', 'Disable user', 'Their logins and tokens become invalid within a second.'],
  delete: [
    'Delete',
    'Delete user',
    'Their logins end and their roles go at once. The account is removed after 30 days.',
  ],
  promote: [
    'Make an administrator of',
    'Make administrator',
    'They can read and change every domain, every user and the platform.',
  ],
  demote: ['Remove the administrator role of', 'Remove role', 'They keep their roles in domains.'],
} as const

function Question({
  what,
  user,
  action,
  onClose,
}: {
  what: keyof typeof QUESTIONS
  user: User
  action: ReturnType<typeof useFormAction>
  onClose: () => void
}) {
  const [verb, submit, sentence] = QUESTIONS[what]
  return (
    <Confirm title={`${verb} ${nameOf(user)}`} submit={submit} action={action} onClose={onClose}>
      {sentence}
    </Confirm>
  )
}
