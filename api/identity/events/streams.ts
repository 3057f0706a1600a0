/**
 * Maps an event to Redis streams and names, for consumers of Mainflux and of Magistrala (contract section 10). Pure.
 */
import { familyOf } from '../journal/index.ts'
import type { EventFields } from './event.ts'

export const STREAM_PREFIX = 'events.skein.'

export type StreamEntry = { stream: string; fields: Record<string, string> }

/** The service streams of legacy consumers, by the first word of the operation. */
const SERVICES: Record<string, string> = {
  config: 'bootstrap',
  bootstrap: 'bootstrap',
  mqtt: 'mqtt',
  coap: 'coap',
  ws: 'ws',
  http: 'http',
}

function serviceOf(operation: string): string {
  const family = familyOf(operation)
  return SERVICES[family] ?? `${family}s`
}

/** Legacy consumers expect one operation for both changes, and read the status. */
const STATUS_CHANGE = /^(client|channel|group)\.(enable|disable)$/

function olderOperation(operation: string): string {
  return operation.replace(STATUS_CHANGE, '$1.change_status')
}

function statusOf(operation: string): Record<string, string> {
  const change = STATUS_CHANGE.exec(operation)?.[2]
  return change === undefined ? {} : { status: `${change}d` }
}

/** Returns text unchanged and other values as JSON. Null and undefined fields are omitted. */
function flat(fields: EventFields): Record<string, string> {
  const texts: Record<string, string> = {}
  for (const [name, value] of Object.entries(fields)) {
    if (value === null || value === undefined) continue
    texts[name] = typeof value === 'string' ? value : typeof value === 'bigint' ? String(value) : JSON.stringify(value)
  }
  return texts
}

/** Returns the entries of the event: one in the stream of its service, one in the stream of its operation. */
export function streamEntries(event: EventFields): [StreamEntry, StreamEntry] {
  const operation = String(event['operation'])
  const fields = { ...statusOf(operation), ...flat(event) }
  return [
    {
      stream: `${STREAM_PREFIX}${serviceOf(operation)}`,
      fields: { ...fields, operation: olderOperation(operation) },
    },
    { stream: `${STREAM_PREFIX}${operation}`, fields },
  ]
}
