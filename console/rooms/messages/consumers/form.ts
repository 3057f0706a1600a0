/** What the forms of a named consumer make of their fields. Pure. */
import { instantOf } from '../../../shell/local-time.ts'
import type { Consumer, ConsumerCreate } from '../../../api/operations.ts'

export type Order = Consumer['order']
type Filter = NonNullable<ConsumerCreate['filter']>
export type Protocol = NonNullable<Filter['protocol']>

export const ORDERS: readonly (readonly [Order, string])[] = [
  ['client', 'later messages of its client'],
  ['channel', 'later messages of its channel'],
  ['none', 'nothing'],
]

export const PROTOCOLS: readonly (readonly [Protocol | '', string])[] = [
  ['', 'Any'],
  ['http', 'HTTP'],
  ['mqtt', 'MQTT'],
  ['coap', 'CoAP'],
  ['ws', 'WebSocket'],
  ['task', 'Task'],
]

/** The fields of both forms, as texts. */
export type ConsumerForm = {
  name: string
  channels: readonly string[]
  subtopic: string
  publishers: readonly string[]
  protocol: Protocol | ''
  order: Order
  maxInFlight: string
  ackWait: string
  maxDeliver: string
}

export const formOf = (consumer: Consumer | undefined): ConsumerForm => ({
  name: consumer?.name ?? '',
  channels: consumer?.channels ?? [],
  subtopic: consumer?.filter.subtopic ?? '',
  publishers: (consumer?.filter.publisher ?? '').split(',').filter((id) => id !== ''),
  protocol: consumer?.filter.protocol ?? '',
  order: consumer?.order ?? 'client',
  maxInFlight: String(consumer?.max_in_flight ?? ''),
  ackWait: consumer?.ack_wait ?? '',
  maxDeliver: String(consumer?.max_deliver ?? ''),
})

/** A field that is empty is absent: a new consumer has the default of the server, another one what it had. The filter is sent whole. */
export function bodyOf(form: ConsumerForm) {
  const [subtopic, publisher] = [form.subtopic.trim(), form.publishers.join(',')]
  const ackWait = form.ackWait.trim()
  return {
    name: form.name.trim(),
    channels: [...form.channels],
    filter: {
      ...(subtopic === '' ? {} : { subtopic }),
      ...(publisher === '' ? {} : { publisher }),
      ...(form.protocol === '' ? {} : { protocol: form.protocol }),
    },
    order: form.order,
    ...(form.maxInFlight === '' ? {} : { max_in_flight: Number(form.maxInFlight) }),
    ...(ackWait === '' ? {} : { ack_wait: ackWait }),
    ...(form.maxDeliver === '' ? {} : { max_deliver: Number(form.maxDeliver) }),
  }
}

export const BEGINNINGS = [
  ['latest', 'With the next message'],
  ['earliest', 'With the oldest message that is kept'],
  ['time', 'At a time'],
  ['position', 'At the position of a message'],
] as const
export type Beginning = (typeof BEGINNINGS)[number][0]

export type From = { beginning: Beginning; time: string; position: string }

export const FROM_LATEST: From = { beginning: 'latest', time: '', position: '' }

/** A time is one of the browser. An incomplete one is sent as it is, and refused by the server at the field. */
export function fromOf({ beginning, time, position }: From): string {
  if (beginning === 'position') return position.trim()
  return beginning === 'time' ? instantOf(time) : beginning
}

/** Seconds after which a message that waits expires within a day: it waits for a week. */
const EXPIRES_SOON_SECONDS = 6 * 86_400

export type Standing = { tone: 'ok' | 'active' | 'warn' | 'bad'; text: string }

export function standingOf({ last_error: error, behind_since: behind, lag_seconds: lag }: Consumer): Standing {
  if (error !== undefined) return { tone: 'bad', text: 'Refused' }
  if (behind === undefined) return { tone: 'ok', text: 'Nothing waits' }
  return lag > EXPIRES_SOON_SECONDS
    ? { tone: 'warn', text: 'Messages expire' }
    : { tone: 'active', text: 'Messages wait' }
}
