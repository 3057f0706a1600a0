/**
 * A record of the journal as the event that goes out: one flat map, as the clients of this platform family read it
 * (contract section 10). Pure.
 */
import { formatPosition } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'

export type EventRecord = {
  position: Position
  operation: string
  /** Microseconds since 1970. */
  occurredAtUs: number
  domainKey: number | null
  /** The domain's id; null when it belongs to none. */
  domainId: string | null
  actorId: string | null
  tokenType: string | null
  superAdmin: boolean
  requestId: string | null
  entityKeys: readonly number[]
  attributes: Readonly<Record<string, unknown>>
}

/** A field of an event; `occurred_at` is nanoseconds, which no number of JavaScript holds. */
export type EventFields = Record<string, unknown>

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The fields of the entity: what was recorded, and after a change the new values beside `before`. */
function entityFields(attributes: EventRecord['attributes']): EventFields {
  const { before, after, ...fields } = attributes
  return { ...fields, ...(isObject(after) ? after : {}), ...(isObject(before) ? { before } : {}) }
}

export function eventFields(record: EventRecord, attributes = record.attributes): EventFields {
  return {
    ...entityFields(attributes),
    event_id: formatPosition(record.position),
    operation: record.operation,
    occurred_at: BigInt(record.occurredAtUs) * 1000n,
    ...(record.domainId === null ? {} : { domain: record.domainId }),
    ...(record.actorId === null
      ? {}
      : {
          user_id: record.actorId,
          token_type: record.tokenType ?? 'access token',
          super_admin: record.superAdmin,
        }),
    ...(record.requestId === null ? {} : { request_id: record.requestId }),
  }
}

/** Put into bytes once for all who may see it as it is. */
const whole = new WeakMap<EventRecord, Buffer>()

/** The record as a server-sent event, with everything that it says. */
export function wholeEvent(record: EventRecord): Buffer {
  let event = whole.get(record)
  if (event === undefined) whole.set(record, (event = Buffer.from(serverSentEvent(record, record.attributes))))
  return event
}

/** The record as a server-sent event with these attributes; its id is the position behind it. */
export function serverSentEvent(record: EventRecord, attributes: EventRecord['attributes']): string {
  const data = formatEvent(eventFields(record, attributes))
  return `id: ${formatPosition(record.position)}\nevent: ${record.operation}\ndata: ${data}\n\n`
}

/** JSON with all digits of `occurred_at`. */
export function formatEvent({ occurred_at: occurredAt, ...fields }: EventFields): string {
  return `{"occurred_at":${String(occurredAt)},${JSON.stringify(fields).slice(1)}`
}

/** One event per entity of a bulk record: consumers of streams know no others. */
export function eachEntity({ ids, ...fields }: EventFields): EventFields[] {
  return Array.isArray(ids)
    ? ids.map((id: unknown) => ({ id, ...fields }))
    : [{ ...fields, ...(ids === undefined ? {} : { ids }) }]
}
