import { expect, test } from 'vitest'
import fc from 'fast-check'
import { formatJson, parseJson } from './json.ts'

test.each([
  '9007199254740993',
  '{"serial":-9007199254740993,"list":[1,18446744073709551615,"9007199254740993"],"deep":{"a":[{"b":123456789012345678901234567890}]}}',
  '{"quoted \\" 9007199254740993":"a\\\\","next":9007199254740993}',
])('%s keeps its digits', (text) => {
  expect(formatJson(parseJson(text))).toBe(text)
})

test('an integer that a number holds, and a number that is no integer, stay numbers', () => {
  expect(parseJson('[9007199254740992, 1.7976931348623157e308, 0.1234567890123456789, 1e21, -0]')).toEqual([
    9007199254740992, 1.7976931348623157e308, 0.12345678901234568, 1e21, -0,
  ])
  expect(parseJson('[9007199254740993]')).toEqual([9007199254740993n])
})

test('what is no JSON is refused at its own place', () => {
  expect(() => parseJson('{"a": 9007199254740993,}')).toThrow(SyntaxError)
})

test('other values are read and written as JSON does, with any indent', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.integer({ min: 0, max: 4 }), (value, indent) => {
      const text = JSON.stringify(value)
      expect(parseJson(text)).toEqual(JSON.parse(text))
      expect(formatJson(value, indent)).toBe(JSON.stringify(value, undefined, indent))
    }),
  )
})

test('what JSON has no form of is undefined, as JSON.stringify says it', () => {
  expect(formatJson(undefined)).toBeUndefined()
  expect(formatJson({ a: undefined, b: 1n })).toBe('{"b":1}')
})

test('integers of any size keep their digits anywhere', () => {
  fc.assert(
    fc.property(fc.array(fc.bigInt({ min: -(2n ** 80n), max: 2n ** 80n })), fc.string(), (integers, name) => {
      const text = `{${JSON.stringify(name)}:[${integers.join(',')}]}`
      expect(formatJson(parseJson(text))).toBe(text)
    }),
  )
})

test('a number that would become null is refused', () => {
  for (const text of ['{"x": 1e999}', '[-1E+400]']) expect(() => parseJson(text)).toThrow(SyntaxError)
  expect(parseJson('{"x": 1e300}')).toEqual({ x: 1e300 })
})
