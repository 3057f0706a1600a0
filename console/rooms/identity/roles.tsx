/** Roles of a domain: what each may do, in sentences. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, Check, Menu, TextField } from '../../design/controls.tsx'
import { Card, counted, formatCount } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { ADMIN_ROLE, READY_ROLES, actionGroups, sentenceOf, titleOf } from './role-words.ts'
import type { RoleRecord } from './role-words.ts'

const BUILT_IN = 'The role of administrators has every action and cannot be changed'

export function RoleList({ domain, roles }: { domain: string; roles: readonly RoleRecord[] }) {
  const params = { domain_id: domain }
  const denied = useDomainDenied(domain)
  const [edited, setEdited] = useState<RoleRecord | 'new'>()
  const [removed, setRemoved] = useState<RoleRecord>()
  const remove = useFormAction('The role was not deleted', async () => {
    if (removed === undefined) return
    await call('DELETE /domains/{domain_id}/roles/{role_id}', { params: { ...params, role_id: removed.id } })
    setRemoved(undefined)
    return 'The role is deleted'
  })
  return (
    <Card
      title="Roles"
      flush
      actions={
        <Button icon="plus" disabledReason={denied('manage_role')} onClick={() => setEdited('new')}>
          New role
        </Button>
      }
    >
      {roles.map((role) => {
        const reason = role.name === ADMIN_ROLE ? BUILT_IN : denied('manage_role')
        return (
          <div key={role.id} className="list-row">
            <div className="grow">
              <div>{titleOf(role.name)}</div>
              <div className="muted small">
                {READY_ROLES.find((one) => one.role === role.name)?.what} {counted(role.actions.length, 'action')} ·{' '}
                {counted(role.members.length, 'member')}
              </div>
            </div>
            <Menu
              label={`Actions for ${role.name}`}
              icon="more"
              items={[
                { label: 'Edit actions', icon: 'settings', disabledReason: reason, onSelect: () => setEdited(role) },
                {
                  label: 'Delete',
                  icon: 'trash',
                  isDanger: true,
                  disabledReason: reason,
                  onSelect: () => setRemoved(role),
                },
              ]}
            />
          </div>
        )
      })}
      {edited === undefined ? null : (
        <RoleDialog domain={domain} role={edited === 'new' ? undefined : edited} onClose={() => setEdited(undefined)} />
      )}
      {removed === undefined ? null : (
        <Confirm
          title={`Delete the role ${titleOf(removed.name)}`}
          submit="Delete role"
          action={remove}
          onClose={() => setRemoved(undefined)}
        >
          Its members lose the actions that no other role gives them.
        </Confirm>
      )}
    </Card>
  )
}

function RoleDialog({ domain, role, onClose }: { domain: string; role: RoleRecord | undefined; onClose: () => void }) {
  const params = { domain_id: domain }
  const available = useQuery(query('GET /domains/roles/available-actions'))
  const [name, setName] = useState(role?.name ?? '')
  const [actions, setActions] = useState<ReadonlySet<string>>(new Set(role?.actions))
  const offered = available.data?.available_actions ?? []
  const chosen = offered.filter((action) => actions.has(action))
  const [filter, setFilter] = useState('')
  const save = useFormAction(
    'The role was not saved',
    async () => {
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
        const dropped = offered.filter((action) => role.actions.includes(action) && !actions.has(action))
        if (added.length > 0)
          await call('POST /domains/{domain_id}/roles/{role_id}/actions', {
            params: target,
            body: { actions: added },
          })
        if (dropped.length > 0)
          await call('POST /domains/{domain_id}/roles/{role_id}/actions/delete', {
            params: target,
            body: { actions: dropped },
          })
      }
      return 'Saved'
    },
    onClose,
  )
  const shown = offered.filter((action) =>
    `${action} ${sentenceOf(action)}`.toLowerCase().includes(filter.trim().toLowerCase()),
  )
  const choose = (some: readonly string[], isChosen: boolean) => {
    const next = new Set(actions)
    for (const action of some) {
      if (isChosen) next.add(action)
      else next.delete(action)
    }
    setActions(next)
  }
  return (
    <FormDialog
      title={role === undefined ? 'New role' : `Role ${role.name}`}
      kind="wide"
      submit="Save"
      action={save}
      onClose={onClose}
      disabledReason={name.trim() === '' ? 'The role needs a name' : undefined}
    >
      <TextField
        label="Name"
        field={role === undefined ? 'role_name' : 'name'}
        value={name}
        onChange={setName}
        autoFocus
      />
      <TextField label="Find actions" value={filter} onChange={setFilter} placeholder="connect" />
      <p className="muted small">{formatCount(actions.size)} chosen</p>
      {actionGroups(shown).map((group) => (
        <fieldset key={group.title} className="stack">
          <legend className="row">
            <strong>{group.title}</strong>
            <Check
              checked={group.actions.every((action) => actions.has(action))}
              onChange={(isChosen) => choose(group.actions, isChosen)}
            >
              All of {group.title.toLowerCase()}
            </Check>
          </legend>
          {group.actions.map((action) => (
            <Check key={action} checked={actions.has(action)} onChange={(isChosen) => choose([action], isChosen)}>
              {sentenceOf(action)} <code className="muted">{action}</code>
            </Check>
          ))}
        </fieldset>
      ))}
    </FormDialog>
  )
}
