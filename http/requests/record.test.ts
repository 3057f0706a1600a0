import { Type } from 'typebox'
import { Compile } from 'typebox/compile'
import { expect, test } from 'vitest'
import { recordOf } from './record.ts'

test('every value of a record is validated, independent of its name', () => {
  const numbers = Compile(recordOf(Type.Integer()))
  expect(numbers.Check({ a: 1, '': 2, 'a\nb': 3 })).toBe(true)
  expect(numbers.Check({ 'a\nb': 'text' })).toBe(false)
})

test('names of a record are validated when they have rules', () => {
  const named = Compile(recordOf(Type.Integer(), { propertyNames: Type.String({ pattern: '^[a-z]+$', maxLength: 4 }) }))
  expect([{ ab: 1 }, { Ab: 1 }, { Ab: 'text' }, { abcde: 1 }].map((value) => named.Check(value))).toEqual([
    true,
    false,
    false,
    false,
  ])
})
