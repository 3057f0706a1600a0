import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatWitType, parseWitType } from './wit-types.ts'
import type { WitType } from './wit-types.ts'
import { ValueRefusal, fromComponentValue, isJsonType, toComponentValue } from './wit-values.ts'
import type { Json } from './wit-values.ts'

const convert = (json: Json, type: string) => toComponentValue(json, parseWitType(type), 'input 0')

describe('a value is converted to an argument of the component', () => {
  test.each<[string, Json, unknown]>([
    ['bool', true, true],
    ['u8', 255, 255],
    ['s8', '-128', -128],
    ['u64', '18446744073709551615', 18446744073709551615n],
    ['s64', -5, -5n],
    ['f64', 1.5, 1.5],
    ['char', '😀', '😀'],
    ['string', 'größe', 'größe'],
    ['list<u8>', [1, 2], Uint8Array.of(1, 2)],
    ['list<string>', ['a'], ['a']],
    ['option<u32>', null, undefined],
    ['option<u32>', 7, 7],
    ['tuple<u8, string>', [1, 'a'], [1, 'a']],
    ['record { value: f64, max-age: option<u32> }', { value: 1, 'max-age': 2 }, { value: 1, maxAge: 2 }],
    ['record { value: f64, max-age: option<u32> }', { value: 1 }, { value: 1, maxAge: undefined }],
    ['enum { low, high }', 'high', 'high'],
    ['flags { read-only, x }', ['read-only'], { readOnly: true, x: false }],
    ['variant { none, some(u8) }', { some: 3 }, { tag: 'some', val: 3 }],
    ['variant { none, some(u8) }', 'none', { tag: 'none' }],
    ['result<u8, string>', { err: 'no' }, { tag: 'err', val: 'no' }],
    ['result', 'ok', { tag: 'ok' }],
  ])('%s', (type, json, value) => {
    expect(convert(json, type)).toEqual(value)
    const back = fromComponentValue(value, parseWitType(type))
    expect(convert(back, type)).toEqual(value)
  })
})

describe('an invalid value is rejected with its path', () => {
  test.each<[string, Json, string]>([
    ['bool', 1, 'input 0 must be true or false'],
    ['u8', 256, 'input 0 must be an integer within the range of u8'],
    ['u32', -1, 'within the range of u32'],
    ['u64', 2 ** 60, 'as decimal text beyond 2^53'],
    ['f32', 1e300, 'a number within the range of f32'],
    ['char', 'ab', 'text of one character'],
    ['string', '\ud800', 'input 0 must be text'],
    ['list<u8>', [1, 'x'], 'input 0[1] must be'],
    ['tuple<u8, u8>', [1], 'an array of 2'],
    ['record { value: f64 }', {}, 'input 0 lacks value'],
    ['record { value: f64 }', { value: 1, x: 1 }, 'has "x"'],
    ['record { value: f64 }', [], 'an object with value'],
    ['enum { low, high }', 'mid', 'one of low, high'],
    ['flags { a }', ['b'], 'an array of a'],
    ['flags { a }', ['a', 'a'], 'an array of a, each at most once'],
    ['variant { none, some(u8) }', { none: 1 }, 'takes no value'],
    ['variant { none, some(u8) }', { some: 1, none: null }, '"<case>"'],
    ['list<record { a: list<u8> }>', [{ a: [1, 300] }], 'input 0[0].a[1] must be'],
  ])('%s', (type, json, sentence) => {
    expect(() => convert(json, type)).toThrow(ValueRefusal)
    expect(() => convert(json, type)).toThrow(sentence)
  })
})

test('a type is formatted and parsed without loss', () => {
  const name = fc.stringMatching(/^[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,4})?$/)
  const { type } = fc.letrec<{ type: WitType }>((tie) => ({
    type: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constantFrom('bool', 'u8', 's64', 'f64', 'char', 'string').map((kind) => ({ kind }) as WitType),
      fc.record({ kind: fc.constantFrom('list' as const, 'option' as const), item: tie('type') }),
      fc.record({ kind: fc.constant('tuple' as const), items: fc.array(tie('type'), { minLength: 1, maxLength: 3 }) }),
      fc.record({
        kind: fc.constant('record' as const),
        fields: fc.array(fc.tuple(name, tie('type')), { minLength: 1, maxLength: 3 }),
      }),
      fc.record({
        kind: fc.constant('result' as const),
        ok: fc.option(tie('type'), { nil: undefined }),
        err: fc.option(tie('type'), { nil: undefined }),
      }),
      fc.record({ kind: fc.constant('enum' as const), names: fc.array(name, { minLength: 1, maxLength: 3 }) }),
    ),
  }))
  fc.assert(
    fc.property(type, (shape) => {
      expect(parseWitType(formatWitType(shape))).toEqual(shape)
    }),
  )
})

test('resources and options of options have no JSON', () => {
  expect(isJsonType(parseWitType('list<resource>'))).toBe(false)
  expect(isJsonType(parseWitType('option<option<u8>>'))).toBe(false)
  expect(isJsonType(parseWitType('option<list<option<u8>>>'))).toBe(true)
})
