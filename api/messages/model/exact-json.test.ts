import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseExactJson } from './exact-json.ts'

test.each([
  '9007199254740993',
  '1.10',
  '1e2',
  '-0',
  '0.1234567890123456789',
  '[1.0,{"a":12345678901234567890}]',
  '{"a":1.5}',
])('%s reads back as it was written', (text) => expect(JSON.stringify(parseExactJson(text))).toBe(text))

test('any output of JSON.stringify reads back unchanged', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value)
      expect(JSON.stringify(parseExactJson(text))).toBe(text)
    }),
  )
})

test('any decimal number keeps its digits', () => {
  fc.assert(
    fc.property(fc.stringMatching(/^-?(0|[1-9]\d{0,25})(\.\d{1,25})?([eE][+-]?\d{1,2})?$/), (text) => {
      expect(JSON.stringify(parseExactJson(text))).toBe(text)
    }),
  )
})
