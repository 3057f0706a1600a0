/** Invitations to a domain: one is sent, sent again, or withdrawn. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Answer } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Notice, State, Time, isNever } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { UserName } from '../../shell/names.tsx'
import { QueryView } from '../../shell/states.tsx'
import { roleOptions, titleOf } from './role-words.ts'
import type { RoleChoice, RoleRecord } from './role-words.ts'

const MIN_LETTERS = 3

/** Whether a text can be an address; the server decides. */
const ADDRESS = /^[^\s@]+@[^\s@]+$/

type Invitee = { invitee_user_id: string } | { email: string }

async function send(domain: string, invitee: Invitee, choice: RoleChoice, isAgain = false): Promise<void> {
  await call('POST /domains/{domain_id}/invitations', {
    params: { domain_id: domain },
    body: {
      ...invitee,
      ...('relation' in choice ? { relation: choice.relation } : { role_id: choice.role.id }),
      resend: isAgain,
    },
  })
}

const NO_MAIL_SERVER =
  'No user is known by this address. This installation has no mail server: the mail with the link to register becomes a file in the folder “mail” of its data folder, and its operator passes the link on. The link is valid for 7 days.'

const invitationsOf = (domain: string) =>
  query('GET /domains/{domain_id}/invitations', {
    params: { domain_id: domain },
    query: { limit: 100, state: 'all' },
  })

export function Invite({
  domain,
  roles,
  onClose,
}: {
  domain: string
  roles: readonly RoleRecord[]
  onClose: () => void
}) {
  const [text, setText] = useState('')
  const [chosen, setChosen] = useState('')
  const options = roleOptions(roles)
  const [role, setRole] = useState(options[0]?.key ?? '')
  const asked = text.trim()
  const found = useQuery({
    ...query('GET /users/search', {
      query: asked.includes('@') ? { email: asked, limit: 10 } : { username: asked, limit: 10 },
    }),
    enabled: asked.length >= MIN_LETTERS,
  })
  const users = asked.length >= MIN_LETTERS ? (found.data?.users ?? []) : []
  // This is the same page as that of the list below, which is there already.
  const { data: sent } = useQuery(invitationsOf(domain))
  const hasMailServer = sent?.mail_server !== false
  const user = users.length === 1 ? (users[0]?.id ?? '') : chosen
  // The server knows whether the address has an account.
  const invitee: Invitee | undefined =
    user !== '' ? { invitee_user_id: user } : ADDRESS.test(asked) ? { email: asked } : undefined
  const option = options.find(({ key }) => key === role)
  const invite = useFormAction(
    'The user was not invited',
    async () => {
      if (option === undefined || invitee === undefined) return
      await send(domain, invitee, option.choice)
      if (!('email' in invitee)) return 'Invited. They accept on their first page.'
      return hasMailServer ? 'Invited by mail' : 'Invited: the mail is a file on the server of the platform'
    },
    onClose,
  )
  return (
    <FormDialog
      title="Invite a user"
      submit="Invite"
      action={invite}
      onClose={onClose}
      disabledReason={invitee === undefined ? 'Choose a user' : option === undefined ? 'Choose a role' : undefined}
    >
      <TextField
        label="Username or email"
        field="email"
        value={text}
        onChange={setText}
        hint="At least three letters of a name, or the whole address of a person without an account."
      />
      {users.length === 0 ? (
        asked.length >= MIN_LETTERS && found.data !== undefined ? (
          <Notice tone="plain">
            {ADDRESS.test(asked)
              ? hasMailServer
                ? 'No user is known by this address. It gets a mail with a link to register, which is valid for 7 days.'
                : NO_MAIL_SERVER
              : 'No user has this name. Type an address to invite by mail.'}
          </Notice>
        ) : null
      ) : (
        <SelectField
          label="User"
          field="invitee_user_id"
          value={user}
          onChange={setChosen}
          options={[
            ['', 'Choose'],
            ...users.map((one): [string, string] => [one.id, one.credentials.username ?? one.email ?? one.id]),
          ]}
        />
      )}
      <SelectField
        label="Role"
        field="role_id"
        value={role}
        onChange={setRole}
        hint={option?.what}
        options={options.map(({ key, title }): [string, string] => [key, title])}
      />
    </FormDialog>
  )
}

