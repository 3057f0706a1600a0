import { expect, test } from 'vitest'
import { bytesOf, parseBase64, textOrBytes, wholeCharactersLength } from './text-or-bytes.ts'

test.each([
  ['text', Buffer.from('größe\n'), 'größe\n'],
  ['bytes that are not UTF-8', Buffer.from([0x61, 0xff]), { base64: 'Yf8=' }],
  ['text with NUL', Buffer.from('a\0'), { base64: 'YQA=' }],
])('%s are kept whole', (_, bytes, shown) => {
  expect(textOrBytes(bytes)).toEqual(shown)
  expect(bytesOf(shown)).toEqual(new Uint8Array(bytes))
})

test('base64 is strict', () => {
  expect(parseBase64('Yf8=')).toEqual(Uint8Array.from([0x61, 0xff]))
  expect(['Yf8', 'Yf-=', 'Y f8=', 'Yf9='].map(parseBase64)).toEqual([undefined, undefined, undefined, undefined])
})

test('a character whose end is missing is not counted', () => {
  const text = Buffer.from('a温🌡')
  expect(Array.from(text.keys(), (at) => wholeCharactersLength(text.subarray(0, at + 1)))).toEqual([
    1, 1, 1, 4, 4, 4, 4, 8,
  ])
})
