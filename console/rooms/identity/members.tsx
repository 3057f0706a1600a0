/** Members of a domain, whose role is changed in place; below them, roles and invitations. */
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Answer } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, SmallSelect } from '../../design/controls.tsx'
import { Card, counted } from '../../design/display.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useSession } from '../../shell/session.ts'
import { QueryView } from '../../shell/states.tsx'
import { useDomainId } from '../../shell/url.ts'
import { InvitationList, Invite } from './invitations.tsx'
import { ADMIN_ROLE, roleOptions, titleOf } from './role-words.ts'
import type { RoleOption, RoleRecord } from './role-words.ts'
import { RoleList } from './roles.tsx'

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
  const session = useSession()
  const roles = useRoles(domain)
  useEffect(() => {
    document.title = 'Members and roles · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Members and roles</h1>
      </div>
      {/* A user who may not see roles sees none of the lists, so the page has one answer for all. */}
      <QueryView result={roles} entity={`domain:${domain}`}>
        {(answer) => {
          const all = rolesOf(answer)
          const isAdmin =
            session.kind === 'signed-in' && (session.role === 'admin' || adminsOf(all).includes(session.userId))
          return (
            <>
              <MemberList domain={domain} roles={all} isAdmin={isAdmin} />
              <RoleList domain={domain} roles={all} />
              {isAdmin ? <InvitationList domain={domain} roles={all} /> : null}
            </>
          )
        }}
      </QueryView>
    </>
  )
}

const adminsOf = (roles: readonly RoleRecord[]) => roles.find(({ name }) => name === ADMIN_ROLE)?.members ?? []

type Member = Answer<'GET /domains/{domain_id}/users'>['users'][number]

function nameOf(user: Member): string {
  const name = [user.first_name, user.last_name].filter((part) => part !== undefined && part !== '').join(' ')
  return name === '' ? (user.credentials?.username ?? user.id) : name
}

function MemberList({ domain, roles, isAdmin }: { domain: string; roles: readonly RoleRecord[]; isAdmin: boolean }) {
  const params = { domain_id: domain }
  const [isInviting, setInviting] = useState(false)
  const [removed, setRemoved] = useState<Member>()
  const members = useQuery(query('GET /domains/{domain_id}/users', { params, query: { limit: 100, status: 'all' } }))
  const remove = useFormAction('The member was not removed', async () => {
    if (removed === undefined) return
    await call('DELETE /domains/{domain_id}/roles/members', { params, body: { member_ids: [removed.id] } })
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
            <Button
              kind="primary"
              icon="plus"
              disabledReason={isAdmin ? undefined : 'Only administrators of the domain invite users'}
              onClick={() => setInviting(true)}
            >
              Invite
            </Button>
          }
        >
          {users.map((user) => (
            <MemberRow key={user.id} domain={domain} user={user} roles={roles} onRemove={() => setRemoved(user)} />
          ))}
          {total > users.length ? (
            <div className="list-row muted">The first {counted(users.length, 'member')} are shown.</div>
          ) : null}
          {isInviting ? <Invite domain={domain} roles={roles} onClose={() => setInviting(false)} /> : null}
          {removed === undefined ? null : (
            <Confirm
              title={`Remove ${nameOf(removed)}`}
              submit="Remove member"
              action={remove}
              onClose={() => setRemoved(undefined)}
            >
              All roles of this user in the domain end, and the user can no longer use it.
            </Confirm>
          )}
        </Card>
      )}
    </QueryView>
  )
}

const LAST_ADMIN = 'The domain needs an administrator: make another member one first'

function MemberRow({
  domain,
  user,
  roles,
  onRemove,
}: {
  domain: string
  user: Member
  roles: readonly RoleRecord[]
  onRemove: () => void
}) {
  const denied = useDomainDenied(domain)
  const held = roles.filter(({ members }) => members.includes(user.id))
  const options = roleOptions(roles)
  const name = nameOf(user)
  const [change, isChanging] = useAction('The role was not changed', async (option: RoleOption) => {
    await changeRole(domain, user.id, held, option)
    return `${name} has the role ${option.title}`
  })
  const admins = adminsOf(roles)
  const last = admins.length === 1 && admins[0] === user.id ? LAST_ADMIN : undefined
  const current = held.length === 1 ? (held[0]?.id ?? '') : ''
  return (
    <div className="list-row">
      <div className="grow">
        <div className="clip" dir="auto">
          {name}
        </div>
        <div className="muted small clip">{user.credentials?.username ?? user.email}</div>
      </div>
      <SmallSelect
        label={`Role of ${name}`}
        value={current}
        disabledReason={last ?? denied('add_role_users') ?? denied('remove_role_users')}
        busy={isChanging}
        onChange={(key) => {
          const option = options.find((one) => one.key === key)
          if (option !== undefined) void change(option)
        }}
        options={[
          ...(current === ''
            ? [['', held.length === 0 ? 'No role' : held.map((role) => titleOf(role.name)).join(', ')] as const]
            : []),
          ...options.map(({ key, title }) => [key, title] as const),
        ]}
      />
      <Button
        small
        kind="quiet"
        icon="close"
        label={`Remove ${name}`}
        disabledReason={last ?? denied('remove_role_users')}
        onClick={onRemove}
      />
    </div>
  )
}

/** The new role first: a user without a role is no member, and would lose every other role in the domain. */
async function changeRole(
  domain: string,
  user: string,
  held: readonly RoleRecord[],
  { choice }: RoleOption,
): Promise<void> {
  const params = { domain_id: domain }
  if ('relation' in choice)
    await call('POST /domains/{domain_id}/users/assign', {
      params,
      body: { relation: choice.relation, user_ids: [user] },
    })
  else
    await call('POST /domains/{domain_id}/roles/{role_id}/members', {
      params: { ...params, role_id: choice.role.id },
      body: { members: [user] },
    })
  const kept = 'role' in choice ? choice.role.id : undefined
  for (const { id } of held)
    if (id !== kept)
      await call('POST /domains/{domain_id}/roles/{role_id}/members/delete', {
        params: { ...params, role_id: id },
        body: { members: [user] },
      })
}
