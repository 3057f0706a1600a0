// W3C Trace Context, section 3.2
import { expect, test } from 'vitest'
import { formatTraceparent, parseTraceparent, traceIdOf } from './traceparent.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const SPAN = '00f067aa0ba902b7'

test('reads what it writes', () => {
  const text = `00-${TRACE}-${SPAN}-01`
  expect(parseTraceparent(text)).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 })
  expect(formatTraceparent({ traceId: TRACE, spanId: SPAN, flags: 1 })).toBe(text)
  expect(traceIdOf(text)).toBe(TRACE)
})

test('reads the known part of a later version', () => {
  expect(parseTraceparent(`cc-${TRACE}-${SPAN}-00-what-comes`)).toEqual({ traceId: TRACE, spanId: SPAN, flags: 0 })
})

test.each([
  ['absent', undefined],
  ['empty', ''],
  ['of version ff', `ff-${TRACE}-${SPAN}-01`],
  ['of version 00 with a fifth field', `00-${TRACE}-${SPAN}-01-x`],
  ['in capitals', `00-${TRACE.toUpperCase()}-${SPAN}-01`],
  ['a trace of zeros', `00-${'0'.repeat(32)}-${SPAN}-01`],
  ['a span of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
  ['too long', `cc-${TRACE}-${SPAN}-01-${'x'.repeat(1_000_000)}`],
])('ignores a value that is %s', (_, text) => {
  expect(parseTraceparent(text)).toBeUndefined()
})
