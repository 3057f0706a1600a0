/** Fields of the forms of a named consumer. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../../../api/queries.ts'
import { SelectField, TextField } from '../../../design/controls.tsx'
import { Icon } from '../../../design/icon.tsx'
import { useChannelName } from '../../../shell/names.tsx'
import { BEGINNINGS, ORDERS, PROTOCOLS } from './form.ts'
import type { Beginning, ConsumerForm, From, Order, Protocol } from './form.ts'

/** Channels that one page of the choice shows. */
const MAX_OFFERED = 100

type Fields = {
  domain: string
  form: ConsumerForm
  onChange: (form: ConsumerForm) => void
}

export function ConsumerFields({ domain, form, onChange }: Fields) {
  const set = (changes: Partial<ConsumerForm>) => onChange({ ...form, ...changes })
  return (
    <>
      <TextField
        label="Name"
        field="name"
        value={form.name}
        onChange={(name) => set({ name })}
        hint="Letters, digits and . _ -"
        required
        maxLength={64}
      />
      <ChannelChoice domain={domain} chosen={form.channels} onChange={(channels) => set({ channels })} />
      <TextField
        label="Subtopic"
        field="filter.subtopic"
        value={form.subtopic}
        onChange={(subtopic) => set({ subtopic })}
        placeholder="hall-1/+/temperature"
        hint="+ is one element, # all that follow. Empty: all messages"
      />
      <TextField
        label="Publishers"
        field="filter.publisher"
        value={form.publisher}
        onChange={(publisher) => set({ publisher })}
        hint="Ids of clients, separated by commas. Empty: all"
      />
      <SelectField
        label="Protocol"
        field="filter.protocol"
        value={form.protocol}
        onChange={(protocol) => set({ protocol: protocol as Protocol | '' })}
        options={PROTOCOLS}
      />
      <SelectField
        label="A message in flight holds back"
        field="order"
        value={form.order}
        onChange={(order) => set({ order: order as Order })}
        options={ORDERS}
      />
      <TextField
        label="Messages in flight at most"
        field="max_in_flight"
        type="number"
        min={1}
        max={10_000}
        value={form.maxInFlight}
        onChange={(maxInFlight) => set({ maxInFlight })}
        placeholder="1000"
      />
      <TextField
        label="Deliver again after"
        field="ack_wait"
        value={form.ackWait}
        onChange={(ackWait) => set({ ackWait })}
        placeholder="30s"
        hint="A message that is not acknowledged within this time, from 100ms to 24h"
      />
      <TextField
        label="Deliveries at most"
        field="max_deliver"
        type="number"
        min={1}
        max={1_000}
        value={form.maxDeliver}
        onChange={(maxDeliver) => set({ maxDeliver })}
        placeholder="5"
        hint="Then the message is a dead letter"
      />
    </>
  )
}

/** Several channels of a domain of any size: they are found by name and taken one by one. */
export function ChannelChoice({
  domain,
  field = 'channels',
  hint,
  chosen,
  onChange,
}: {
  domain: string
  field?: string
  /** What it means that none is chosen, or several. */
  hint?: string
  chosen: readonly string[]
  onChange: (channels: string[]) => void
}) {
  const [name, setName] = useState('')
  const { data } = useQuery(
    query('GET /{domain_id}/channels', {
      params: { domain_id: domain },
      query: { limit: MAX_OFFERED, order: 'name', dir: 'asc', name: name.trim(), status: 'all' },
    }),
  )
  const offered = (data?.channels ?? []).filter(({ id }) => !chosen.includes(id))
  return (
    <>
      {chosen.length === 0 ? null : (
        <div className="chips" role="group" aria-label="Channels">
          {chosen.map((id) => (
            <ChosenChannel
              key={id}
              domain={domain}
              id={id}
              onRemove={() => onChange(chosen.filter((one) => one !== id))}
            />
          ))}
        </div>
      )}
      <TextField label="Find channels by name" value={name} onChange={setName} />
      <SelectField
        label="Add a channel"
        field={field}
        value=""
        onChange={(id) => {
          if (id !== '') onChange([...chosen, id])
        }}
        options={[
          ['', offered.length === 0 ? 'None is left' : 'Choose'],
          ...offered.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its]),
        ]}
        hint={(data?.total ?? 0) > MAX_OFFERED ? 'More than 100 match: type a part of the name.' : hint}
      />
    </>
  )
}

function ChosenChannel({ domain, id, onRemove }: { domain: string; id: string; onRemove: () => void }) {
  const name = useChannelName(domain, id)
  return (
    <span className="chip">
      {name}
      <button type="button" aria-label={`Remove ${name}`} onClick={onRemove}>
        <Icon name="close" size="small" />
      </button>
    </span>
  )
}

export function FromFields({ from, onChange }: { from: From; onChange: (from: From) => void }) {
  const isShown = from.beginning === 'latest' || from.beginning === 'earliest'
  return (
    <>
      <SelectField
        label="Begin"
        {...(isShown ? { field: 'from' } : {})}
        value={from.beginning}
        onChange={(beginning) => onChange({ ...from, beginning: beginning as Beginning })}
        options={BEGINNINGS}
      />
      {from.beginning === 'time' ? (
        <TextField
          label="Time"
          field="from"
          type="datetime-local"
          step={1}
          required
          value={from.time}
          onChange={(time) => onChange({ ...from, time })}
        />
      ) : null}
      {from.beginning === 'position' ? (
        <TextField
          label="Position"
          field="from"
          required
          value={from.position}
          onChange={(position) => onChange({ ...from, position })}
          hint="Of the message that is delivered first"
        />
      ) : null}
    </>
  )
}
