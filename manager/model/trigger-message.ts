/** Converts a message that triggers a run to inputs of the function (task-manager.md section 5). Pure. */
import { ServiceError } from '#core/errors/index.ts'
import { parseWitType } from '#guests/wasm/index.ts'
import type { Json, WitType } from '#guests/wasm/index.ts'
import type { GivenMessages, SenmlRecord, TriggerMessage } from '#queues/index.ts'

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

/** True if the function has only number parameters: it runs once for each record. */
function takesNumbers(params: readonly string[]): boolean {
  return params.length > 0 && params.every((param) => NUMBER_TYPES.has(param))
}

/**
 * The inputs of a function with these parameters: the task's own inputs come last, after the number of the record and its
 * time, or, for a component with other parameters, after the text of the message or its records. `params` undefined: the
 * module was not read yet.
 */
export function inputsOf(given: GivenMessages, params: readonly string[] | undefined, own: readonly Json[]): Json[] {
  if (isList(given)) return batchInputs(given, params, own)
  const message = given
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

const isList = (given: GivenMessages): given is readonly TriggerMessage[] => Array.isArray(given)

/**
 * Returns the inputs for a list of messages. The first parameter gets the text of the list; a list of messages, if it is a list of records
 * with the field `records`; a list of the records of each message, if it is a list of lists; or the records of all of them.
 */
function batchInputs(
  messages: readonly TriggerMessage[],
  params: readonly string[] | undefined,
  own: readonly Json[],
): Json[] {
  const room = params === undefined ? 1 : params.length - own.length
  if (room <= 0) return [...own]
  const free = params?.slice(0, room)
  if (free !== undefined && takesNumbers(free))
    throw new ServiceError('unprocessable', 'a trigger with batch needs a function of a list or a text, or a command')
  const first = free?.[0]
  if (first === 'string') return [JSON.stringify(messages), ...own]
  const item = first === undefined ? undefined : itemOf(first)
  if (item?.kind === 'list') return [messages.map(({ records }) => records) as Json, ...own]
  if (item?.kind === 'record' && item.fields.some(([name]) => name === 'records'))
    return [messages.map((message) => recordOf(message, item.fields)), ...own]
  return [messages.flatMap(({ records }) => records) as Json, ...own]
}

/** The fields of a message that the type names. */
function recordOf(
  { channel_id: id, ...message }: TriggerMessage,
  fields: readonly (readonly [string, WitType])[],
): Json {
  const given: Readonly<Record<string, unknown>> = { 'channel-id': id, ...message }
  return Object.fromEntries(fields.flatMap(([name]) => (name in given ? [[name, given[name] as Json]] : [])))
}

/** Returns the type of the items of a list; undefined for other types. */
function itemOf(param: string): WitType | undefined {
  if (!param.startsWith('list<')) return undefined
  const type = parseWitType(param)
  return type.kind === 'list' ? type.item : undefined
}

/** The parameters that are left for the message after the task's own inputs. */
function freeParams(params: readonly string[], ownCount: number): readonly string[] {
  return params.slice(0, Math.max(params.length - ownCount, 0))
}

/** The messages of the runs that a message starts: one per record if the function takes numbers, else the message. */
export function triggersOf(
  message: TriggerMessage,
  params: readonly string[] | undefined,
  ownCount: number,
): TriggerMessage[] {
  if (!runsPerRecord(params, ownCount)) return [message]
  return message.records.map((record) => ({ ...message, records: [record] }))
}

/** Whether each record of a message is a run. */
export function runsPerRecord(params: readonly string[] | undefined, ownCount: number): boolean {
  return takesNumbers(freeParams(params ?? [], ownCount))
}

function numberOf(record: SenmlRecord | undefined): number | undefined {
  if (record?.vb !== undefined) return record.vb ? 1 : 0
  return record?.v ?? record?.s
}
