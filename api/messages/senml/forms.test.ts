/** One pack in the forms that devices may write it in: JSON by either parser, and CBOR of any width and length (RFC 8949 section 3). */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCborPack, parseJson, resolvePack } from './index.ts'
import { CBOR_LABELS } from './labels.ts'
import { resolvePlainPack } from './plain-pack.ts'

const NOW = 1_700_000_000
const KEYS = new Map([...CBOR_LABELS].map(([key, label]) => [label, key]))

type Field = number | string | boolean | Uint8Array
type Pack = Readonly<Record<string, Field>>[]

/** The next of the forms that an encoder may choose from: 0 is the first. */
type Choose = (forms: number) => number

/** The shortest form of everything, as RFC 8949 section 4.1 prefers it. */
const SHORTEST: Choose = () => 0

const END = 0xff
const FIRST_LENGTHS = [
  { info: 24, bytes: 1 },
  { info: 25, bytes: 2 },
  { info: 26, bytes: 4 },
  { info: 27, bytes: 8 },
]

/** Writes CBOR; each item takes one of its forms. */
class Writer {
  readonly #choose: Choose
  readonly bytes: number[] = []

  constructor(choose: Choose) {
    this.#choose = choose
  }

  pack(pack: Pack): Buffer {
    this.#container(4, pack.length, () => pack.forEach((record) => this.#record(record)))
    return Buffer.from(this.bytes)
  }

  #record(record: Pack[number]): void {
    const fields = Object.entries(record)
    this.#container(5, fields.length, () => {
      for (const [label, field] of fields) {
        this.#integer(KEYS.get(label) as number)
        this.#field(field)
      }
    })
  }

  #container(major: number, length: number, write: () => void): void {
    const isIndefinite = this.#choose(2) === 1
    if (isIndefinite) this.bytes.push((major << 5) | 31)
    else this.#argument(major, BigInt(length))
    write()
    if (isIndefinite) this.bytes.push(END)
  }

  #field(field: Field): void {
    if (typeof field === 'boolean') this.bytes.push(field ? 0xf5 : 0xf4)
    else if (typeof field === 'number') this.#number(field)
    else if (typeof field === 'string') this.#string(3, Buffer.from(field))
    else this.#string(2, field)
  }

  /** In one piece, or in pieces of a byte, which are characters: the texts are ASCII. */
  #string(major: 2 | 3, content: Uint8Array): void {
    if (this.#choose(2) === 0) {
      this.#argument(major, BigInt(content.length))
      this.bytes.push(...content)
      return
    }
    this.bytes.push((major << 5) | 31)
    for (const byte of content) {
      this.#argument(major, 1n)
      this.bytes.push(byte)
    }
    this.bytes.push(END)
  }

  #number(value: number): void {
    const isInteger = Number.isSafeInteger(value) && !Object.is(value, -0)
    if (isInteger && this.#choose(2) === 0) this.#integer(value)
    else this.#float(value)
  }

  #integer(value: number): void {
    if (value < 0) this.#argument(1, -1n - BigInt(value))
    else this.#argument(0, BigInt(value))
  }

  #argument(major: number, argument: bigint): void {
    const lengths = FIRST_LENGTHS.filter(({ bytes }) => argument < 1n << BigInt(bytes * 8))
    const forms = argument < 24n ? [undefined, ...lengths] : lengths
    const form = forms[this.#choose(forms.length)]
    if (form === undefined) this.bytes.push((major << 5) | Number(argument))
    else
      this.bytes.push(
        (major << 5) | form.info,
        ...Buffer.from(argument.toString(16).padStart(form.bytes * 2, '0'), 'hex'),
      )
  }

  /** Of each width that keeps the value. */
  #float(value: number): void {
    const forms = [this.#floatOf(2, value), this.#floatOf(4, value), this.#floatOf(8, value)].filter(
      (form) => form !== undefined,
    )
    this.bytes.push(...(forms[this.#choose(forms.length)] as number[]))
  }

  #floatOf(bytes: 2 | 4 | 8, value: number): number[] | undefined {
    const view = new DataView(new ArrayBuffer(bytes))
    if (bytes === 2) view.setFloat16(0, value)
    else if (bytes === 4) view.setFloat32(0, value)
    else view.setFloat64(0, value)
    const kept = bytes === 2 ? view.getFloat16(0) : bytes === 4 ? view.getFloat32(0) : view.getFloat64(0)
    if (!Object.is(kept, value)) return undefined
    return [{ 2: 0xf9, 4: 0xfa, 8: 0xfb }[bytes], ...new Uint8Array(view.buffer)]
  }
}

