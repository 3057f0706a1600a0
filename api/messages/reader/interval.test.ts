import { expect, test } from 'vitest'
import { parseInterval } from './interval.ts'

test.each([
  ['90s', { kind: 'fixed', seconds: 90 }],
  ['1h30m', { kind: 'fixed', seconds: 5400 }],
  ['15 minutes', { kind: 'fixed', seconds: 900 }],
  ['1 Hour', { kind: 'fixed', seconds: 3600 }],
  ['1 day', { kind: 'calendar', unit: 'day', count: 1 }],
  ['2 weeks', { kind: 'calendar', unit: 'day', count: 14 }],
  ['24h', { kind: 'calendar', unit: 'day', count: 1 }],
  ['86400s', { kind: 'calendar', unit: 'day', count: 1 }],
  ['24 hours', { kind: 'calendar', unit: 'day', count: 1 }],
  ['168h', { kind: 'calendar', unit: 'day', count: 7 }],
  ['23h59m59s', { kind: 'fixed', seconds: 86_399 }],
  ['1 month', { kind: 'calendar', unit: 'month', count: 1 }],
  ['2 years', { kind: 'calendar', unit: 'month', count: 24 }],
])('%s', (text, expected) => expect(parseInterval(text)).toEqual(expected))

test.each([
  '',
  '0',
  '0s',
  '-1h',
  'day',
  '1 fortnight',
  '1ns',
  '1001 years',
  '36h',
  '25 hours',
  '86400.5s',
  '999999999 hours',
  "1 day'; --",
])('%j is refused', (text) => {
  expect(() => parseInterval(text)).toThrow(expect.objectContaining({ kind: 'malformed' }))
})
