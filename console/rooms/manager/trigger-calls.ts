/** What a message passes to a function. The rules are those of the manager; `test/console/trigger-calls.test.ts` compares them. Pure. */
import { formatJson } from '../../api/json.ts'
import type { GuestCall, SenmlRecord } from '../../try/protocol.ts'

/** A message with its resolved records, as a trigger passes it. */
export type TriggerMessage = {
  readonly channel_id: string
  readonly subtopic: string
  readonly publisher: string
  readonly protocol: string
  readonly records: readonly SenmlRecord[]
}

const NUMBERS: ReadonlySet<string> = new Set('i32 i64 f32 f64 s8 u8 s16 u16 s32 u32 s64 u64 float32 float64'.split(' '))
/** The number and the time of a record. */
const RECORD_INPUTS = 2

/** Such a function runs once for each record. */
const takesNumbers = (params: readonly string[]) => params.length > 0 && params.every((param) => NUMBERS.has(param))

/** Whether a message gives a function with these parameters as many inputs as it takes. */
export function takesMessages(params: readonly string[]): boolean {
  return params.length <= (takesNumbers(params) ? RECORD_INPUTS : 1)
}

/** The runs that a message starts. Records without a number are left out where the function takes numbers. */
export function callsOf(message: TriggerMessage, params: readonly string[]): GuestCall[] {
  if (takesNumbers(params))
    return message.records.flatMap((record) => {
      const value = numberOf(record)
      const stdin = formatJson({ ...message, records: [record] })
      return value === undefined ? [] : [{ inputs: [value, record.t].slice(0, params.length), stdin }]
    })
  const stdin = formatJson(message)
  const [first] = params
  return [{ inputs: first === undefined ? [] : [first === 'string' ? stdin : message.records], stdin }]
}

function numberOf({ v, vb, s }: SenmlRecord): number | undefined {
  return vb === undefined ? (v ?? s) : Number(vb)
}
