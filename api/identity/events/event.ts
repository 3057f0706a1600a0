/**
 * Converts a record of the journal to an event: a flat map in the format of Magistrala's events (contract section 10).
 * Pure.
 */
import { formatPosition } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'

export type EventRecord = {
  position: Position
  operation: string
  /** Microseconds since 1970. */
  occurredAtUs: number
  domainKey: number | null
  /** Id of the domain. Null for a record without a domain. */
  domainId: string | null
  actorId: string | null
  tokenType: string | null
  superAdmin: boolean
  requestId: string | null
  entityKeys: readonly number[]
  attributes: Readonly<Record<string, unknown>>
}

/** Fields of an event. `occurred_at` is in nanoseconds, a bigint because a number cannot represent it. */
export type EventFields = Record<string, unknown>

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns the fields of the entity: the recorded attributes, and after a change the new values with `before`. */
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

/** Cache of the serialized event, for all callers who may read the complete record. */
const whole = new WeakMap<EventRecord, Buffer>()

/** Serializes the complete record as a server-sent event. */
export function wholeEvent(record: EventRecord): Buffer {
  let event = whole.get(record)
  if (event === undefined) whole.set(record, (event = Buffer.from(serverSentEvent(record, record.attributes))))
  return event
}

/** Serializes the record as a server-sent event with these attributes. Its id is the position. */
export function serverSentEvent(record: EventRecord, attributes: EventRecord['attributes']): string {
  const data = eventData(record, attributes)
  return `id: ${formatPosition(record.position)}\nevent: ${record.operation}\ndata: ${data}\n\n`
}

/** The fields of the record as JSON, with these attributes. */
export function eventData(record: EventRecord, attributes: EventRecord['attributes']): string {
  return formatEvent(eventFields(record, attributes))
}

/** Serializes to JSON with all digits of `occurred_at`. */
export function formatEvent({ occurred_at: occurredAt, ...fields }: EventFields): string {
  return `{"occurred_at":${String(occurredAt)},${JSON.stringify(fields).slice(1)}`
}

/** Returns one event for each entity of a bulk record. Consumers of Redis streams expect one entity per event. */
export function eachEntity({ ids, ...fields }: EventFields): EventFields[] {
  return Array.isArray(ids)
    ? ids.map((id: unknown) => ({ id, ...fields }))
    : [{ ...fields, ...(ids === undefined ? {} : { ids }) }]
}
