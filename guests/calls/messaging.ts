/** The host functions with which guests publish and read messages, for core modules and for components. */
import type { Interfaces } from '../wasi/index.ts'
import { refuseCall } from '../wasm/index.ts'
import type { GuestCall, GuestReply, MESSAGING_FUNCTIONS } from '../wasm/index.ts'
import type { CoreMemory } from './core-memory.ts'
import type { GuestHost } from './guest-host.ts'

/** Limit of records per read. */
const MAX_READ_RECORDS = 1_000

type CoreImports = Record<keyof typeof MESSAGING_FUNCTIONS, (...parameters: number[]) => number>

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true })

export function coreMessaging(host: GuestHost, memory: CoreMemory): CoreImports {
  const ask = (make: () => GuestCall): GuestReply => askHost(host, make)
  const codeOf = (reply: GuestReply) => (reply.ok ? 0 : memory.refuse(reply))
  return {
    publish: (topicAt = 0, topicBytes = 0, payloadAt = 0, payloadBytes = 0) =>
      codeOf(
        ask(() => ({
          kind: 'publish',
          topic: memory.text(topicAt, topicBytes),
          payload: memory.text(payloadAt, payloadBytes),
        })),
      ),
    read(queryAt = 0, queryBytes = 0, bufferAt = 0, capacity = 0) {
      const reply = ask(() => parseQuery(memory.text(queryAt, queryBytes)))
      return reply.ok ? memory.writeText(bufferAt, capacity, reply.records) : codeOf(reply)
    },
    last_error: (bufferAt = 0, capacity = 0) => memory.writeText(bufferAt, capacity, memory.lastError),
  }
}

type ComponentQuery = { name?: string; from?: number; to?: number; limit: number }

export function componentMessaging(host: GuestHost): Interfaces {
  const ask = (make: () => GuestCall): string => {
    const reply = askHost(host, make)
    if (reply.ok) return reply.records
    const { kind, message } = reply
    throw { kind, message } // oxlint-disable-line typescript/only-throw-error -- `err` in transpiled components
  }
  return {
    'skein:messaging/types': {},
    'skein:messaging/producer': {
      send(topic: string, payload: Uint8Array) {
        ask(() => ({ kind: 'publish', topic, payload: decoder.decode(payload) }))
      },
    },
    'skein:messaging/reader': {
      read: (topic: string, { name = '', from, to, limit }: ComponentQuery) =>
        encoder.encode(ask(() => ({ kind: 'read', topic, name, from: from ?? null, to: to ?? null, limit }))),
    },
  }
}

/** Invalid UTF-8 and invalid queries are refused; an address outside of the memory is not caught. */
function askHost(host: GuestHost, make: () => GuestCall): GuestReply {
  let call: GuestCall
  try {
    call = make()
  } catch (error) {
    if (error instanceof RangeError) throw error
    return refuseCall('malformed', error instanceof Error ? error.message : 'the call is not UTF-8')
  }
  if (call.kind === 'read' && !(call.limit >= 1 && call.limit <= MAX_READ_RECORDS)) {
    return refuseCall('malformed', `limit must be between 1 and ${MAX_READ_RECORDS}`)
  }
  return host.call(call)
}

function parseQuery(text: string): GuestCall {
  const query: unknown = JSON.parse(text)
  if (typeof query !== 'object' || query === null) throw new TypeError('the query must be a JSON object')
  const { topic = '', name = '', from = null, to = null, limit = 1 } = query as Record<string, unknown>
  const isTime = (value: unknown): value is number | null => value === null || typeof value === 'number'
  if (typeof topic !== 'string' || typeof name !== 'string') throw new TypeError('topic and name must be strings')
  if (!isTime(from) || !isTime(to)) throw new TypeError('from and to must be seconds since 1970')
  return { kind: 'read', topic, name, from, to, limit: Number(limit) }
}
