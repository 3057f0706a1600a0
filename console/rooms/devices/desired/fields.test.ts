// docs/guides/device-state.md: both sides of a document in one list, and a form that keeps the types of its values
import { describe, expect, test } from 'vitest'
import { formatJson } from '../../../api/json.ts'
import { documentOf, formFieldsOf, formatPath, linesOf, parseDocument, parsePath } from './fields.ts'
import type { Document, FormField } from './fields.ts'

const field = (name: string, type: FormField['type'], text: string, id = 0): FormField => ({ id, name, type, text })

describe('lines of a document', () => {
  test('what the server calls different comes first, and what is only reported comes last', () => {
    const lines = linesOf({
      desired: { firmware: '1.4', led: { on: true, level: 3 } },
      reported: { battery: 87, firmware: '1.4', led: { on: false, level: 3 } },
      delta: { led: { on: true } },
    })
    expect(lines.map(({ name, desired, reported, mark }) => [name, desired, reported, mark])).toEqual([
      ['led.on', 'true', 'false', 'differs'],
      ['firmware', '"1.4"', '"1.4"', 'same'],
      ['led.level', '3', '3', 'same'],
      ['battery', undefined, '87', 'only reported'],
    ])
  })

  test('a value in the place of an object, an empty object and a name with a dot are lines of their own', () => {
    const lines = linesOf({
      desired: { a: { b: 1 }, none: {}, 'x.y': [1] },
      reported: { a: 5 },
      delta: { a: { b: 1 }, none: {}, 'x.y': [1] },
    })
    expect(lines.map(({ name, mark }) => [name, mark])).toEqual([
      ['"x.y"', 'differs'],
      ['a.b', 'differs'],
      ['none', 'differs'],
      ['a', 'only reported'],
    ])
    expect(new Set(lines.map(({ key }) => key)).size).toBe(4)
  })
})

describe('fields of a form', () => {
  test.each([
    '{"name":"12","count":12,"on":false,"list":[1,null,"a"],"inner":{"big":9007199254740993,"empty":{}}}',
    '{"a.b":{"c\\"d":-0.5}," spaced ":"","__proto__":1}',
    '{}',
  ])('a document that is read and written is the same: %s', (text) => {
    expect(formatJson(documentOf(formFieldsOf(parseDocument(text))))).toBe(text)
  })

  test('the type decides what the text is', () => {
    expect(documentOf([field('a', 'text', '12'), field('b', 'number', '12'), field('c', 'truth', 'true')])).toEqual({
      a: '12',
      b: 12,
      c: true,
    })
  })

  test.each<[readonly FormField[], RegExp]>([
    [[field('', 'text', 'x')], /Enter a name/],
    [[field('a..b', 'text', 'x')], /Enter a name/],
    [[field('a', 'number', 'twelve')], /Enter a number/],
    [[field('a', 'number', '"12"')], /Enter a number/],
    [[field('a', 'json', '[1,')], /Enter JSON/],
    [[field('a', 'json', 'null')], /remove the field/],
    [[field('a', 'text', 'x'), field('a', 'text', 'y')], /twice/],
    [[field('a', 'text', 'x'), field('a.b', 'text', 'y')], /above it has a value/],
    [[field('a.b', 'text', 'x'), field('a', 'text', 'y')], /twice/],
  ])('refuses %j', (fields, message) => {
    expect(() => documentOf(fields)).toThrow(message)
  })

  test.each(['12', '[]', 'null', '{', ''])('%j is no document', (text) => {
    expect(() => parseDocument(text)).toThrow(/JSON/)
  })

  test.each<Document>([{ a: 1 }, { 'a.b': 1 }, { 'with space': 1 }, { '"': 1 }, { '': 1 }])(
    'the path of %j can be read again',
    (document) => {
      const path = Object.keys(document)
      expect(parsePath(formatPath(path))).toEqual(path)
    },
  )
})