const cborOf = (pack: Pack, choose = SHORTEST) => new Writer(choose).pack(pack)
const fromCbor = (bytes: Buffer) => resolvePack(parseCborPack(bytes), NOW)

/** The records of a pack in JSON and in CBOR, which must be the same. */
function resolveInEveryForm(pack: Pack) {
  const json = Buffer.from(JSON.stringify(pack))
  const records = resolvePack(parseJson(json), NOW)
  expect(resolvePlainPack(json, NOW)).toStrictEqual(records)
  expect(fromCbor(cborOf(pack))).toStrictEqual(records)
  return records
}

describe('the base sum (RFC 8428 section 4.1)', () => {
  test('is the sum of every record that has none, until it is replaced', () => {
    const records = resolveInEveryForm([
      { bn: 'meter:', n: 'before', v: 1 },
      { bs: 100, n: 'own', v: 2, s: 5 },
      { n: 'none', v: 3 },
      { n: 'state', vs: 'on' },
      { n: 'sum-alone' },
      { bs: -7.5, n: 'replaced', v: 4 },
      { bs: 0, n: 'zero', vb: true },
    ])
    expect(records.map(({ name, value, sum }) => [name, value, sum])).toEqual([
      ['meter:before', 1, undefined],
      ['meter:own', 2, 105],
      ['meter:none', 3, 100],
      ['meter:state', undefined, 100],
      ['meter:sum-alone', undefined, 100],
      ['meter:replaced', 4, -7.5],
      ['meter:zero', undefined, 0],
    ])
  })

  test('of a record of base fields alone holds for the records after it', () => {
    const records = resolveInEveryForm([
      { bn: 'meter:', bs: 10 },
      { n: 'a', t: -1 },
      { n: 'b', s: 1 },
    ])
    expect(records.map(({ name, value, sum }) => [name, value, sum])).toEqual([
      ['meter:a', undefined, 10],
      ['meter:b', undefined, 11],
    ])
  })

  test('together with the base value gives a record without fields of its own both', () => {
    const [, record] = resolveInEveryForm([{ bn: 'm:', bv: 20, bs: 3, n: 'a', v: 1, s: 1 }, { n: 'b' }])
    expect(record).toMatchObject({ name: 'm:b', value: 20, sum: 3 })
  })
})

describe('the names of LwM2M (RFC 8428 section 4.5.1)', () => {
  test.each([
    ['an end point before the path', 'urn:dev:ops:32473-refplatform-1:', '/3303/0/5700'],
    ['an end point and the path of an instance', 'urn:dev:mac:0024befffe804ff1/3303/0/', '5700'],
    ['an underscore before the path', 'urn:dev:ow:10e2073a01080063_', '/3303/0/5700'],
    ['a name without a slash in front', '3303/0/', '5700'],
  ])('%s is a name', (_what, bn, n) => {
    expect(resolveInEveryForm([{ bn, n, u: 'Cel', v: 21.5 }])).toMatchObject([{ name: bn + n, value: 21.5 }])
  })

  test.each([
    ['a path alone', { n: '/3303/0/5700' }],
    ['a path in base name and name, as LwM2M 1.1 answers a read', { bn: '/3303/0/', n: '5700' }],
    ['a path as base name', { bn: '/3303/0/5700' }],
  ])('%s is refused by the rule of the first character', (_what, fields) => {
    const pack: Pack = [{ ...fields, v: 21.5 }]
    const json = Buffer.from(JSON.stringify(pack))
    const refused = expect.objectContaining({
      kind: 'malformed',
      details: [{ path: '/0/n', message: expect.stringContaining('start with a letter or digit') }],
    })
    expect(resolvePlainPack(json, NOW)).toBeUndefined()
    expect(() => resolvePack(parseJson(json), NOW)).toThrow(refused)
    expect(() => fromCbor(cborOf(pack))).toThrow(refused)
  })
})