type Mailed = { email: string }
type Invitation = Answer<'GET /domains/{domain_id}/invitations'>['invitations'][number]

/** What became of it; an accepted one is a member. */
function stateOf(invitation: Invitation): 'waiting' | 'expired' | 'rejected' {
  if (!isNever(invitation.rejected_at)) return 'rejected'
  return Date.parse(invitation.expires_at) < Date.now() ? 'expired' : 'waiting'
}

export function InvitationList({ domain, roles }: { domain: string; roles: readonly RoleRecord[] }) {
  const params = { domain_id: domain }
  const result = useQuery(invitationsOf(domain))
  const [withdraw] = useAction('The invitation was not withdrawn', async (invitee: { user_id: string } | Mailed) => {
    await call('DELETE /domains/{domain_id}/invitations', { params, body: invitee })
    return 'Withdrawn'
  })
  const [again] = useAction('The user was not invited again', async (invitee: Invitee, roleId: string | undefined) => {
    const role = roles.find(({ id }) => id === roleId)
    if (role === undefined) throw new Error('the role was deleted')
    await send(domain, invitee, { role }, true)
    return 'Invited again'
  })
  return (
    <QueryView result={result} entity={`domain:${domain}`}>
      {({ invitations, mailed, mail_server: server }) => {
        const open = invitations.filter(({ confirmed_at: at }) => isNever(at))
        return (
          <Card title="Invitations" flush>
            {open.length + mailed.length === 0 ? <Empty icon="members" title="No invitation waits" /> : null}
            {mailed.map(({ email, role_id: role, role_name: roleName, created_at: at }) => (
              <div key={email} className="list-row">
                <div className="grow">
                  <div className="clip">{email}</div>
                  <div className="muted small">
                    as {titleOf(roleName ?? 'a deleted role')} · {server === false ? 'mail written' : 'mailed'}{' '}
                    <Time at={at} />
                  </div>
                </div>
                <State tone="active" icon="wait">
                  Not registered
                </State>
                <Button small onClick={() => void again({ email }, role)}>
                  Mail again
                </Button>
                <Button
                  small
                  kind="quiet"
                  icon="close"
                  label={`Withdraw the invitation of ${email}`}
                  onClick={() => void withdraw({ email })}
                />
              </div>
            ))}
            {open.map((invitation) => {
              const state = stateOf(invitation)
              return (
                <div key={invitation.invitee_user_id} className="list-row">
                  <div className="grow">
                    <UserName id={invitation.invitee_user_id} />
                    <div className="muted small">
                      as {titleOf(invitation.role_name ?? invitation.relation ?? 'a deleted role')} · sent{' '}
                      <Time at={invitation.created_at} />
                    </div>
                  </div>
                  {state === 'waiting' ? (
                    <State tone="active" icon="wait">
                      Waiting
                    </State>
                  ) : (
                    <State tone="bad">{state === 'rejected' ? 'Rejected' : 'Expired'}</State>
                  )}
                  {state === 'waiting' ? null : (
                    <Button
                      small
                      onClick={() => void again({ invitee_user_id: invitation.invitee_user_id }, invitation.role_id)}
                    >
                      Invite again
                    </Button>
                  )}
                  {state === 'rejected' ? null : (
                    <Button
                      small
                      kind="quiet"
                      icon="close"
                      label="Withdraw the invitation"
                      onClick={() => void withdraw({ user_id: invitation.invitee_user_id })}
                    />
                  )}
                </div>
              )
            })}
          </Card>
        )
      }}
    </QueryView>
  )
}
