import fc from 'fast-check'
import { expect, test } from 'vitest'
import { KnownStrings, NO_PREFIX, prefixOf } from './known-strings.ts'

const ascii = fc.string({ unit: 'grapheme-ascii', maxLength: 140 })

test('a string is read from its prefix and bytes, independent of earlier look-ups', () => {
  const known = new KnownStrings()
  fc.assert(
    fc.property(ascii, ascii, ascii, (prefix, text, around) => {
      const bytes = Buffer.from(`${around}${text}${around}`)
      const [start, end] = [around.length, around.length + text.length]
      for (let time = 0; time < 2; time++) expect(known.get(prefixOf(prefix), bytes, start, end)).toBe(prefix + text)
    }),
    { numRuns: 5000 },
  )
})

test('an entry evicts only the entry whose place it takes', () => {
  const known = new KnownStrings()
  const texts = Array.from({ length: 20_000 }, (_, index) => `name-${index}`)
  for (let time = 0; time < 2; time++)
    for (const text of texts) {
      const bytes = Buffer.from(text)
      expect(known.get(NO_PREFIX, bytes, 0, bytes.length)).toBe(text)
    }
})

test('an invalid string is never returned, even when it is requested again', () => {
  const known = new KnownStrings((text) => text !== 'ab')
  const bytes = Buffer.from('ab')
  expect(known.get(NO_PREFIX, bytes, 0, 2)).toBeUndefined()
  expect(known.get(prefixOf('a'), bytes, 1, 2)).toBeUndefined()
  expect(known.get(NO_PREFIX, bytes, 0, 1)).toBe('a')
})

test('an empty string is treated like any other', () => {
  expect(new KnownStrings().get(NO_PREFIX, Buffer.from('x'), 1, 1)).toBe('')
  expect(new KnownStrings((text) => text !== '').get(NO_PREFIX, Buffer.from('x'), 1, 1)).toBeUndefined()
})
