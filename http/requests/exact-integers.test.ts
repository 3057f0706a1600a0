import { Type } from 'typebox'
import { expect, test } from 'vitest'
import { parseExactBody } from './body.ts'
import { roundedInteger } from './exact-integers.ts'
import { recordOf } from './record.ts'

const BIG = '9007199254740993'
const Body = Type.Object({
  name: Type.Optional(Type.String()),
  count: Type.Optional(Type.Integer()),
  metadata: Type.Optional(recordOf(Type.Unknown())),
  labels: Type.Optional(recordOf(Type.Number())),
  inputs: Type.Optional(Type.Array(Type.Unknown())),
  nested: Type.Optional(Type.Union([Type.Null(), Type.Object({ metadata: recordOf(Type.Unknown()) })])),
})
const pathIn = (text: string, schema = Body as never) => roundedInteger(schema, parseExactBody(Buffer.from(text)))?.path

test.each([
  `{"metadata":{"serial":${BIG},"deep":[{"x":${BIG}}]}}`,
  `{"nested":{"metadata":{"serial":${BIG}}}}`,
  `{"undeclared":${BIG}}`,
  `{"count":9007199254740992}`,
])('%s is kept', (text) => expect(pathIn(text)).toBeUndefined())

test.each([
  [`{"count":${BIG}}`, '/count'],
  [`{"name":${BIG}}`, '/name'],
  [`{"metadata":${BIG}}`, '/metadata'],
  [`{"labels":{"a":${BIG}}}`, '/labels/a'],
  [`{"inputs":[1,${BIG}]}`, '/inputs/1'],
  [`{"inputs":[{"a":${BIG}}]}`, '/inputs/0/a'],
  [`{"nested":{"metadata":${BIG}}}`, '/nested/metadata'],
])('%s is refused at %s', (text, path) => expect(pathIn(text)).toBe(path))

test('an item of a list is refused with its place', () => {
  expect(pathIn(`[{},{"count":${BIG}}]`, Type.Array(Body) as never)).toBe('/1/count')
})
