import { describe, expect, it } from 'vitest'
import type { LiveMessage } from '#api/messages/index.ts'
import type { CompiledRule } from '../compile.ts'
import { RuleIndex } from '../engine/index.ts'
import { meetingsOf } from './meetings.ts'
import { NO_CLIENT } from './samples.ts'

const CLIENTS = { ofMessage: () => ({ client: NO_CLIENT, groups: [] }), byId: () => undefined }
const PLACE = { xid: 1n, seq: 1, message: 0 }

const messageOf = (objects: number, index: number) =>
  ({
    xid: 1n,
    batchSeq: 1,
    index,
    receivedAtSeconds: 1_700_000_000,
    publisherId: '',
    channelKey: 1,
    channelId: 'hall',
    subtopic: '',
    protocol: 'http',
    contentType: 'application/json',
    payload: Buffer.from(`[${Array(objects).fill('{"v":1}').join(',')}]`),
  }) as unknown as LiveMessage

function indexOf(rules: number): { rules: CompiledRule[]; index: RuleIndex<CompiledRule> } {
  const all = Array.from({ length: rules }, (_, key) => ({ key, place: PLACE }) as CompiledRule)
  return { rules: all, index: new RuleIndex(all, () => ({ channels: ['hall'] })) }
}

describe('the samples of one step', () => {
  it('are those of whole messages, of as many as one step can evaluate', async () => {
    const messages = [0, 1, 2, 3].map((index) => messageOf(4_000, index))
    const { index } = indexOf(3)
    const first = await meetingsOf(messages, index, CLIENTS)
    expect(first.meetings).toHaveLength(8_000)
    expect(first.left).toBe(messages[2])
    const second = await meetingsOf(messages.slice(2), index, CLIENTS)
    expect(second.meetings).toHaveLength(8_000)
    expect([second.left, second.dropped.size]).toEqual([undefined, 0])
  })

  it('end before the evaluations of one message are too many, and name the rest for each rule', async () => {
    const messages = [messageOf(10_000, 0), messageOf(1, 1)]
    const { index, rules } = indexOf(60)
    const { meetings, left, dropped } = await meetingsOf(messages, index, CLIENTS)
    expect(meetings).toHaveLength(8_333)
    expect(left).toBe(messages[1])
    expect([...dropped]).toEqual(rules.map((rule) => [rule, 1_667]))
  })
})
