import { Encoder } from 'cbor-x'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCborPack } from './cbor-pack.ts'
import { CborFault, decodeCbor } from './cbor.ts'

function decodeHex(hex: string): unknown {
  return decodeCbor(Buffer.from(hex, 'hex'))
}

/** RFC 8949 appendix A, the items that SenML uses. */
describe('RFC 8949 examples', () => {
  test.each([
    ['00', 0],
    ['1818', 24],
    ['1903e8', 1000],
    ['1a000f4240', 1_000_000],
    ['1b000000e8d4a51000', 1_000_000_000_000],
    ['20', -1],
    ['3903e7', -1000],
    ['f90001', 5.960464477539063e-8],
    ['f97bff', 65504],
    ['fa47c35000', 100_000],
    ['fbc010666666666666', -4.1],
    ['c48221196ab3', 273.15],
    ['f4', false],
    ['f5', true],
    ['f6', null],
    ['62c3bc', 'ü'],
    ['7f657374726561646d696e67ff', 'streaming'],
    ['83010203', [1, 2, 3]],
    ['9f01820203ff', [1, [2, 3]]],
    [
      'a201020304',
      new Map([
        [1, 2],
        [3, 4],
      ]),
    ],
    [
      'bf6346756ef563416d7421ff',
      new Map<string, unknown>([
        ['Fun', true],
        ['Amt', -2],
      ]),
    ],
  ])('%s', (hex, value) => expect(decodeHex(hex)).toEqual(value))

  test.each([
    ['a mantissa of 64 bits', 'c4822f1b0020000000000001', 0.9007199254740993],
    ['a negative one', 'c4822f3b0020000000000000', -0.9007199254740993],
    ['a bignum of few bytes', 'c48221c2426ab3', 273.15],
    ['a negative bignum', 'c48221c3426ab2', -273.15],
    ['a bignum of no bytes', 'c48221c240', 0],
    ['a bignum in chunks', 'c48221c25f416a41b3ff', 273.15],
    ['an indefinite array', 'c49f21196ab3ff', 273.15],
    ['a tag and numbers in longer forms', 'd8049b00000000000000023900011b0000000000006ab3', 273.15],
    ['an exponent above that of a double', 'c4821901f401', Infinity],
  ])('a decimal fraction with %s', (_, hex, value) => {
    expect(decodeHex(hex)).toBe(value)
  })

  test('byte strings, definite and in chunks', () => {
    expect(Buffer.from(decodeHex('4401020304') as Uint8Array)).toEqual(Buffer.from([1, 2, 3, 4]))
    expect(Buffer.from(decodeHex('5f42010243030405ff') as Uint8Array)).toEqual(Buffer.from([1, 2, 3, 4, 5]))
  })
})

describe('refused input', () => {
  test.each([
    ['an end in the middle', '8201'],
    ['a length that the input does not back', '9affffffff'],
    ['a string longer than the input', '7b00ffffffffffffff'],
    ['bytes after the item', '0000'],
    ['text that is no UTF-8', '62c328'],
    ['a repeated map key', 'a201010102'],
    ['a tag that is no decimal fraction', 'c11a514b67b0'],
    ['a decimal fraction with a fraction as exponent', 'c482f93e0001'],
    ['a decimal fraction with a fraction as mantissa', 'c48221f93e00'],
    ['a decimal fraction with a bignum as exponent', 'c482c2410101'],
    ['a decimal fraction with text as mantissa', 'c482216131'],
    ['a decimal fraction of one number', 'c48121'],
    ['a decimal fraction of three numbers', 'c483210101'],
    ['an indefinite decimal fraction of three numbers', 'c49f210101ff'],
    ['a decimal fraction in a decimal fraction', 'c48221c4822101'],
    ['a bignum alone', 'c2426ab3'],
    ['a bignum of text', 'c48221c2626ab3'],
    ['a bignum of more bytes than a number has', `c48221c2590401${'ff'.repeat(1025)}`],
    ['undefined lengths for integers', '1f'],
    ['a break alone', 'ff'],
    ['an undefined simple value', 'f0'],
    ['a map key that is a list', 'a1800'],
    ['nesting without end', '81'.repeat(100_000)],
  ])('%s', (_, hex) => expect(() => decodeHex(hex)).toThrow(CborFault))
})

