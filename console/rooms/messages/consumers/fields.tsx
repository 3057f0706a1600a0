/** Fields of the forms of a named consumer. */
import { SelectField, TextField } from '../../../design/controls.tsx'
import { EntityChoice } from '../../../shell/entity-choice.tsx'
import { BEGINNINGS, ORDERS, PROTOCOLS } from './form.ts'
import type { Beginning, ConsumerForm, From, Order, Protocol } from './form.ts'

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
      <EntityChoice type="channel" domain={domain} chosen={form.channels} onChange={(channels) => set({ channels })} />
      <TextField
        label="Subtopic"
        field="filter.subtopic"
        value={form.subtopic}
        onChange={(subtopic) => set({ subtopic })}
        placeholder="hall-1/+/temperature"
        hint="+ is one element, # all that follow. Empty: all messages"
      />
      <EntityChoice
        type="client"
        domain={domain}
        field="filter.publisher"
        chosen={form.publishers}
        onChange={(publishers) => set({ publishers })}
        hint="Only messages of these clients. None: all"
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
