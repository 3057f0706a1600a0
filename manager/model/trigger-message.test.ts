import { expect, test } from 'vitest'
import { inputsOf } from './trigger-message.ts'

const message = (v: number) => ({
  channel_id: 'c1',
  subtopic: 'room',
  publisher: 'p1',
  protocol: 'mqtt',
  records: [{ n: 'a', t: 1, v }],
})
const messages = [message(1), message(2)]
const RECORD = 'record { n: string, t: f64, v: option<f64> }'

test('a text parameter gets the list of messages as JSON', () => {
  expect(inputsOf(messages, ['string', 'u32'], [7])).toEqual([JSON.stringify(messages), 7])
})

test('a list of records gets the records of all messages', () => {
  expect(inputsOf(messages, [`list<${RECORD}>`], [])).toEqual([messages.flatMap(({ records }) => records)])
  expect(inputsOf([message(1)], undefined, [])).toEqual([[{ n: 'a', t: 1, v: 1 }]])
})

test('a list of lists gets the records of each message', () => {
  expect(inputsOf(messages, [`list<list<${RECORD}>>`], [])).toEqual([messages.map(({ records }) => records)])
})

test('a list of messages gets the fields that its type names', () => {
  const type = `list<record { channel-id: string, publisher: string, records: list<${RECORD}> }>`
  expect(inputsOf(messages, [type], [])).toEqual([
    messages.map(({ publisher, records }) => ({ 'channel-id': 'c1', publisher, records })),
  ])
})

test('a command has its own inputs alone, and a function of numbers takes no list', () => {
  expect(inputsOf(messages, [], [])).toEqual([])
  expect(() => inputsOf(messages, ['f64', 'f64'], [])).toThrow('a list or a text, or a command')
  expect(inputsOf(message(1), ['f64', 'f64'], [])).toEqual([1, 1])
})
