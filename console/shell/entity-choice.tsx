/** Several entities of a domain of any size: they are found by name and taken one by one. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../api/call.ts'
import { query } from '../api/queries.ts'
import { SelectField, TextField } from '../design/controls.tsx'
import { Icon } from '../design/icon.tsx'
import { useNameOf } from './names.tsx'
import type { NamedType } from './names.tsx'

/** Entities that one page of the choice shows. */
const MAX_OFFERED = 100

export type ChosenType = NamedType | 'rule'
type Offered = { total: number; items: readonly { id: string; name: string }[] }

const WORDS: Readonly<Record<ChosenType, { one: string; many: string; title: string }>> = {
  channel: { one: 'a channel', many: 'channels', title: 'Channels' },
  client: { one: 'a client', many: 'clients', title: 'Clients' },
  group: { one: 'a group', many: 'groups', title: 'Groups' },
  rule: { one: 'a rule', many: 'rules', title: 'Rules' },
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
  }
}

export function EntityChoice({
  type,
  domain,
  field = `${type}s`,
  hint,
  chosen,
  onChange,
}: {
  type: ChosenType
  domain: string
  field?: string
  /** What it means that none is chosen, or several. */
  hint?: string | undefined
  chosen: readonly string[]
  onChange: (ids: string[]) => void
}) {
  const [text, setText] = useState('')
  const { one, many, title } = WORDS[type]
  const name = text.trim()
  const { data } = useQuery({
    queryKey: ['choice', type, domain, name],
    queryFn: async ({ signal }) => await find(type, domain, name, signal),
  })
  const offered = (data?.items ?? []).filter(({ id }) => !chosen.includes(id))
  return (
    <>
      {chosen.length === 0 ? null : (
        <div className="chips" role="group" aria-label={title}>
          {chosen.map((id) => {
            const given = { domain, id, onRemove: () => onChange(chosen.filter((other) => other !== id)) }
            return type === 'rule' ? <ChosenRule key={id} {...given} /> : <Chosen key={id} type={type} {...given} />
          })}
        </div>
      )}
      <TextField label={`Find ${many} by name`} value={text} onChange={setText} />
      <SelectField
        label={`Add ${one}`}
        field={field}
        value=""
        onChange={(id) => {
          if (id !== '') onChange([...chosen, id])
        }}
        options={[
          ['', offered.length === 0 ? 'None is left' : 'Choose'],
          ...offered.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
        ]}
        hint={(data?.total ?? 0) > MAX_OFFERED ? `More than ${MAX_OFFERED} match: type a part of the name.` : hint}
      />
    </>
  )
}

type ChosenProps = { domain: string; id: string; onRemove: () => void }

function Chosen({ type, domain, id, onRemove }: ChosenProps & { type: NamedType }) {
  return <Chip name={useNameOf(type, domain, id)} id={id} onRemove={onRemove} />
}

function ChosenRule({ domain, id, onRemove }: ChosenProps) {
  const { data } = useQuery(
    query('GET /{domain_id}/rules/{rule_id}', { params: { domain_id: domain, rule_id: id }, isLookup: true }),
  )
  return <Chip name={data?.name} id={id} onRemove={onRemove} />
}

function Chip({ name, id, onRemove }: { name: string | undefined; id: string; onRemove: () => void }) {
  const shown = name ?? id.slice(0, 8)
  return (
    <span className="chip">
      {shown}
      <button type="button" aria-label={`Remove ${shown}`} onClick={onRemove}>
        <Icon name="close" size="small" />
      </button>
    </span>
  )
}
