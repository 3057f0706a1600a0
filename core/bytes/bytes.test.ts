import { expect, it } from 'vitest'
import { leb128, leb128Length, parseSize, writeLeb128 } from './index.ts'

it.each([
  [0, '00'],
  [127, '7f'],
  [128, '8001'],
  [16_383, 'ff7f'],
  [16_384, '808001'],
  [268_435_455, 'ffffff7f'],
  [2 ** 32 - 1, 'ffffffff0f'],
  [2n ** 40n, '808080808020'],
])('encodes %s in the shortest form', (value, wanted) => {
  expect(Buffer.from(leb128(value)).toString('hex')).toBe(wanted)
  expect(leb128Length(Number(value))).toBe(wanted.length / 2)
})

it('writes into existing bytes and returns the end offset', () => {
  const bytes = new Uint8Array(4)
  expect(writeLeb128(bytes, 1, 300)).toBe(3)
  expect([...bytes]).toEqual([0, 0xac, 0x02, 0])
})

it('rejects integers above 2^53', () => {
  expect(() => leb128(2n ** 60n)).toThrow(RangeError)
  expect(() => leb128(-1)).toThrow(RangeError)
})

it.each([
  ['1048576', 1_048_576],
  ['512KiB', 524_288],
  [' 64 MiB ', 67_108_864],
  ['64mi', 67_108_864],
  ['2GB', 2e9],
  ['3k', 3000],
  ['7B', 7],
])('reads the size %s', (text, wanted) => {
  expect(parseSize(text)).toBe(wanted)
})

it.each(['', 'MiB', '1.5MiB', '-1', '1TB', '1 000', '9'.repeat(16), '999999999999999GiB'])(
  'rejects %j as a size',
  (text) => {
    expect(parseSize(text)).toBeUndefined()
  },
)
