/** Frames of a domain's stream: JSON texts with a `type`. */
import { compileValidator } from '#http/index.ts'
import { ServiceError, presentError } from '#core/errors/index.ts'
import { Ack, Authenticate, MAX_ID_CHARS, Nack, Subscribe, Unsubscribe } from './schema.ts'

export type ClientFrame = Authenticate | Subscribe | Unsubscribe | Ack | Nack

const VALIDATORS = new Map(
  Object.entries({
    authenticate: Authenticate,
    subscribe: Subscribe,
    unsubscribe: Unsubscribe,
    ack: Ack,
    nack: Nack,
  }).map(([type, schema]) => [type, compileValidator({ schema, httpPart: 'body' })]),
)

/** Throws `malformed`. */
export function parseFrame(text: string): ClientFrame {
  const value = parseObject(text)
  const validate = VALIDATORS.get(String(value['type']))
  if (validate === undefined)
    throw new ServiceError('malformed', `type must be one of ${[...VALIDATORS.keys()].join(', ')}`)
  const result = validate(value)
  if ('error' in result) throw result.error
  const frame = result.value as ClientFrame
  if (frame.type !== 'subscribe') return frame
  if ((frame.source === 'messages') !== (frame.channel !== undefined))
    throw new ServiceError('malformed', 'channel is required with the source messages, and with no other')
  if ((frame.source === 'consumer') !== (frame.consumer !== undefined))
    throw new ServiceError('malformed', 'consumer is required with the source consumer, and with no other')
  return frame
}

/** The id of a frame that could not be handled, if it has one. */
export function idOf(text: string): string | undefined {
  try {
    const { id } = parseObject(text)
    return typeof id === 'string' && id.length <= MAX_ID_CHARS ? id : undefined
  } catch {
    return undefined
  }
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  } catch {
    // said below
  }
  throw new ServiceError('malformed', 'a frame must be a JSON object')
}

/** The frame of an event; `data` is JSON. */
export function eventFrame(id: string, position: string, event: string, data: string): string {
  const head = JSON.stringify({ type: 'event', id, position, event })
  return `${head.slice(0, -1)},"data":${data}}`
}

/** The frame of an error. If it has no id, the error is about the connection. */
export function errorFrame(id: string | undefined, error: unknown): string {
  return JSON.stringify({ type: 'error', ...(id === undefined ? {} : { id }), ...presentError(error) })
}
