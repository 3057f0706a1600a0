import { expect, test } from 'vitest'
import { compareText } from './text.ts'

test('texts are in the order of UTF-8', () => {
  const texts = [
    '',
    'a',
    'ab',
    'b',
    'é',
    '\u{ffff}',
    '\u{e000}',
    '\u{10000}',
    '\u{10000}a',
    '\u{1f600}',
    'a\u{1f600}',
    'a\u{ffff}',
  ]
  const inBytes = texts.toSorted((left, right) => Buffer.compare(Buffer.from(left), Buffer.from(right)))
  expect(texts.toSorted(compareText)).toEqual(inBytes)
  for (const text of texts) expect(compareText(text, text)).toBe(0)
})
