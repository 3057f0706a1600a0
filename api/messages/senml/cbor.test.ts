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