describe('CBOR in a longer form resolves to the records of the shortest one', () => {
  const PACK: Pack = [{ bn: 'device:', n: 't', v: 1 }]

  test('which is the one that the form is compared with', () => {
    expect(cborOf(PACK).toString('hex')).toBe('81a321676465766963653a0061740201')
  })

  test.each([
    ['an indefinite array', '9fa3 21 67 6465766963653a 00 6174 02 01 ff'],
    ['an indefinite map', '81bf 21 67 6465766963653a 00 6174 02 01 ff'],
    ['a base name in pieces', '81a3 21 7f 63646576 64 6963653a ff 00 6174 02 01'],
    ['an empty piece of a text', '81a3 21 67 6465766963653a 00 7f 60 6174 ff 02 01'],
    ['an array length of 1 byte', '9801 a3 21 67 6465766963653a 00 6174 02 01'],
    ['a map length of 8 bytes', '81 bb0000000000000003 21 67 6465766963653a 00 6174 02 01'],
    ['a text length of 2 bytes', '81a3 21 79 0007 6465766963653a 00 6174 02 01'],
    ['keys of 1, 2 and 4 bytes', '81a3 3801 67 6465766963653a 190000 6174 1a00000002 01'],
    ['an integer of 8 bytes', '81a3 21 67 6465766963653a 00 6174 02 1b0000000000000001'],
    ['a half-precision float', '81a3 21 67 6465766963653a 00 6174 02 f93c00'],
    ['a single-precision float', '81a3 21 67 6465766963653a 00 6174 02 fa3f800000'],
    ['a double-precision float', '81a3 21 67 6465766963653a 00 6174 02 fb3ff0000000000000'],
  ])('%s', (_what, hex) => {
    const records = fromCbor(Buffer.from(hex.replaceAll(' ', ''), 'hex'))
    expect(records).toMatchObject([{ name: 'device:t', value: 1 }])
    expect(records).toStrictEqual(fromCbor(cborOf(PACK)))
  })

  test.each([
    ['half precision', 'f97e00'],
    ['single precision', 'fa7f800000'],
    ['double precision', 'fbfff0000000000000'],
  ])('what is not a number, or infinite, is refused in %s', (_what, value) => {
    expect(() => fromCbor(Buffer.from(`81a200617402${value}`, 'hex'))).toThrow(
      expect.objectContaining({ details: [{ path: '/0/v', message: 'must be a finite double' }] }),
    )
  })

  const name = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9\-:./_]{0,30}$/)
  const double = fc.oneof(
    fc.integer(),
    fc.integer({ min: -1_000_000_000_000_000, max: 1_000_000_000_000_000 }),
    fc.double({ min: -1e150, max: 1e150, noNaN: true }),
    fc.float({ noNaN: true, noDefaultInfinity: true, min: Math.fround(-1e30), max: Math.fround(1e30) }),
    fc.constantFrom(0, -0, 0.5, -1.5, 65_504, 5.960464477539063e-8, 2 ** 53, 1_700_000_000.125),
  )
  const value = fc.oneof(
    fc.record({ v: double }),
    fc.record({ vs: fc.string({ unit: 'grapheme-ascii', maxLength: 40 }) }),
    fc.record({ vb: fc.boolean() }),
    fc.record({ vd: fc.uint8Array({ maxLength: 40 }) }),
    fc.record({ s: double }),
  )
  const record = fc
    .tuple(
      fc.record(
        { bn: name, bv: double, bs: double, n: name, u: fc.constantFrom('Cel', 'V'), t: fc.integer(), ut: double },
        { requiredKeys: ['n'] },
      ),
      value,
    )
    .map(([fields, one]): Pack[number] => ({ ...fields, ...one }))

  test('any pack, in any form of each item', () => {
    const choices = fc.infiniteStream(fc.nat(99))
    fc.assert(
      fc.property(fc.array(record, { minLength: 1, maxLength: 8 }), choices, (pack, stream) => {
        const choose: Choose = (forms) => (stream.next().value as number) % forms
        expect(fromCbor(cborOf(pack, choose))).toStrictEqual(fromCbor(cborOf(pack)))
      }),
      { numRuns: 1000 },
    )
  })
})
