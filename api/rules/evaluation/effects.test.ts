import { expect, test } from 'vitest'
import { SENML_JSON } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import { compileRule } from '../compile.ts'
import { publicationOf } from './effects.ts'
import { Evaluation } from './evaluation.ts'
import type { Caused } from './evaluation.ts'
import { NO_CLIENT, samplesOf } from './samples.ts'

const CHANNEL = '9f0e2b9e-3f53-4c3b-a3a6-0d2ec0a1a001'

const rule = compileRule({
  key: 1,
  id: CHANNEL,
  name: 'rule',
  description: '',
  domainKey: 1,
  status: 'enabled',
  userKey: 1,
  isBehind: false,
  isPaused: false,
  isLooking: false,
  place: { xid: 1n, seq: 1, message: 0 },
  definition: {
    source: { type: 'messages' },
    condition: 'value > 30.0',
    for: '1s',
    clear_for: '1s',
    actions: [{ type: 'publish', channel: CHANNEL, on: ['raise', 'clear'] }],
  },
})

function sampleOf(value: number, { atSeconds, depth }: { atSeconds: number; depth: number }) {
  const message: LiveMessage = {
    batchSeq: 1,
    index: atSeconds,
    channelKey: 1,
    channelId: CHANNEL,
    publisherKey: null,
    publisherId: '',
    subtopic: '',
    protocol: 'rule',
    receivedAtSeconds: atSeconds,
    contentType: SENML_JSON,
    payload: Buffer.from(JSON.stringify([{ n: 'n', v: value, t: atSeconds }])),
    envelope: { rule: { id: CHANNEL, depth } },
    xid: 1n,
  }
  const [sample] = samplesOf(message, NO_CLIENT)
  if (sample === undefined) throw new Error('the message has no record')
  return sample
}

test('what time causes is one rule further than the message that began it', () => {
  const found: Caused[] = []
  const evaluation = new Evaluation((caused) => found.push(caused))
  const pass = (atSeconds: number) => {
    for (const entry of evaluation.states) evaluation.pass(entry, atSeconds * 1000)
  }
  evaluation.meet(rule, sampleOf(31, { atSeconds: 10, depth: 3 }), undefined)
  pass(12)
  evaluation.meet(rule, sampleOf(20, { atSeconds: 20, depth: 6 }), undefined)
  pass(22)
  const [action] = rule.actions
  if (action?.type !== 'publish') throw new Error('the rule publishes')
  const known = { channelId: () => CHANNEL, channelName: () => '', client: () => undefined }
  const told = found.map((caused) => {
    const variables = sampleOf(0, { atSeconds: 0, depth: 0 }).variables
    return [caused.effect.kind, publicationOf(caused, action, { domainKey: 1, place: 0, variables, known }).depth]
  })
  expect(told).toEqual([
    ['raise', 4],
    ['clear', 7],
  ])
})
