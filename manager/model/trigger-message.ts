/** What of a message that starts a run becomes the inputs of the function (task-manager.md section 5). Pure. */
import { ServiceError } from '#core/errors/index.ts'
import type { Json } from '#core/wasm/index.ts'
import type { SenmlRecord, TriggerMessage } from '#queues/index.ts'

const NUMBER_TYPES: ReadonlySet<string> = new Set([
  'i32',
  'i64',
  'f32',
  'f64',
  's8',
  'u8',
  's16',
  'u16',
  's32',
  'u32',
  's64',
  'u64',
  'float32',
  'float64',
])

/** True when the function takes numbers alone: such a one runs once for each record. */
export function takesNumbers(params: readonly string[]): boolean {
  return params.length > 0 && params.every((param) => NUMBER_TYPES.has(param))
}

/**
 * The inputs of a function with these parameters: the task's own inputs are the last ones, before them stand the number
 * of the record and its time; for a component that takes no numbers the text of the message, or its records. `params`
 * undefined: nobody has read the module.
 */
export function inputsOf(message: TriggerMessage, params: readonly string[] | undefined, own: readonly Json[]): Json[] {
  const room = params === undefined ? 1 : params.length - own.length
  if (params === undefined) return [message.records as Json, ...own]
  if (room <= 0) return [...own]
  const free = params.slice(0, room)
  if (takesNumbers(free)) {
    const [record] = message.records
    const value = numberOf(record)
    if (record === undefined || value === undefined) {
      throw new ServiceError('unprocessable', 'the record has no number, and the function takes numbers')
    }
    return [...[value, record.t].slice(0, room), ...own]
  }
  return [free[0] === 'string' ? JSON.stringify(message) : (message.records as Json), ...own]
}

function numberOf(record: SenmlRecord | undefined): number | undefined {
  if (record?.vb !== undefined) return record.vb ? 1 : 0
  return record?.v ?? record?.s
}
