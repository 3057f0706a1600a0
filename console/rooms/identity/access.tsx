/**
 * Shows who may do what, and why: the chain from the user over a role and groups to the entity or, if it is refused, the roles that would
 * grant it.
 */
import { useQuery } from '@tanstack/react-query'
import { useEffect } from 'react'
import type { FormEvent } from 'react'
import { call } from '../../api/call.ts'
import type { AccessAnswer } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, SelectField } from '../../design/controls.tsx'
import { Card, Empty, Notice, State } from '../../design/display.tsx'
import { Icon } from '../../design/icon.tsx'
import { useAction } from '../../shell/action.ts'
import { OneEntity } from '../../shell/entity-choice.tsx'
import { UserName } from '../../shell/names.tsx'
import { QueryView } from '../../shell/states.tsx'
import { useDomainId, useViews } from '../../shell/url.ts'
import { useState } from 'react'
import { sentenceOn } from './role-words.ts'

const TYPES = ['domain', 'group', 'channel', 'client'] as const
type EntityType = (typeof TYPES)[number]

export function Access() {
  const domain = useDomainId()
  const [views, setViews] = useViews()
  const [givenType = 'domain', givenId = domain] = (views['entity'] ?? '').split(':').filter((part) => part !== '')
  const [type, setType] = useState<EntityType>(TYPES.find((one) => one === givenType) ?? 'domain')
  const [id, setId] = useState(givenType === 'domain' ? '' : givenId)
  const [action, setAction] = useState(views['action'] ?? '')
  const [subject, setSubject] = useState(views['subject'] ?? '')
  const members = useQuery(
    query('GET /domains/{domain_id}/users', { params: { domain_id: domain }, query: { limit: 100 } }),
  )
  const actions = useActions(domain, type)
  useEffect(() => {
    document.title = 'Access · Skein'
  }, [])
  const ask = (event: FormEvent) => {
    event.preventDefault()
    setViews({ entity: `${type}:${type === 'domain' ? domain : id}`, action, subject })
  }
  const missing = action === '' ? 'Choose an action' : type !== 'domain' && id === '' ? `Choose a ${type}` : undefined
  const isAsked = views['entity'] !== undefined && (views['action'] ?? '') !== ''
  return (
    <>
      <div className="page-head">
        <h1>Access</h1>
      </div>
      <Card>
        <form className="form" onSubmit={ask}>
          <div className="grid">
            <div className="third">
              <SelectField
                label="Who"
                value={subject}
                onChange={setSubject}
                options={[
                  ['', 'You'],
                  // This user is from a link, and may have left the domain.
                  ...(subject === '' || members.data?.users.some((user) => user.id === subject) === true
                    ? []
                    : ([[subject, `user ${subject.slice(0, 8)}`]] as [string, string][])),
                  ...(members.data?.users ?? []).map((user): [string, string] => [
                    user.id,
                    user.credentials?.username ?? user.email ?? user.id,
                  ]),
                ]}
              />
            </div>
            <div className="third">
              <SelectField
                label="Entity"
                value={type}
                onChange={(value) => (setType(value as EntityType), setId(''), setAction(''))}
                options={TYPES.map((one): [string, string] => [one, one === 'domain' ? 'this domain' : `a ${one}`])}
              />
            </div>
            <div className="third">
              <SelectField
                label="Action"
                value={action}
                onChange={setAction}
                options={[['', 'Choose'], ...actions.map((one): [string, string] => [one, sentenceOn(type, one)])]}
              />
            </div>
          </div>
          {type === 'domain' ? null : (
            <OneEntity type={type} domain={domain} label={`Which ${type}`} id={id} onChange={setId} />
          )}
          <div className="row">
            <Button type="submit" kind="primary" disabledReason={missing}>
              Explain
            </Button>
          </div>
        </form>
      </Card>
      {isAsked ? (
        <Answer
          domain={domain}
          entity={views['entity'] ?? ''}
          action={views['action'] ?? ''}
          subject={views['subject'] ?? ''}
        />
      ) : (
        <Card>
          <Empty icon="access" title="Ask who may do what">
            The answer shows the roles and groups that lead to it. When it is no, it shows the roles that would grant
            it.
          </Empty>
        </Card>
      )}
    </>
  )
}

function useActions(domain: string, type: EntityType): readonly string[] {
  const params = { domain_id: domain }
  const ofDomain = useQuery({
    ...query('GET /domains/roles/available-actions'),
    enabled: type === 'domain',
    staleTime: Infinity,
  })
  const ofClient = useQuery({
    ...query('GET /{domain_id}/clients/roles/available-actions', { params }),
    enabled: type === 'client',
    staleTime: Infinity,
  })
  const ofChannel = useQuery({
    ...query('GET /{domain_id}/channels/roles/available-actions', { params }),
    enabled: type === 'channel',
    staleTime: Infinity,
  })
  const ofGroup = useQuery({
    ...query('GET /{domain_id}/groups/roles/available-actions', { params }),
    enabled: type === 'group',
    staleTime: Infinity,
  })
  return { domain: ofDomain, client: ofClient, channel: ofChannel, group: ofGroup }[type].data?.available_actions ?? []
}

