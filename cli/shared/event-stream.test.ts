import { expect, it } from 'vitest'
import { parseEvent } from './event-stream.ts'

it('reads the id, the event and every line of the data', () => {
  expect(parseEvent('id: 7\nevent: end\ndata: {"a":\ndata: 1}')).toEqual({ id: '7', event: 'end', data: '{"a":\n1}' })
  expect(parseEvent('data:x\r\nid:8')).toEqual({ id: '8', event: 'message', data: 'x' })
})

it('does not report comments and retry times as events', () => {
  expect(parseEvent(': still here')).toBeUndefined()
  expect(parseEvent('retry: 2000')).toBeUndefined()
})
