/** The first screen: the domains of the user, invitations, and a new domain. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, TextField } from '../../design/controls.tsx'
import { Card, Empty, State, Time } from '../../design/display.tsx'
import { Icon } from '../../design/icon.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { QueryView } from '../../shell/states.tsx'
import { WAITING, isOpen } from '../../shell/waiting-invitations.ts'
import { useView } from '../../shell/url.ts'
import { titleOf } from './role-words.ts'

const SHOWN = 100

export function Domains() {
  const [filter, setFilter] = useView('name')
  const [isCreating, setCreating] = useView('create')
  const domains = useQuery(
    query('GET /domains', { query: { limit: SHOWN, status: 'all', order: 'name', dir: 'asc', name: filter } }),
  )
  useEffect(() => {
    document.title = 'Domains · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Domains</h1>
        <Button kind="primary" icon="plus" onClick={() => setCreating('1')}>
          New domain
        </Button>
      </div>
      <Invitations />
      <QueryView result={domains}>
        {({ domains: rows, total }) =>
          rows.length === 0 && filter === '' ? (
            <Card>
              <Empty
                icon="overview"
                title="Create your first domain"
                actions={
                  <Button kind="primary" icon="plus" onClick={() => setCreating('1')}>
                    New domain
                  </Button>
                }
              >
                A domain holds the devices, channels and tasks of one plant, customer or team. Its members see nothing
                of other domains.
              </Empty>
            </Card>
          ) : (
            <>
              {total > 8 || filter !== '' ? (
                <div className="search">
                  <Icon name="search" />
                  <input
                    className="input"
                    data-filter
                    placeholder="Filter by name"
                    aria-label="Filter by name"
                    value={filter}
                    onChange={(event) => setFilter(event.target.value)}
                  />
                </div>
              ) : null}
              <Card flush>
                {rows.map((domain) => (
                  <Link key={domain.id} className="list-row" to={paths.overview(domain.id)}>
                    <div className="grow">
                      <div>
                        <strong>{domain.name}</strong>{' '}
                        {domain.alias === '' ? null : <span className="muted">{domain.alias}</span>}
                      </div>
                      <div className="muted small">
                        {domain.role_name === undefined ? null : `${titleOf(domain.role_name)} · `}changed{' '}
                        <Time at={domain.updated_at.startsWith('0001') ? domain.created_at : domain.updated_at} />
                      </div>
                    </div>
                    {domain.status === 'enabled' ? null : <State tone="warn">{domain.status}</State>}
                    <Icon name="right" />
                  </Link>
                ))}
                {rows.length === 0 ? <Empty icon="search" title="No domain has this name" /> : null}
              </Card>
              {total > rows.length ? <p className="muted">{total - rows.length} more: filter by name.</p> : null}
            </>
          )
        }
      </QueryView>
      {isCreating === '' ? null : <NewDomain onClose={() => setCreating('')} />}
    </>
  )
}

function NewDomain({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [alias, setAlias] = useState('')
  const create = useFormAction('The domain was not created', async () => {
    const domain = await call('POST /domains', {
      body: { name: name.trim(), ...(alias.trim() === '' ? {} : { alias: alias.trim() }) },
    })
    await navigate({ to: paths.overview(domain.id) })
  })
  return (
    <FormDialog title="New domain" submit="Create domain" action={create} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} required autoFocus />
      <TextField
        label="Alias"
        field="alias"
        value={alias}
        onChange={setAlias}
        hint="A short name for addresses, such as plant-1. Optional."
      />
    </FormDialog>
  )
}

function Invitations() {
  const { data } = useQuery(query('GET /invitations', { query: WAITING }))
  const [answer, isBusy] = useAction('The invitation was not answered', async (domain: string, accepts: boolean) => {
    await call(accepts ? 'POST /invitations/accept' : 'POST /invitations/reject', { body: { domain_id: domain } })
    return accepts ? 'You are a member now' : 'The invitation is rejected'
  })
  const invitations = (data?.invitations ?? []).filter(isOpen)
  if (invitations.length === 0) return null
  return (
    <Card title="Invitations" flush>
      {invitations.map((invitation) => (
        <div key={invitation.domain_id} className="list-row">
          <div className="grow">
            <strong>{invitation.domain_name}</strong>
            <div className="muted small">
              as {titleOf(invitation.role_name ?? invitation.relation ?? 'member')} · expires{' '}
              <Time at={invitation.expires_at} isAhead />
            </div>
          </div>
          <Button busy={isBusy} onClick={() => void answer(invitation.domain_id, false)}>
            Reject
          </Button>
          <Button kind="primary" busy={isBusy} onClick={() => void answer(invitation.domain_id, true)}>
            Accept
          </Button>
        </div>
      ))}
    </Card>
  )
}
