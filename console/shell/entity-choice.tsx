/** Entities of a domain of any size: they are found by name and taken one by one. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../api/call.ts'
import { SelectField, TextField } from '../design/controls.tsx'
import { Icon } from '../design/icon.tsx'
import { useEntityName } from './entity-name.tsx'
import type { ChosenType } from './entity-name.tsx'

/** Entities that one page of the choice shows. */
const MAX_OFFERED = 100

type Offered = { total: number; items: readonly { id: string; name: string }[] }

const WORDS: Readonly<Record<ChosenType, { one: string; many: string; title: string }>> = {
  channel: { one: 'a channel', many: 'channels', title: 'Channels' },
  client: { one: 'a client', many: 'clients', title: 'Clients' },
  group: { one: 'a group', many: 'groups', title: 'Groups' },
  rule: { one: 'a rule', many: 'rules', title: 'Rules' },
  task: { one: 'a task', many: 'tasks', title: 'Tasks' },
  worker: { one: 'a worker', many: 'workers', title: 'Workers' },
  workflow: { one: 'a workflow', many: 'workflows', title: 'Workflows' },
}

async function find(type: ChosenType, domain: string, name: string, signal: AbortSignal): Promise<Offered> {
  const params = { domain_id: domain }
  const page = { limit: MAX_OFFERED, name, status: 'all' } as const
  const sorted = { ...page, order: 'name', dir: 'asc' } as const
  switch (type) {
    case 'channel': {
      const { total, channels } = await call('GET /{domain_id}/channels', { params, query: sorted, signal })
      return { total, items: channels }
    }
    case 'client': {
      const given = { ...sorted, secrets: false }
      const { total, clients } = await call('GET /{domain_id}/clients', { params, query: given, signal })
      return { total, items: clients }
    }
    case 'group': {
      const { total, groups } = await call('GET /{domain_id}/groups', { params, query: sorted, signal })
      return { total, items: groups }
    }
    case 'rule': {
      const { total, rules } = await call('GET /{domain_id}/rules', { params, query: page, signal })
      return { total, items: rules }
    }
    case 'task': {
      const given = { limit: MAX_OFFERED, name, domain_id: domain, order: 'name', dir: 'asc' } as const
      const { total, tasks } = await call('GET /tasks', { query: given, signal })
      return { total, items: tasks }
    }
    case 'worker': {
      const { total, workers } = await call('GET /workers', { query: { limit: MAX_OFFERED }, signal })
      // The route has no filter by name.
      return { total, items: workers.filter(({ name: its }) => its.toLowerCase().includes(name.toLowerCase())) }
    }
    case 'workflow': {
      const given = { limit: MAX_OFFERED, name, domain_id: domain }
      const { total, workflows } = await call('GET /workflows', { query: given, signal })
      return { total, items: workflows }
    }
  }
}

type Choice = {
  type: ChosenType
  domain: string
  field?: string
  /** What it means that none is chosen, or several. */
  hint?: string | undefined
}

export function EntityChoice({
  type,
  domain,
  field = `${type}s`,
  hint,
  label = `Add ${WORDS[type].one}`,
  chosen,
  onChange,
}: Choice & { label?: string; chosen: readonly string[]; onChange: (ids: string[]) => void }) {
  const [text, setText] = useState('')
  const { many, title } = WORDS[type]
  const name = text.trim()
  const { data } = useQuery({
    queryKey: ['choice', type, domain, name],
    queryFn: async ({ signal }) => await find(type, domain, name, signal),
  })
  const offered = (data?.items ?? []).filter(({ id }) => !chosen.includes(id))
  // While the entities are unknown, nothing is said of them.
  const isEmpty = data !== undefined && offered.length === 0
  return (
    <>
      {chosen.length === 0 ? null : (
        <div className="chips" role="group" aria-label={title}>
          {chosen.map((id) => (
            <Chosen
              key={id}
              type={type}
              domain={domain}
              id={id}
              onRemove={() => onChange(chosen.filter((other) => other !== id))}
            />
          ))}
        </div>
      )}
      <TextField label={`Find ${many} by name`} value={text} onChange={setText} />
      <SelectField
        label={label}
        field={field}
        value=""
        onChange={(id) => {
          if (id !== '') onChange([...chosen, id])
        }}
        options={[
          ['', isEmpty ? emptyText(name, chosen.length) : 'Choose'],
          ...offered.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
        ]}
        hint={(data?.total ?? 0) > MAX_OFFERED ? `More than ${MAX_OFFERED} match: type a part of the name.` : hint}
      />
    </>
  )
}

function emptyText(name: string, chosen: number): string {
  if (name !== '') return 'None matches'
  return chosen === 0 ? 'There is none' : 'None is left'
}

/** One entity, or none, which is an empty id: another choice replaces it. */
export function OneEntity({
  label,
  id,
  onChange,
  ...choice
}: Choice & { label: string; id: string; onChange: (id: string) => void }) {
  return (
    <EntityChoice
      {...choice}
      label={label}
      chosen={id === '' ? [] : [id]}
      onChange={(ids) => onChange(ids.at(-1) ?? '')}
    />
  )
}

function Chosen({
  type,
  domain,
  id,
  onRemove,
}: {
  type: ChosenType
  domain: string
  id: string
  onRemove: () => void
}) {
  const name = useEntityName(type, domain, id)
  return (
    <span className="chip">
      {name}
      <button type="button" aria-label={`Remove ${name}`} onClick={onRemove}>
        <Icon name="close" size="small" />
      </button>
    </span>
  )
}
