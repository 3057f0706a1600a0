import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { resolvePack } from './pack.ts'

const NOW = 1_700_000_000

function resolveOne(...records: unknown[]) {
  return resolvePack(records, NOW).at(-1)
}

function faultOf(pack: unknown): { path: string; message: string } {
  try {
    resolvePack(pack, NOW)
  } catch (error) {
    if (error instanceof ServiceError && error.kind === 'malformed')
      return error.details?.[0] ?? { path: '?', message: '' }
    throw error
  }
  throw new Error('the pack was accepted')
}

describe('resolution', () => {
  test('base fields apply to their own record and to later ones until replaced', () => {
    const records = resolvePack(
      [
        { bn: 'a:', bt: 1e9, bu: 'V', n: 'x', v: 1 },
        { n: 'y', v: 2, u: 'A', t: 5 },
        { bn: 'b:', n: 'x', v: 3 },
      ],
      NOW,
    )
    expect(records.map(({ name, unit, timeSeconds }) => [name, unit, timeSeconds])).toEqual([
      ['a:x', 'V', 1e9],
      ['a:y', 'A', 1e9 + 5],
      ['b:x', 'V', 1e9],
    ])
  })

  test('the base value is added to values and used alone where a record has none', () => {
    const values = resolvePack([{ bn: 'a', bv: 20, v: 1.5 }, { v: -1 }, { n: '1' }, { n: '2', vs: 'on' }], NOW)
    expect(values.map((record) => record.value)).toEqual([21.5, 19, 20, undefined])
  })

  test('the base sum is added to sums and used alone where a record has none', () => {
    expect(resolvePack([{ bn: 'a', bs: 10, s: 1 }, { v: 2 }], NOW).map((record) => record.sum)).toEqual([11, 10])
  })

  test('a record may have a sum and no value', () => {
    expect(resolveOne({ n: 'energy', s: 12 })).toMatchObject({ sum: 12, value: undefined })
  })

  test('a record with only base fields yields nothing', () => {
    expect(resolvePack([{ bn: 'a', bt: 1e9 }, { v: 1 }], NOW)).toHaveLength(1)
  })

  test.each([
    [undefined, NOW],
    [0, NOW],
    [-10, NOW - 10],
    [268_435_455, NOW + 268_435_455],
    [268_435_456, 268_435_456],
    [1_276_020_076.001, 1_276_020_076.001],
  ])('time %s resolves to %s', (t, expected) => {
    expect(resolveOne({ n: 'a', v: 1, ...(t === undefined ? {} : { t }) })?.timeSeconds).toBe(expected)
  })

  test('unknown fields are ignored and the link is dropped', () => {
    expect(resolveOne({ n: 'a', v: 1, hint: [1], l: '[]' })).not.toHaveProperty('hint')
  })

  test.each([5, 10])('version %s is read', (bver) => {
    expect(resolveOne({ bver, n: 'a', v: 1 }, { bver, n: 'b', v: 1 })?.name).toBe('b')
  })
})

