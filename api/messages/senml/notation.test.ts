import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseCborPack } from './cbor-pack.ts'
import { packToCbor, packToJson } from './notation.ts'

const text = fc.string({ unit: 'grapheme', maxLength: 300 })
const number = fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.double({ noNaN: true, noDefaultInfinity: true }))
const record = fc.record(
  {
    bn: text,
    bt: number,
    n: text,
    u: text,
    v: number,
    vs: text,
    vb: fc.boolean(),
    vd: fc.uint8Array().map((bytes) => Buffer.from(bytes).toString('base64url')),
    s: number,
    t: number,
    ut: number,
  },
  { requiredKeys: [] },
)

test('a pack that is converted to CBOR and back is unchanged', () => {
  fc.assert(
    fc.property(fc.array(record, { maxLength: 40 }), (pack) => {
      const json = Buffer.from(JSON.stringify(pack))
      expect(JSON.parse(packToJson(packToCbor(json)).toString())).toEqual(JSON.parse(json.toString()))
    }),
  )
})

test('the example of RFC 8428 section 6 is encoded as in the standard', () => {
  const json = Buffer.from('[{"bn":"urn:dev:ow:10e2073a0108006:","n":"voltage","u":"V","v":120.1,"vb":true,"t":-5}]')
  const cbor = packToCbor(json)
  expect(cbor.subarray(0, 4).toString('hex')).toBe('81a62178')
  expect(parseCborPack(cbor)).toEqual(JSON.parse(json.toString()))
})

test('unknown labels are left out', () => {
  expect(packToJson(packToCbor(Buffer.from('[{"n":"a","v":1,"x":[1],"y_":{"z":1}}]'))).toString()).toBe(
    '[{"n":"a","v":1}]',
  )
})
