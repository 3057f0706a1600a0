import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { JsonObject } from './document.ts'
import {
  differenceOf,
  isPartOf,
  isSame,
  mergePatch,
  parseName,
  requireObject,
  requireWithinLimits,
} from './document.ts'

describe('merge patch', () => {
  // The examples of RFC 7396, appendix A, whose target and patch are objects.
  test.each([
    ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
    ['{"a":"b"}', '{"a":null}', '{}'],
    ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
    ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
    ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
    ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
    ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
    ['{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
  ])('%s with %s is %s', (target, patch, result) => {
    expect(mergePatch(JSON.parse(target), JSON.parse(patch) as JsonObject)).toEqual(JSON.parse(result))
  })

  test('names of the prototype are names like others', () => {
    const patch = JSON.parse(
      '{"constructor":{"prototype":{"x":1}},"toString":1,"__proto__":{"polluted":true}}',
    ) as JsonObject
    const merged = mergePatch({}, patch)
    expect(Object.keys(merged).toSorted()).toEqual(['__proto__', 'constructor', 'toString'])
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
    expect(differenceOf(merged, {})).toEqual(merged)
    expect(differenceOf({ toString: 1 }, {})).toEqual({ toString: 1 })
  })
})

const anObject = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 4 }) as fc.Arbitrary<unknown>)

describe('the difference', () => {
  test.each([
    ['{"a":1}', '{}', '{"a":1}'],
    ['{"a":1}', '{"a":1,"b":2}', '{}'],
    ['{"a":{"b":1,"c":2}}', '{"a":{"b":1,"c":3}}', '{"a":{"c":2}}'],
    ['{"a":{"b":1}}', '{"a":5}', '{"a":{"b":1}}'],
    ['{"a":[1,2]}', '{"a":[1]}', '{"a":[1,2]}'],
    ['{"a":[{"b":1}]}', '{"a":[{"b":1}]}', '{}'],
    ['{"a":{}}', '{"a":{"x":1}}', '{}'],
    ['{"a":{}}', '{}', '{"a":{}}'],
    ['{"a":0}', '{"a":-0}', '{}'],
    ['{"a":1e2}', '{"a":100}', '{}'],
  ])('of %s and %s is %s', (desired, reported, result) => {
    expect(differenceOf(JSON.parse(desired) as JsonObject, JSON.parse(reported) as JsonObject)).toEqual(
      JSON.parse(result),
    )
  })

  test('a device that reports the difference is in sync', () => {
    fc.assert(
      fc.property(anObject, anObject, (wanted, reported) => {
        const desired = mergePatch({}, wanted)
        expect(differenceOf(desired, mergePatch(reported, differenceOf(desired, reported)))).toEqual({})
      }),
    )
  })

  test('what is reported makes the difference only smaller when it is a part of it', () => {
    expect(isPartOf({ a: 1 }, { a: 1, b: 2 })).toBe(true)
    expect(isPartOf({ a: 1, c: 3 }, { a: 1, b: 2 })).toBe(false)
  })
})

describe('integers above 2^53', () => {
  const parsed = (text: string) => parseWithExactIntegers(text) as JsonObject

  test('are compared exactly, and copied as they are', () => {
    const one = parsed('{"serial":9007199254740993}')
    expect(differenceOf(one, parsed('{"serial":9007199254740993}'))).toEqual({})
    expect(JSON.stringify(differenceOf(one, parsed('{"serial":9007199254740992}')))).toBe('{"serial":9007199254740993}')
    expect(JSON.stringify(mergePatch({ a: 1 }, one))).toBe('{"a":1,"serial":9007199254740993}')
  })

  test('a large double equals its digits, which is how the database returns it', () => {
    expect(isSame(1e21, parsed('{"x":1000000000000000000000}')['x'])).toBe(true)
    expect(isSame(1.5e22, parsed('{"x":15000000000000000000000}')['x'])).toBe(true)
    expect(isSame(1e21, parsed('{"x":1000000000000000000001}')['x'])).toBe(false)
  })
})

describe('limits', () => {
  const nested = (levels: number): JsonObject => (levels === 1 ? {} : { a: nested(levels - 1) })

  test('20 levels are accepted, 21 are not', () => {
    requireWithinLimits(nested(20), 'desired')
    expect(() => requireWithinLimits(nested(21), 'desired')).toThrow(/deeper than 20 levels/)
    expect(() => requireWithinLimits({ a: [[nested(18)]] }, 'reported')).toThrow(/deeper than 20 levels/)
  })

  test('64 KiB are accepted, one byte more is not', () => {
    const withText = (length: number) => ({ a: 'x'.repeat(length) })
    requireWithinLimits(withText(64 * 1024 - 8), 'reported')
    expect(() => requireWithinLimits(withText(64 * 1024 - 7), 'reported')).toThrow(/limited to 65536 bytes/)
    expect(() => requireWithinLimits({ a: 'ü'.repeat(33_000) }, 'reported')).toThrow(/limited to 65536 bytes/)
    // PostgreSQL writes 309 digits for each.
    requireWithinLimits({ a: Array.from({ length: 200 }, () => 1e308) }, 'reported')
    expect(() => requireWithinLimits({ a: Array.from({ length: 300 }, () => 1e308) }, 'reported')).toThrow(
      /limited to 65536 bytes/,
    )
  })

  test.each(['1', '"a"', '[]', 'null', '9007199254740993'])('%s is no document', (text) => {
    expect(() => requireObject(parseWithExactIntegers(text))).toThrow(/must be a JSON object/)
  })

  test.each(['', '$x', 'a/b', '+', '#', 'a b', '.a', 'a'.repeat(65), 'é', 'a\n'])('the name %j is refused', (name) => {
    expect(() => parseName(name)).toThrow(/^name must/)
  })
  test.each(['config', 'firmware-2', 'a.b_c', '7'])('the name %s is accepted', (name) => {
    expect(parseName(name)).toBe(name)
  })
})