describe('a refusal names the record and the field', () => {
  test.each([
    ['no array', { n: 'a', v: 1 }, '', 'must be an array of records'],
    ['an empty pack', [], '', 'must contain at least one record with a value or a sum'],
    ['base fields alone', [{ bn: 'a' }], '', 'must contain at least one record with a value or a sum'],
    ['no object', [{ n: 'a', v: 1 }, 7], '/1', 'must be an object'],
    ['an array as record', [[]], '/0', 'must be an object'],
    [
      'a value of another type',
      [
        { n: 'a', v: 1 },
        { n: 'b', v: '1' },
      ],
      '/1/v',
      'must be a number',
    ],
    ['an infinite value', [{ n: 'a', v: Infinity }], '/0/v', 'must be a finite double'],
    [
      'a sum of base value and value that overflows',
      [{ n: 'a', bv: 1e308, v: 1e308 }],
      '/0/v',
      'must be a finite double',
    ],
    ['two values', [{ n: 'a', v: 1, vs: 'x' }], '/0', 'must have one value only: v, vs, vb or vd'],
    ['no value', [{ n: 'a' }], '/0', 'must have a value (v, vs, vb or vd) or a sum (s)'],
    ['no name', [{ v: 1 }], '/0/n', 'must not be empty together with the base name'],
    ['a boolean that is a number', [{ n: 'a', vb: 1 }], '/0/vb', 'must be a boolean'],
    [
      'padding in data',
      [{ n: 'a', vd: 'aGkgCg==' }],
      '/0/vd',
      'must be base64 with the URL-safe alphabet and without padding',
    ],
    [
      'another alphabet in data',
      [{ n: 'a', vd: '+/+/' }],
      '/0/vd',
      'must be base64 with the URL-safe alphabet and without padding',
    ],
    ['a version above 10', [{ bver: 11, n: 'a', v: 1 }], '/0/bver', 'must not exceed 10'],
    ['a version of 0', [{ bver: 0, n: 'a', v: 1 }], '/0/bver', 'must be a positive integer'],
    [
      'two versions',
      [
        { bver: 5, n: 'a', v: 1 },
        { bver: 10, n: 'a', v: 1 },
      ],
      '/1/bver',
      'must be 5 as in the records before it',
    ],
    [
      'a version after the default',
      [
        { n: 'a', v: 1 },
        { bver: 5, n: 'a', v: 1 },
      ],
      '/1/bver',
      'must be 10 as in the records before it',
    ],
    [
      'a mandatory extension',
      [{ n: 'a', v: 1, crit_: 1 }],
      '/0/crit_',
      'is a mandatory extension that is not supported',
    ],
    ['a NUL character', [{ n: 'a', vs: 'x\0' }], '/0/vs', 'must not contain a NUL character'],
    ['a lone surrogate', [{ n: 'a', vs: '\ud800' }], '/0/vs', 'must not contain a lone surrogate'],
    ['a lone surrogate in a unit', [{ n: 'a', u: '\udc00', v: 1 }], '/0/u', 'must not contain a lone surrogate'],
    [
      'a time after the year 9999',
      [{ n: 'a', v: 1, t: 253_402_300_800 }],
      '/0/t',
      'must lie in the years 1 to 9999 together with the base time',
    ],
    [
      'a time before the year 1',
      [{ n: 'a', v: 1, t: -1e12 }],
      '/0/t',
      'must lie in the years 1 to 9999 together with the base time',
    ],
  ])('%s', (_, pack, path, message) => {
    expect(faultOf(pack)).toEqual({ path, message })
  })

  test.each(['', '-a', '_a', 'a b', 'ä', 'a\0', 'a+'])('name %j', (n) => {
    expect(faultOf([{ n, v: 1 }]).path).toBe('/0/n')
  })

  test('a base name that is too long is named as the invalid field', () => {
    expect(faultOf([{ bn: 'a'.repeat(1025) }, { n: 'x', v: 1 }]).path).toBe('/0/bn')
  })
})

const NAME = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9\-:./_]{0,20}$/)
const DOUBLE = fc.double({ min: -1e300, max: 1e300, noNaN: true })
const TEXT = fc.string({ unit: 'grapheme' }).filter((value) => value.isWellFormed() && !value.includes('\0'))
const VALUE = fc.oneof(
  fc.record({ v: DOUBLE }),
  fc.record({ vs: TEXT }),
  fc.record({ vb: fc.boolean() }),
  fc.record({ vd: fc.uint8Array().map((bytes) => Buffer.from(bytes).toString('base64url')) }),
  fc.record({ s: DOUBLE }),
)
const RECORD = fc
  .tuple(
    VALUE,
    fc.record(
      { n: NAME, u: fc.constantFrom('V', 'Cel', ''), t: fc.double({ min: -1e9, max: 2e9, noNaN: true }), ut: DOUBLE },
      { requiredKeys: ['n'] },
    ),
  )
  .map(([value, fields]) => ({ ...fields, ...value }))

test('every valid pack resolves to one record per measurement', () => {
  fc.assert(
    fc.property(NAME, fc.array(RECORD, { minLength: 1, maxLength: 20 }), (bn, records) => {
      const resolved = resolvePack([{ bn }, ...records], NOW)
      expect(resolved.map((record) => record.name)).toEqual(records.map((record) => bn + record.n))
    }),
  )
})

const LABEL = fc.constantFrom(
  'bn',
  'bt',
  'bu',
  'bv',
  'bs',
  'bver',
  'n',
  'u',
  'v',
  'vs',
  'vb',
  'vd',
  's',
  't',
  'ut',
  'l',
  'x_',
  '__proto__',
)

test('any mutation of a pack is resolved or refused with a reason, and never crashes the parser', () => {
  fc.assert(
    fc.property(
      fc.array(RECORD, { maxLength: 5 }),
      fc.nat(5),
      LABEL,
      fc.anything({ withNullPrototype: true }),
      (records, at, label, junk) => {
        const pack: unknown[] = structuredClone(records)
        const target = pack[at]
        if (typeof target === 'object' && target !== null)
          Object.defineProperty(target, label, { value: junk, enumerable: true })
        else pack.push(junk)
        try {
          for (const record of resolvePack(pack, NOW)) expect(Number.isFinite(record.timeSeconds)).toBe(true)
        } catch (error) {
          expect(error).toMatchObject({ kind: 'malformed', details: [{ message: expect.stringMatching(/./) }] })
        }
      },
    ),
    { numRuns: 2000 },
  )
})