test('the output of an independent encoder is decoded', () => {
  const encoder = new Encoder({ useRecords: false, mapsAsObjects: true, variableMapSize: true })
  const item = fc.letrec((tie) => ({
    // cbor-x writes -0 as the integer 0, so it cannot vouch for -0.
    leaf: fc.oneof(
      fc.integer(),
      fc.double({ noNaN: true }).map((value) => value + 0),
      fc.string({ unit: 'binary' }),
      fc.boolean(),
      fc.constant(null),
    ),
    node: fc.oneof({ maxDepth: 4 }, tie('leaf'), fc.array(tie('node'), { maxLength: 5 })),
  })).node
  fc.assert(
    fc.property(item, (value) => {
      expect(decodeCbor(encoder.encode(value))).toEqual(value)
    }),
  )
})

test('numbers are the doubles nearest to their decimal values, as those of JSON are', () => {
  const encoder = new Encoder({ useRecords: false })
  const header = (major: number, length: number) =>
    length < 24 ? [(major << 5) | length] : [(major << 5) | 24, length]
  const integer = (value: bigint): number[] =>
    value < 0n ? [0x20 | 27, ...bytesOf(-1n - value, 8)] : [27, ...bytesOf(value, 8)]
  const bytesOf = (value: bigint, length: number) => [
    ...Buffer.from(value.toString(16).padStart(length * 2, '0'), 'hex'),
  ]
  const bignum = (value: bigint): number[] => {
    const magnitude = value < 0n ? -1n - value : value
    const length = Math.ceil(magnitude.toString(16).length / 2)
    return [value < 0n ? 0xc3 : 0xc2, ...header(2, length), ...bytesOf(magnitude, length)]
  }
  const mantissas = fc.oneof(
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    fc.bigInt({ min: 2n ** 53n - 4n, max: 2n ** 53n + 4n }),
    fc.bigInt({ min: -(2n ** 53n) - 4n, max: 4n - 2n ** 53n }),
  )
  const large = fc.bigInt({ min: -(2n ** 200n), max: 2n ** 200n })
  fc.assert(
    fc.property(mantissas, large, fc.integer({ min: -340, max: 300 }), (mantissa, big, exponent) => {
      const part = [...encoder.encode(exponent)]
      const read = (bytes: number[]) => decodeCbor(Buffer.from(bytes))
      expect(read(integer(mantissa))).toBe(Number(mantissa))
      expect(read([0xc4, 0x82, ...part, ...integer(mantissa)])).toBe(Number(`${mantissa}e${exponent}`))
      expect(read([0xc4, 0x82, ...part, ...bignum(mantissa)])).toBe(Number(`${mantissa}e${exponent}`))
      expect(read([0xc4, 0x82, ...part, ...bignum(big)])).toBe(Number(`${big}e${exponent}`))
    }),
    { numRuns: 500 },
  )
})

test('any bytes are decoded or refused, and never crash the decoder', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      try {
        decodeCbor(bytes)
      } catch (error) {
        expect(error).toBeInstanceOf(CborFault)
      }
    }),
    { numRuns: 5000 },
  )
})

describe('packs', () => {
  test('integer keys become labels, and text keys stay', () => {
    expect(parseCborPack(Buffer.from('81a3006161020163666f6ff5', 'hex'))).toEqual([{ n: 'a', v: 1, foo: true }])
  })

  test.each([
    ['a map instead of an array', 'a0', ''],
    ['a record that is no map', '8101', '/0'],
    ['an integer key outside the table', '81a10a01', '/0/10'],
    ['a label twice, as integer and as text', '81a2006161616e6162', '/0/n'],
    ['data that is text', '81a108626869', '/0/vd'],
  ])('%s is refused', (_, hex, path) => {
    expect(() => parseCborPack(Buffer.from(hex, 'hex'))).toThrow(
      expect.objectContaining({ kind: 'malformed', details: [expect.objectContaining({ path })] }),
    )
  })
})
