/** Personal access tokens of the user: for programs that act as the user, within scopes. */
import { useQuery } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Input } from '../../api/call.ts'
import type { Pat } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Check, Code, Menu, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Notice, State, Time } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { ShownOnce } from '../../shell/shown-once.tsx'
import { QueryView } from '../../shell/states.tsx'

const SHOWN = 100
const LIFETIMES: readonly (readonly [string, string])[] = [
  ['24h', 'one day'],
  ['168h', 'one week'],
  ['720h', '30 days'],
  ['2160h', '90 days'],
  ['8760h', 'one year'],
]
const TONES = { active: 'ok', expired: 'idle', revoked: 'idle' } as const

type Scopes = NonNullable<Input<'PATCH /pats/{pat_id}/scope/add'>['body']>['scopes']
type Scope = Scopes[number]

/** What a token may do in a domain, in words. */
const PURPOSES: readonly { name: string; hint: string; scopes: readonly Pick<Scope, 'entity_type' | 'operation'>[] }[] =
  [
    {
      name: 'Read messages',
      hint: 'and subscribe to channels',
      scopes: [
        { entity_type: 'messages', operation: 'subscribe' },
        { entity_type: 'channels', operation: 'read' },
        { entity_type: 'channels', operation: 'list' },
      ],
    },
    { name: 'Publish messages', hint: 'to channels', scopes: [{ entity_type: 'messages', operation: 'publish' }] },
    {
      name: 'Manage devices',
      hint: 'create, change and delete clients, channels and groups',
      scopes: (['clients', 'channels', 'groups'] as const).flatMap((type) =>
        (['create', 'read', 'list', 'update', 'delete'] as const).map((operation) => ({
          entity_type: type,
          operation,
        })),
      ),
    },
    {
      name: 'Manage tasks',
      hint: 'create, change, start and delete tasks',
      scopes: (['create', 'read', 'list', 'update', 'delete'] as const).map((operation) => ({
        entity_type: 'tasks',
        operation,
      })),
    },
  ]

export function PersonalTokens() {
  const result = useQuery(query('GET /pats', { query: { limit: SHOWN } }))
  const [isCreating, setCreating] = useState(false)
  const [deleting, setDeleting] = useState<Pat>()
  const [revoke] = useAction('The token was not revoked', async (id: string) => {
    await call('PATCH /pats/{pat_id}/secret/revoke', { params: { pat_id: id } })
    return 'Revoked: it is invalid within a second'
  })
  const remove = useFormAction('The token was not deleted', async () => {
    if (deleting === undefined) return
    await call('DELETE /pats/{pat_id}', { params: { pat_id: deleting.id } })
    setDeleting(undefined)
    return 'The token is deleted'
  })
  return (
    <Card
      title="Personal access tokens"
      flush
      actions={
        <Button small icon="plus" onClick={() => setCreating(true)}>
          New token
        </Button>
      }
    >
      <QueryView result={result}>
        {({ pats }) =>
          pats.length === 0 ? (
            <Empty icon="lock" title="No tokens">
              A program that acts for you gets a token with the scopes that it needs, and not your password.
            </Empty>
          ) : (
            pats.map((pat) => (
              <div key={pat.id} className="list-row">
                <div className="grow">
                  <div className="clip" dir="auto">
                    {pat.name}
                  </div>
                  <div className="muted small">
                    last used <Time at={pat.last_used_at} /> · expires <Time at={pat.expires_at} isAhead />
                  </div>
                </div>
                <State tone={TONES[pat.status]}>{`${pat.status[0]?.toUpperCase()}${pat.status.slice(1)}`}</State>
                <Menu
                  label={`Actions for ${pat.name}`}
                  icon="more"
                  items={[
                    {
                      label: 'Revoke',
                      icon: 'stop',
                      disabledReason: pat.status === 'active' ? undefined : `It is ${pat.status}`,
                      onSelect: () => void revoke(pat.id),
                    },
                    { label: 'Delete', icon: 'trash', isDanger: true, onSelect: () => setDeleting(pat) },
                  ]}
                />
              </div>
            ))
          )
        }
      </QueryView>
      {isCreating ? <NewToken onClose={() => setCreating(false)} /> : null}
      {deleting === undefined ? null : (
        <Confirm
          title={`Delete ${deleting.name}`}
          submit="Delete token"
          action={remove}
          onClose={() => setDeleting(undefined)}
        >
          Programs that use it are refused within a second. This cannot be undone.
        </Confirm>
      )}
    </Card>
  )
}

function NewToken({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const [lifetime, setLifetime] = useState('720h')
  const [domain, setDomain] = useState('')
  const [purposes, setPurposes] = useState<readonly string[]>([])
  const [made, setMade] = useState<Pat>()
  const created = useRef<Pat>(undefined)
  const domains = useQuery(
    query('GET /domains', { query: { limit: SHOWN, status: 'enabled', order: 'name', dir: 'asc' } }),
  )
  const create = useFormAction('The token was not created', async () => {
    // A token whose scopes failed is not created again.
    const pat = (created.current ??= await call('POST /pats', { body: { name: name.trim(), duration: lifetime } }))
    const scopes = PURPOSES.filter((one) => purposes.includes(one.name)).flatMap((one) => one.scopes)
    await call('PATCH /pats/{pat_id}/scope/add', {
      params: { pat_id: pat.id },
      body: { scopes: scopes.map((scope) => ({ ...scope, domain_id: domain, entity_id: '*' })) },
    })
    setMade(pat)
  })
  if (made !== undefined) return <MadeToken token={made} onClose={onClose} />
  return (
    <FormDialog
      title="New token"
      submit="Create token"
      action={create}
      onClose={onClose}
      disabledReason={
        domain === '' ? 'Choose a domain' : purposes.length === 0 ? 'Choose what the token may do' : undefined
      }
    >
      <TextField label="Name" field="name" value={name} onChange={setName} required maxLength={1024} />
      <SelectField label="Valid for" field="duration" value={lifetime} onChange={setLifetime} options={LIFETIMES} />
      <SelectField
        label="Domain"
        field="scopes"
        value={domain}
        onChange={setDomain}
        options={[
          ['', 'Choose a domain'],
          ...(domains.data?.domains ?? []).map(({ id, name: its }): [string, string] => [id, its]),
        ]}
      />
      <div className="field" role="group" aria-label="It may">
        <span>It may</span>
        {PURPOSES.map((one) => (
          <Check
            key={one.name}
            checked={purposes.includes(one.name)}
            onChange={(isChosen) =>
              setPurposes(isChosen ? [...purposes, one.name] : purposes.filter((other) => other !== one.name))
            }
          >
            {one.name} <span className="muted">{one.hint}</span>
          </Check>
        ))}
        <div className="hint">It can never do more than you. Other scopes: skein pats scopes add.</div>
      </div>
    </FormDialog>
  )
}

function MadeToken({ token: { name, secret = '' }, onClose }: { token: Pat; onClose: () => void }) {
  const [isSaved, setSaved] = useState(false)
  return (
    <ShownOnce
      title={`The token ${name}`}
      what="the token"
      loss="It was not copied, and cannot be shown again."
      isSaved={isSaved}
      onClose={onClose}
    >
      <Notice tone="warn">Copy it now: it is not stored and cannot be shown again.</Notice>
      <Code label="token" text={secret} wrap onCopy={() => setSaved(true)} />
    </ShownOnce>
  )
}
