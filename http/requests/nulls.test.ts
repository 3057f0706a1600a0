import { Type } from 'typebox'
import { expect, test } from 'vitest'
import { dropNulls } from './nulls.ts'

const nullable = Type.Union([Type.String(), Type.Null()])
const NewPump = Type.Object({
  name: Type.String(),
  tags: Type.Optional(Type.Array(Type.String())),
  parent: Type.Optional(nullable),
  metadata: Type.Optional(Type.Object({}, { additionalProperties: true })),
  credentials: Type.Optional(Type.Object({ secret: Type.Optional(Type.String()) })),
  inputs: Type.Optional(Type.Unknown()),
})

const dropped = (schema: Parameters<typeof dropNulls>[0], body: unknown) => {
  dropNulls(schema, body)
  return body
}

test('a null counts as absent where the schema does not accept it, at every depth', () => {
  expect(dropped(NewPump, { name: 'a', tags: null, credentials: { secret: null } })).toEqual({
    name: 'a',
    credentials: {},
  })
  expect(dropped(Type.Array(NewPump), [{ name: null }, { name: 'b', metadata: null }])).toEqual([{}, { name: 'b' }])
})

test('a null is a value where the schema accepts it', () => {
  expect(dropped(NewPump, { parent: null, inputs: null })).toEqual({ parent: null, inputs: null })
})

test('values of free form and unknown fields are not touched, and an element of a list is no field', () => {
  const body = { metadata: { a: null }, tags: [null], unknown: null }
  expect(dropped(NewPump, structuredClone(body))).toEqual(body)
})

test('in a union a null stays when any branch accepts it', () => {
  const either = Type.Union([
    Type.Object({ id: Type.String(), name: Type.String() }),
    Type.Object({ id: nullable, name: Type.String() }),
  ])
  expect(dropped(either, { id: null, name: null })).toEqual({ id: null })
})
