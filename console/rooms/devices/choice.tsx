/** One channel or group of a domain of any size: the first by name are offered, and others are found by a part of their name. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../../api/queries.ts'
import { SelectField, TextField } from '../../design/controls.tsx'
import { Notice } from '../../design/display.tsx'

const OFFERED = 100

type ChoiceProps = {
  domain: string
  value: string
  onChange: (id: string) => void
  label?: string
  field?: string
  hint?: string
  /** The option of no choice. */
  none?: string
}

const pageOf = (name: string) => ({ limit: OFFERED, order: 'name', dir: 'asc', name: name.trim() }) as const

export function ChannelField(props: ChoiceProps) {
  const [name, setName] = useState('')
  const { data, error } = useQuery(
    query('GET /{domain_id}/channels', { params: { domain_id: props.domain }, query: pageOf(name) }),
  )
  const listed = data === undefined ? undefined : { total: data.total, entities: data.channels }
  return <Choice {...props} label={props.label ?? 'Channel'} plural="channels" {...{ name, setName, listed, error }} />
}

export function GroupField(props: ChoiceProps) {
  const [name, setName] = useState('')
  const { data, error } = useQuery(
    query('GET /{domain_id}/groups', { params: { domain_id: props.domain }, query: pageOf(name) }),
  )
  const listed = data === undefined ? undefined : { total: data.total, entities: data.groups }
  return <Choice {...props} label={props.label ?? 'Group'} plural="groups" {...{ name, setName, listed, error }} />
}

type Listed = { total: number; entities: readonly { id: string; name: string }[] }

function Choice({
  value,
  onChange,
  label,
  field,
  hint,
  none = 'Choose',
  plural,
  name,
  setName,
  listed,
  error,
}: ChoiceProps & {
  label: string
  plural: string
  name: string
  setName: (name: string) => void
  listed: Listed | undefined
  error: Error | null
}) {
  const [chosen, setChosen] = useState<[id: string, name: string]>()
  const offered = (listed?.entities ?? []).map(({ id, name: its }): [string, string] => [id, its === '' ? id : its])
  // What is chosen stays, also when the next name does not match it.
  const kept = chosen?.[0] === value && !offered.some(([id]) => id === value) ? [chosen] : []
  const isLong = (listed?.total ?? 0) > OFFERED
  return (
    <>
      {isLong || name !== '' ? (
        // Enter would send the form around it, with what is chosen at this moment.
        <div onKeyDown={(event) => (event.key === 'Enter' ? event.preventDefault() : undefined)}>
          <TextField label={`Find ${plural} by name`} value={name} onChange={setName} />
        </div>
      ) : null}
      <SelectField
        label={label}
        {...(field === undefined ? {} : { field })}
        value={value}
        onChange={(id) => {
          setChosen(offered.find(([one]) => one === id) ?? chosen)
          onChange(id)
        }}
        options={[['', none], ...kept, ...offered]}
        hint={isLong ? `More than ${OFFERED} match: type a part of the name.` : hint}
      />
      {error === null ? null : (
        <Notice tone="warn">
          The {plural} cannot be listed: {error.message}.
        </Notice>
      )}
    </>
  )
}
