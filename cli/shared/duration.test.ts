import { expect, it } from 'vitest'
import { secondsOf } from './duration.ts'

it.each([
  ['90', 90],
  ['90s', 90],
  ['1h30m', 5400],
  ['500ms', 0.5],
  ['2d', 172_800],
])('%s is %d seconds', (text, seconds) => {
  expect(secondsOf(text, '--ttl')).toBe(seconds)
})

it.each(['', 'h', '1x', '-1s', '1h 30m'])('refuses %j', (text) => {
  expect(() => secondsOf(text, '--ttl')).toThrow('--ttl must be a duration such as 90s or 1h30m')
})