function Answer({
  domain,
  entity,
  action,
  subject,
}: {
  domain: string
  entity: string
  action: string
  subject: string
}) {
  const result = useQuery(
    query('GET /{domain_id}/access', {
      params: { domain_id: domain },
      query: { entity, action, ...(subject === '' ? {} : { subject }) },
    }),
  )
  return (
    <QueryView result={result}>
      {(answer) => (
        <Card
          title={
            <State tone={answer.allowed ? 'ok' : 'bad'} icon={answer.allowed ? 'ok' : 'lock'}>
              {answer.allowed ? 'Allowed' : 'Not allowed'}
            </State>
          }
        >
          <p>{answer.explanation}</p>
          {answer.allowed || answer.granted_by.length === 0 ? null : (
            <p className="muted">The user may do this there: {grantedActions(answer).join(', ')}.</p>
          )}
          {answer.granted_by.map((grant) => (
            <Chain key={`${grant.role_id}-${grant.action}-${grant.entity_id}`} answer={answer} grant={grant} />
          ))}
          {answer.allowed || answer.would_be_granted_by.length === 0 ? null : (
            <Remedies domain={domain} answer={answer} />
          )}
          {answer.domain.status === 'enabled' ? null : (
            <Notice tone="warn">The domain is {answer.domain.status}.</Notice>
          )}
        </Card>
      )}
    </QueryView>
  )
}

/** The entity of the question has its name where a role on it is named. */
const nameOf = ({ entity, granted_by: grants, would_be_granted_by: remedies }: AccessAnswer) =>
  [...grants, ...remedies].find((one) => one.entity_id === entity.id)?.entity_name

const grantedActions = ({ entity, granted_by: grants }: AccessAnswer) => [
  ...new Set(grants.map(({ action }) => sentenceOn(entity.type, action).toLowerCase())),
]

function Chain({ answer, grant }: { answer: AccessAnswer; grant: AccessAnswer['granted_by'][number] }) {
  const nodes = [
    { key: 'user', icon: 'user' as const, what: 'user', name: <UserName id={answer.subject} /> },
    {
      key: 'role',
      icon: 'members' as const,
      what: `role on ${grant.entity_type} ${grant.entity_name}`,
      name: grant.role_name,
    },
    ...grant.path.map((group) => ({ key: group.id, icon: 'group' as const, what: 'group', name: group.name })),
    {
      key: 'entity',
      icon: 'access' as const,
      what: answer.entity.type,
      name: nameOf(answer) ?? answer.entity.id.slice(0, 8),
    },
  ]
  return (
    <ol className="access-chain" aria-label={`Granted by the role ${grant.role_name}`}>
      {nodes.map(({ key, icon, what, name }, index) => (
        <li key={key} className="row">
          {index === 0 ? null : <Icon name="right" />}
          <span className="access-node row">
            <Icon name={icon} />
            <span>
              <span className="muted small">{what}</span>
              <br />
              {name}
            </span>
          </span>
        </li>
      ))}
    </ol>
  )
}

type Remedy = AccessAnswer['would_be_granted_by'][number]

/** Gives the role of the entity that the remedy names. */
async function giveRole(domain: string, { entity_type: type, entity_id: id }: Remedy, role: string, user: string) {
  const body = { members: [user] }
  const params = { domain_id: domain, role_id: role }
  if (type === 'domain') await call('POST /domains/{domain_id}/roles/{role_id}/members', { params, body })
  else if (type === 'client')
    await call('POST /{domain_id}/clients/{client_id}/roles/{role_id}/members', {
      params: { ...params, client_id: id },
      body,
    })
  else if (type === 'channel')
    await call('POST /{domain_id}/channels/{channel_id}/roles/{role_id}/members', {
      params: { ...params, channel_id: id },
      body,
    })
  else
    await call('POST /{domain_id}/groups/{group_id}/roles/{role_id}/members', {
      params: { ...params, group_id: id },
      body,
    })
}

function Remedies({ domain, answer }: { domain: string; answer: AccessAnswer }) {
  const [give, isBusy] = useAction('The role was not given', async (remedy: Remedy, role: string) => {
    await giveRole(domain, remedy, role, answer.subject)
    return 'Given'
  })
  return (
    <div className="stack">
      <h3>What would grant it</h3>
      {answer.would_be_granted_by.map((remedy) => (
        <div key={`${remedy.entity_id}-${remedy.action}`} className="row wrap">
          <span className="grow">
            {sentenceOn(remedy.entity_type, remedy.action)} (<code>{remedy.action}</code> on {remedy.entity_type}{' '}
            {remedy.entity_name})
          </span>
          {remedy.roles.map((role) => (
            <Button key={role.role_id} busy={isBusy} onClick={() => void give(remedy, role.role_id)}>
              Give the role {role.role_name}
            </Button>
          ))}
          {remedy.roles.length === 0 ? <span className="muted">no role has it yet</span> : null}
        </div>
      ))}
    </div>
  )
}
