/** A trial of a module: what it is called with, and how the frame runs it. */
import { call } from '../../api/call.ts'
import type { InspectedModule } from '../../api/operations.ts'
import type { GuestCall, SenmlRecord, TryReport } from '../../try/protocol.ts'
import { parametersOf, parseInput } from './inputs.ts'

const HOUR_SECONDS = 3_600
const MAX_RECORDS = 1_000
const NUMBERS: ReadonlySet<string> = new Set(['i32', 'i64', 'f32', 'f64'])

export type ModuleFunction = InspectedModule['exports'][number]
export type Source = { kind: 'inputs'; values: readonly string[]; stdin: string } | { kind: 'channel'; channel: string }
export type Trial = { calls: readonly GuestCall[]; report: TryReport; records: readonly StoredRecord[] }
type StoredRecord = SenmlRecord & { publisher: string; subtopic: string; protocol: string }

export const functionsOf = ({ exports }: InspectedModule): ModuleFunction[] =>
  exports.filter(({ kind, name }) => ['function', 'func'].includes(kind) && name !== '_initialize')

export const isCommand = ({ name }: ModuleFunction) => name === '_start' || /^wasi:cli\/run@0\.2\.\d+#run$/.test(name)

/** The function of a component takes the message as text. */
const takesText = ({ params }: ModuleFunction) => params.length === 1 && params[0] === 'string'
const takesNumbers = ({ params }: ModuleFunction) =>
  params.length > 0 && params.length <= 2 && params.every((type) => NUMBERS.has(type))

/** Whether messages can start it: with the value and the time of a record, with the message as text, or as a command. */
export const takesMessages = (one: ModuleFunction) => isCommand(one) || takesText(one) || takesNumbers(one)

/** Throws an error with a sentence. */
export async function runTrial(
  domain: string,
  { file, kind }: { file: File; kind: InspectedModule['kind'] },
  chosen: ModuleFunction,
  source: Source,
): Promise<Trial> {
  const records = source.kind === 'channel' ? await lastHour(domain, source.channel) : []
  const calls = source.kind === 'channel' ? callsFor(chosen, source.channel, records) : [callWith(chosen, source)]
  if (calls.length === 0) throw new Error('the channel has no message of the last hour that the function takes')
  const { tryModule } = await import('../../try/sandbox.ts')
  const request = {
    module: await file.arrayBuffer(),
    functionName: chosen.name,
    params: chosen.params,
    results: chosen.results,
    calls,
    args: [file.name.replace(/\.wasm$/, '')],
    env: {},
    records: records.toReversed().map((record) => senmlOf(record)),
  }
  const report = await tryModule(request, kind === 'component')
  return { calls, report, records }
}

function callWith(chosen: ModuleFunction, { values, stdin }: Extract<Source, { kind: 'inputs' }>): GuestCall {
  const inputs = parametersOf(chosen.params).map((parameter, index) => parseInput(parameter, values[index] ?? ''))
  return { inputs, stdin }
}

function callsFor(chosen: ModuleFunction, channel: string, records: readonly StoredRecord[]): GuestCall[] {
  if (isCommand(chosen) || takesText(chosen))
    return records.map((record) => {
      const message = JSON.stringify({
        channel_id: channel,
        subtopic: record.subtopic,
        publisher: record.publisher,
        protocol: record.protocol,
        records: [senmlOf(record)],
      })
      return isCommand(chosen) ? { inputs: [], stdin: message } : { inputs: [message], stdin: '' }
    })
  return records.flatMap(({ v, t }) =>
    v === undefined ? [] : [{ inputs: [v, t].slice(0, chosen.params.length), stdin: '' }],
  )
}

function senmlOf({ n, t, u, v, vs, vb, vd }: StoredRecord): SenmlRecord {
  return {
    n,
    t,
    ...(u === undefined ? {} : { u }),
    ...(v === undefined ? {} : { v }),
    ...(vs === undefined ? {} : { vs }),
    ...(vb === undefined ? {} : { vb }),
    ...(vd === undefined ? {} : { vd }),
  }
}

/** Oldest first, at most the newest thousand. */
async function lastHour(domain: string, channel: string): Promise<StoredRecord[]> {
  const { messages } = await call('GET /{domain_id}/channels/{channel_id}/messages', {
    params: { domain_id: domain, channel_id: channel },
    query: { from: Date.now() / 1_000 - HOUR_SECONDS, limit: MAX_RECORDS, dir: 'desc' },
  })
  return messages
    .map(({ name = '', time = 0, unit, value, string_value: vs, bool_value: vb, data_value: vd, ...message }) => ({
      n: name,
      t: time,
      ...(unit === undefined ? {} : { u: unit }),
      ...(value === undefined ? {} : { v: value }),
      ...(vs === undefined ? {} : { vs }),
      ...(vb === undefined ? {} : { vb }),
      ...(vd === undefined ? {} : { vd }),
      publisher: message.publisher,
      subtopic: message.subtopic ?? '',
      protocol: message.protocol,
    }))
    .toReversed()
}
