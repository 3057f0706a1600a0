/** Members of a domain, their roles, and invitations. */
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, Check, Menu, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Notice, State, Time, counted, formatCount, isNever } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { UserName } from '../../shell/names.tsx'
import { QueryView } from '../../shell/states.tsx'
import { useDomainId } from '../../shell/url.ts'

type RoleRecord = { id: string; name: string; actions: string[]; members: string[] }

export function useRoles(domain: string) {
  return useQuery(query('GET /domains/{domain_id}/roles', { params: { domain_id: domain }, query: { limit: 100 } }))
}

/** Older clients get a plain list. */
export function rolesOf(answer: unknown): RoleRecord[] {
  if (Array.isArray(answer)) return answer as RoleRecord[]
  return (answer as { roles?: RoleRecord[] } | undefined)?.roles ?? []
}

export function Members() {
  const domain = useDomainId()
  useEffect(() => {
    document.title = 'Members and roles · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Members and roles</h1>
      </div>
      <MemberList domain={domain} />
      <RoleList domain={domain} />
      <InvitationList domain={domain} />
    </>
  )
}

function MemberList({ domain }: { domain: string }) {
  const params = { domain_id: domain }
  const [isInviting, setInviting] = useState(false)
  const [removed, setRemoved] = useState<{ id: string; name: string }>()
  const members = useQuery(query('GET /domains/{domain_id}/users', { params, query: { limit: 100, status: 'all' } }))
  const roles = useRoles(domain)
  const rolesByMember = new Map<string, string[]>()
  for (const { name, members: ids } of rolesOf(roles.data))
    for (const id of ids) rolesByMember.set(id, [...(rolesByMember.get(id) ?? []), name])
  const [remove, isRemoving] = useAction('The member was not removed', async (id: string) => {
    await call('DELETE /domains/{domain_id}/roles/members', { params, body: { user_id: id } as never })
    setRemoved(undefined)
    return 'Removed: access ends within a second'
  })
  return (
    <QueryView result={members} entity={`domain:${domain}`}>
      {({ users, total }) => (
        <Card
          title={counted(total, 'member')}
          flush
          actions={
            <Button kind="primary" icon="plus" onClick={() => setInviting(true)}>
              Invite
            </Button>
          }
        >
          {users.map((user) => {
            const name = [user.first_name, user.last_name].filter((part) => part !== undefined && part !== '').join(' ')
            const shown = name === '' ? (user.credentials?.username ?? user.id) : name
            return (
              <div key={user.id} className="list-row">
                <div className="grow">
                  <div className="clip">{shown}</div>
                  <div className="muted small clip">{user.credentials?.username ?? user.email}</div>
                </div>
                {(rolesByMember.get(user.id) ?? []).map((role) => (
                  <span key={role} className="tag">
                    {role}
                  </span>
                ))}
                <Button
                  small
                  kind="quiet"
                  icon="close"
                  label={`Remove ${shown}`}
                  onClick={() => setRemoved({ id: user.id, name: shown })}
                />
              </div>
            )
          })}
          {isInviting ? (
            <Invite domain={domain} roles={rolesOf(roles.data)} onClose={() => setInviting(false)} />
          ) : null}
          {removed === undefined ? null : (
            <Confirm
              title={`Remove ${removed.name}`}
              submit="Remove member"
              busy={isRemoving}
              onClose={() => setRemoved(undefined)}
              onConfirm={() => void remove(removed.id)}
            >
              All roles of this user in the domain end, and the user can no longer use it.
            </Confirm>
          )}
        </Card>
      )}
    </QueryView>
  )
}

function Invite({ domain, roles, onClose }: { domain: string; roles: readonly RoleRecord[]; onClose: () => void }) {
  const [text, setText] = useState('')
  const [user, setUser] = useState('')
  const [role, setRole] = useState(roles[0]?.id ?? '')
  const asked = text.trim()
  const found = useQuery({
    ...query('GET /users/search', {
      query: asked.includes('@') ? { email: asked, limit: 10 } : { username: asked, limit: 10 },
    }),
    enabled: asked.length >= 3,
  })
  const [invite, isBusy] = useAction('The user was not invited', async () => {
    await call('POST /domains/{domain_id}/invitations', {
      params: { domain_id: domain },
      body: { invitee_user_id: user, role_id: role },
    })
    onClose()
    return 'Invited. They accept on their first page.'
  })
  const users = asked.length >= 3 ? (found.data?.users ?? []) : []
  return (
    <FormDialog
      title="Invite a user"
      submit="Invite"
      busy={isBusy}
      onClose={onClose}
      onSubmit={() => void invite()}
      disabledReason={user === '' ? 'Choose a user' : role === '' ? 'Choose a role' : undefined}
    >
      <TextField
        label="Username or email"
        value={text}
        onChange={setText}
        autoFocus
        hint="At least three letters. The user needs an account."
      />
      {users.length === 0 ? (
        asked.length >= 3 && found.data !== undefined ? (
          <Notice tone="plain">No user is called so.</Notice>
        ) : null
      ) : (
        <SelectField
          label="User"
          value={user}
          onChange={setUser}
          options={[
            ['', 'Choose'],
            ...users.map((one): [string, string] => [one.id, one.credentials.username ?? one.email ?? one.id]),
          ]}
        />
      )}
      <SelectField
        label="Role"
        value={role}
        onChange={setRole}
        options={roles.map(({ id, name }): [string, string] => [id, name])}
      />
    </FormDialog>
  )
}

function RoleList({ domain }: { domain: string }) {
  const params = { domain_id: domain }
  const roles = useRoles(domain)
  const [edited, setEdited] = useState<RoleRecord | 'new'>()
  const [removed, setRemoved] = useState<RoleRecord>()
  const [remove, isRemoving] = useAction('The role was not deleted', async (role: string) => {
    await call('DELETE /domains/{domain_id}/roles/{role_id}', { params: { ...params, role_id: role } })
    setRemoved(undefined)
    return 'The role is deleted'
  })
  return (
    <QueryView result={roles} entity={`domain:${domain}`}>
      {(answer) => (
        <Card
          title="Roles"
          flush
          actions={
            <Button icon="plus" onClick={() => setEdited('new')}>
              New role
            </Button>
          }
        >
          {rolesOf(answer).map((role) => (
            <div key={role.id} className="list-row">
              <div className="grow">
                <div>{role.name}</div>
                <div className="muted small">
                  {counted(role.actions.length, 'action')} · {counted(role.members.length, 'member')}
                </div>
              </div>
              <Menu
                label={`Actions for ${role.name}`}
                icon="more"
                items={[
                  { label: 'Edit actions', icon: 'settings', onSelect: () => setEdited(role) },
                  {
                    label: 'Delete',
                    icon: 'trash',
                    isDanger: true,
                    onSelect: () => setRemoved(role),
                  },
                ]}
              />
            </div>
          ))}
          {edited === undefined ? null : (
            <RoleDialog
              domain={domain}
              role={edited === 'new' ? undefined : edited}
              onClose={() => setEdited(undefined)}
            />
          )}
          {removed === undefined ? null : (
            <Confirm
              title={`Delete the role ${removed.name}`}
              submit="Delete role"
              busy={isRemoving}
              onClose={() => setRemoved(undefined)}
              onConfirm={() => void remove(removed.id)}
            >
              Its members lose the actions that no other role gives them.
            </Confirm>
          )}
        </Card>
      )}
    </QueryView>
  )
}

function RoleDialog({ domain, role, onClose }: { domain: string; role: RoleRecord | undefined; onClose: () => void }) {
  const params = { domain_id: domain }
  const available = useQuery(query('GET /domains/roles/available-actions'))
  const [name, setName] = useState(role?.name ?? '')
  const [actions, setActions] = useState<ReadonlySet<string>>(new Set(role?.actions))
  const [filter, setFilter] = useState('')
  const [save, isBusy] = useAction('The role was not saved', async () => {
    const chosen = [...actions] as never[]
    if (role === undefined)
      await call('POST /domains/{domain_id}/roles', {
        params,
        body: { role_name: name.trim(), optional_actions: chosen },
      })
    else {
      if (name.trim() !== role.name)
        await call('PUT /domains/{domain_id}/roles/{role_id}', {
          params: { ...params, role_id: role.id },
          body: { name: name.trim() },
        })
      const target = { ...params, role_id: role.id }
      const added = chosen.filter((action) => !role.actions.includes(action))
      const dropped = role.actions.filter((action) => !actions.has(action)) as never[]
      if (added.length > 0)
        await call('POST /domains/{domain_id}/roles/{role_id}/actions', {
          params: target,
          body: { actions: added } as never,
        })
      if (dropped.length > 0)
        await call('POST /domains/{domain_id}/roles/{role_id}/actions/delete', {
          params: target,
          body: { actions: dropped } as never,
        })
    }
    onClose()
    return 'Saved'
  })
  const shown = (available.data?.available_actions ?? []).filter((action) => action.includes(filter.trim()))
  return (
    <FormDialog
      title={role === undefined ? 'New role' : `Role ${role.name}`}
      kind="wide"
      submit="Save"
      busy={isBusy}
      onClose={onClose}
      onSubmit={() => void save()}
      disabledReason={name.trim() === '' ? 'The role needs a name' : undefined}
    >
      <TextField label="Name" value={name} onChange={setName} autoFocus />
      <TextField label="Find actions" value={filter} onChange={setFilter} placeholder="client_" />
      <fieldset className="stack" style={{ maxHeight: '40vh', overflow: 'auto' }}>
        <legend className="muted small">{formatCount(actions.size)} chosen</legend>
        {shown.map((action) => (
          <Check
            key={action}
            checked={actions.has(action)}
            onChange={(isChosen) => {
              const next = new Set(actions)
              if (isChosen) next.add(action)
              else next.delete(action)
              setActions(next)
            }}
          >
            <code>{action}</code>
          </Check>
        ))}
      </fieldset>
    </FormDialog>
  )
}

function InvitationList({ domain }: { domain: string }) {
  const params = { domain_id: domain }
  const result = useQuery(
    query('GET /domains/{domain_id}/invitations', { params, query: { limit: 100, state: 'all' } }),
  )
  const [withdraw] = useAction('The invitation was not withdrawn', async (user: string) => {
    await call('DELETE /domains/{domain_id}/invitations', { params, body: { user_id: user } })
    return 'Withdrawn'
  })
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {({ invitations }) => (
        <Card title="Invitations" flush>
          {invitations.length === 0 ? <Empty icon="members" title="Nobody is invited" /> : null}
          {invitations.map((invitation) => (
            <div key={invitation.invitee_user_id} className="list-row">
              <div className="grow">
                <UserName id={invitation.invitee_user_id} />
                <div className="muted small">
                  as {invitation.role_name ?? invitation.relation} · <Time at={invitation.created_at} />
                </div>
              </div>
              {isNever(invitation.confirmed_at) ? (
                isNever(invitation.rejected_at) ? (
                  <State tone="active" icon="wait">
                    Waiting
                  </State>
                ) : (
                  <State tone="bad">Rejected</State>
                )
              ) : (
                <State tone="ok">Accepted</State>
              )}
              <Button
                small
                kind="quiet"
                icon="close"
                label="Withdraw the invitation"
                onClick={() => void withdraw(invitation.invitee_user_id)}
              />
            </div>
          ))}
        </Card>
      )}
    </QueryView>
  )
}
