/** A trial of a module: what it is called with, and how the frame runs it. */
import { call, send } from '../../api/call.ts'
import type { Answer } from '../../api/call.ts'
import type { InspectedModule } from '../../api/operations.ts'
import type { GuestCall, SenmlRecord, TryReport } from '../../try/protocol.ts'
import { parametersOf, parseInput } from './inputs.ts'
import { callsOf } from './trigger-calls.ts'
import type { TriggerMessage } from './trigger-calls.ts'

const HOUR_SECONDS = 3_600
const MAX_RECORDS = 1_000

export type ModuleFunction = InspectedModule['exports'][number]
export type Source =
  | { kind: 'inputs'; values: readonly string[]; stdin: string }
  | { kind: 'channel'; channel: string }
  | { kind: 'message'; channel: string; message: string }
/** A run whose module is tried on what it was started with. */
export type GivenRun = {
  readonly taskName: string
  readonly function: string | undefined
  readonly inputs: readonly unknown[] | undefined
  readonly message: { readonly channel: string; readonly message: string } | undefined
}
export type Trial = { calls: readonly GuestCall[]; report: TryReport }
type StoredMessage = Answer<'GET /{domain_id}/channels/{channel_id}/messages'>['messages'][number]

export const functionsOf = ({ exports }: InspectedModule): ModuleFunction[] =>
  exports.filter(({ kind, name }) => ['function', 'func'].includes(kind) && name !== '_initialize')

export const isCommand = ({ name }: ModuleFunction) => name === '_start' || /^wasi:cli\/run@0\.2\.\d+#run$/.test(name)

/** Throws `ApiError`, for a module that the user may not download as well. */
export async function runToTry(task: string, run: string): Promise<{ module: File; of: GivenRun }> {
  const found = await call('GET /tasks/{task_id}/runs/{run_id}', { params: { task_id: task, run_id: run } })
  const { module_digest: digest, task_name: name, cause } = found
  const response = await send('GET /modules/{digest}/content', {
    params: { digest },
    headers: { Accept: 'application/wasm' },
  })
  const { channel_id: channel, message } = cause ?? {}
  return {
    module: new File([await response.blob()], `${name}.wasm`),
    of: {
      taskName: name,
      function: found.function,
      inputs: found.inputs,
      message: channel === undefined || message === undefined ? undefined : { channel, message },
    },
  }
}

/** Throws an error with a sentence. */
export async function runTrial(
  domain: string,
  { file, kind }: { file: File; kind: InspectedModule['kind'] },
  chosen: ModuleFunction,
  source: Source,
): Promise<Trial> {
  const messages = source.kind === 'inputs' ? [] : await messagesOf(domain, source)
  const calls =
    source.kind === 'inputs'
      ? [callWith(chosen, source)]
      : messages.flatMap((message) => callsOf(message, chosen.params))
  if (calls.length === 0)
    throw new Error(
      source.kind === 'message'
        ? 'the message is no longer stored, or has nothing that the function takes'
        : 'the channel has no message of the last hour that the function takes',
    )
  const { tryModule } = await import('../../try/sandbox.ts')
  const request = {
    module: await file.arrayBuffer(),
    functionName: chosen.name,
    params: chosen.params,
    results: chosen.results,
    calls,
    args: [file.name.replace(/\.wasm$/, '')],
    env: {},
    records: messages.flatMap(({ records }) => records).toSorted((one, other) => other.t - one.t),
  }
  const report = await tryModule(request, kind === 'component')
  return { calls, report }
}

function callWith(chosen: ModuleFunction, { values, stdin }: Extract<Source, { kind: 'inputs' }>): GuestCall {
  const inputs = parametersOf(chosen.params).map((parameter, index) => parseInput(parameter, values[index] ?? ''))
  return { inputs, stdin }
}

/** One message, or those of the last hour, oldest first, with at most the newest thousand records. */
async function messagesOf(domain: string, source: Exclude<Source, { kind: 'inputs' }>): Promise<TriggerMessage[]> {
  const { channel } = source
  const which = source.kind === 'message' ? { message: source.message } : { from: Date.now() / 1_000 - HOUR_SECONDS }
  const { messages, next } = await call('GET /{domain_id}/channels/{channel_id}/messages', {
    params: { domain_id: domain, channel_id: channel },
    query: { ...which, limit: MAX_RECORDS, dir: 'desc', links: true },
  })
  const byMessage = [...Map.groupBy(messages.toReversed(), ({ message_id: id }) => id).values()]
  // The oldest message may have further records that were not read.
  const whole = next !== undefined && byMessage.length > 1 ? byMessage.slice(1) : byMessage
  return whole.map((records) => ({
    channel_id: channel,
    subtopic: records[0]?.subtopic ?? '',
    publisher: records[0]?.publisher ?? '',
    protocol: records[0]?.protocol ?? '',
    records: records.map((record) => senmlOf(record)),
  }))
}

/** The fields are in the order of those of a trigger, because a function may get the text. */
function senmlOf(stored: StoredMessage): SenmlRecord {
  const { name = '', time = 0, unit, value, string_value: vs, bool_value: vb, data_value: vd } = stored
  const { sum: s, update_time: ut } = stored
  return {
    n: name,
    ...(unit === undefined ? {} : { u: unit }),
    t: time,
    ...(value === undefined ? {} : { v: value }),
    ...(vs === undefined ? {} : { vs }),
    ...(vb === undefined ? {} : { vb }),
    ...(vd === undefined ? {} : { vd }),
    ...(s === undefined ? {} : { s }),
    ...(ut === undefined ? {} : { ut }),
  }
}
