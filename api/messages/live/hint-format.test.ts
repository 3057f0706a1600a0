/** A hint is parsed without loss; anything else is a hint without content (mechanisms section 2). */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MAX_HINT_BYTES } from '#core/bus/index.ts'
import type { Protocol } from '../model/message.ts'
import { formatHint, parseHint } from './hint-format.ts'
import type { LiveMessage } from './live-message.ts'

const message = fc.record({
  index: fc.nat(),
  channelKey: fc.integer({ min: 1, max: 3 }),
  publisherKey: fc.option(fc.nat()),
  publisherId: fc.string(),
  subtopic: fc.string(),
  protocol: fc.constantFrom<Protocol>('http', 'mqtt', 'coap', 'ws', 'task'),
  receivedAtSeconds: fc.double({ min: 0, max: 1e10, noNaN: true }),
  contentType: fc.string(),
  payload: fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)),
})
const channels = new Map([
  [1, 'one'],
  [2, 'two'],
])

test('the messages of followed channels read back, and the others are left out', () => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 20 }), fc.nat(), fc.array(fc.nat()), (drawn, seq, others) => {
      const messages: LiveMessage[] = drawn.map((one) => {
        const channelId = channels.get(one.channelKey) ?? ''
        // JSON has no negative zero.
        return { ...one, receivedAtSeconds: one.receivedAtSeconds + 0, batchSeq: seq, channelId }
      })
      const hint = parseHint(formatHint({ mark: 'node', seq, messages, others }), channels)
      const followed = messages.filter(({ channelKey }) => channels.has(channelKey))
      expect(hint).toEqual({ mark: 'node', seq, others, messages: followed })
    }),
  )
})

test('content that is too large becomes a hint without content', () => {
  const [drawn] = fc.sample(message, 1)
  const large = { ...drawn, payload: Buffer.alloc(MAX_HINT_BYTES), batchSeq: 1, channelId: 'one' } as LiveMessage
  const hint = formatHint({ mark: 'node', seq: 1, messages: [large], others: [] })
  expect(hint.length).toBe(0)
  expect(parseHint(hint, channels)).toBeUndefined()
})

test.each([
  '{"messages":[]}',
  '{"messages":[],"seq":1}',
  '{"messages":[],"others":[]}',
  '[]',
  'null',
  '{"messages":1}',
])('the head %s is a hint without content', (text) => {
  const head = Buffer.from(text)
  expect(parseHint(Buffer.concat([Buffer.from([1, 0, 0, 0, head.length]), head]), channels)).toBeUndefined()
})

test('invalid bytes are a hint without content, never an error', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      expect(parseHint(bytes, channels)).toBeUndefined()
      expect(parseHint(Uint8Array.from([1, 0, 0, 0, 2, 123, 125, ...bytes]), channels)).toBeUndefined()
    }),
  )
})
