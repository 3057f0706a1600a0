// console/rooms/manager/trigger-calls.ts: a trial of a module passes what a trigger passes (docs/guides/modules)
import { expect, test } from 'vitest'
import { callsOf, takesMessages } from '../../console/rooms/manager/trigger-calls.ts'
import type { TriggerMessage } from '#queues/index.ts'
import { inputsOf, triggersOf } from '#manager/trigger-calls.ts'
import { ServiceError } from '#core/errors/index.ts'

const message = (...records: TriggerMessage['records']): TriggerMessage => ({
  channel_id: '0c2ce4ef-6ac4-4a8e-95ad-5bb5b1fbb3ae',
  subtopic: 'hall.1',
  publisher: 'b7bfc4b6-c18d-47c5-b343-98235c5acc19',
  protocol: 'mqtt',
  records,
})

const MESSAGES = [
  message({ n: 'temperature', u: 'Cel', t: 1_790_000_000.5, v: 21.5 }),
  message({ n: 'open', t: 1_790_000_000, vb: true }, { n: 'open', t: 1_790_000_001, vb: false }),
  message({ n: 'energy', u: 'J', t: 1_790_000_000, s: 1200, ut: 60 }),
  message({ n: 'energy', u: 'J', t: 1_790_000_000, v: 0, s: 1200 }),
  message({ n: 'state', t: 1_790_000_000, vs: 'on' }, { n: 'level', t: 1_790_000_000, v: 3 }),
  message({ n: 'photo', t: 1_790_000_000, vd: 'AAEC' }),
]

const PARAMETERS = [
  [],
  ['i32'],
  ['f64', 'f64'],
  ['i64', 'f32'],
  ['f64', 'f64', 'f64'],
  ['u8'],
  ['float64', 's64'],
  ['float32', 'u64'],
  ['string'],
  ['bool'],
  ['string', 'f64'],
  ['list<record { n: string, t: f64, v: option<f64> }>'],
]

/** What the manager passes. It drops a record that the function cannot take. */
const ofManager = (given: TriggerMessage, params: readonly string[]) =>
  triggersOf(given, params, 0).flatMap((trigger) => {
    try {
      return [{ inputs: inputsOf(trigger, params, []), stdin: JSON.stringify(trigger) }]
    } catch (error) {
      if (error instanceof ServiceError && error.kind === 'unprocessable') return []
      throw error
    }
  })

test.each(PARAMETERS.map((params) => ({ params })))(
  'a trial passes to ($params) what a trigger passes',
  ({ params }) => {
    for (const given of MESSAGES) expect(callsOf(given, params)).toEqual(ofManager(given, params))
  },
)

test('a trial offers messages to a function exactly if a trigger gives it all of its inputs', () => {
  const [given] = MESSAGES as [TriggerMessage]
  for (const params of PARAMETERS)
    expect([params, takesMessages(params)]).toEqual([
      params,
      ofManager(given, params)[0]?.inputs.length === params.length,
    ])
})
