import { Type as Library } from 'typebox'
import { Compile } from 'typebox/compile'
import { describe, expect, it } from 'vitest'
import { Type } from './schema.ts'

type Builders = typeof Type

/** Everything that the product builds schemas of, and what is built of those. */
const FORMS: Readonly<Record<string, (of: Builders) => unknown>> = {
  text: (of) => of.String(),
  'text with rules': (of) => of.String({ minLength: 1, maxLength: 64, description: 'a name', $id: 'Name' }),
  integer: (of) => of.Integer({ minimum: 0, default: 10 }),
  number: (of) => of.Number(),
  boolean: (of) => of.Boolean({ default: false }),
  null: (of) => of.Null(),
  anything: (of) => of.Unknown({ description: 'whatever it is' }),
  list: (of) => of.Array(of.String(), { maxItems: 3 }),
  words: (of) => of.Enum(['asc', 'desc'], { default: 'asc' }),
  'one word': (of) => of.Literal('all', { description: 'all of them' }),
  'one number': (of) => of.Literal(3),
  'one truth': (of) => of.Literal(true),
  either: (of) => of.Union([of.String(), of.Array(of.Integer())], { description: 'one or many' }),
  both: (of) =>
    of.Intersect([of.Object({ a: of.String() }), of.Object({ b: of.Optional(of.Null()) })], { $id: 'Both' }),
  object: (of) =>
    of.Object({ id: of.String(), name: of.Optional(of.String({ maxLength: 8 })) }, { additionalProperties: false }),
  'object without a rule': (of) => of.Object({}),
  'object of what may be absent': (of) => of.Object({ a: of.Optional(of.Optional(of.Integer())) }),
  'some of it': (of) =>
    of.Pick(of.Object({ a: of.String(), b: of.Optional(of.Integer()), c: of.Null() }, { $id: 'A' }), ['a', 'b']),
  'all but some': (of) => of.Omit(of.Object({ a: of.String(), b: of.Optional(of.Integer()) }, { $id: 'B' }), ['a']),
  'what may be absent': (of) =>
    of.Partial(of.Object({ a: of.String(), b: of.Optional(of.Integer()) }, { description: 'c' })),
  foreign: (of) => of.Unsafe({ type: 'object', additionalProperties: true }),
  'foreign and optional': (of) => of.Optional(of.Unsafe({ type: 'string', format: 'binary' })),
}

/** All that it consists of, also what is not enumerable. */
function wholeOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(wholeOf)
  if (typeof value !== 'object' || value === null) return value
  return Object.entries(Object.getOwnPropertyDescriptors(value))
    .map(([key, { value: own, ...rest }]) => ({ key, rest, own: wholeOf(own) }))
    .toSorted((left, right) => (left.key < right.key ? -1 : 1))
}

describe('builders of schemas', () => {
  it.each(Object.entries(FORMS))('make %s as the library does', (_name, form) => {
    expect(wholeOf(form(Type))).toEqual(wholeOf(form(Library as unknown as Builders)))
    expect(JSON.stringify(form(Type))).toBe(JSON.stringify(form(Library as unknown as Builders)))
  })

  it('ask of every value of a record what is said of them, whatever its name is', () => {
    const numbers = Compile(Type.Record(Type.String(), Type.Integer()))
    expect(numbers.Check({ a: 1, '': 2, 'a\nb': 3 })).toBe(true)
    expect(numbers.Check({ 'a\nb': 'text' })).toBe(false)
    const named = Compile(Type.Record(Type.String({ pattern: '^[a-z]+$', maxLength: 4 }), Type.Integer()))
    expect([{ ab: 1 }, { Ab: 1 }, { Ab: 'text' }, { abcde: 1 }].map((value) => named.Check(value))).toEqual([
      true,
      false,
      false,
      false,
    ])
  })

  it('keep the checks of a refined schema, in their order', () => {
    const checks = [() => true, () => false]
    const errors = [() => 'first', () => 'second']
    const form = (of: Builders) =>
      of.Refine(
        of.Refine(of.String(), checks[0] as () => boolean, errors[0] as () => string),
        checks[1] as () => boolean,
        errors[1] as () => string,
      )
    expect(wholeOf(form(Type))).toEqual(wholeOf(form(Library as unknown as Builders)))
  })

  it('refuse what they would build otherwise than the library', () => {
    expect(() => Type.Record(Type.Integer(), Type.Unknown())).toThrow('texts as keys')
    expect(() => Type.Enum({ Up: 1 })).toThrow('a list of values')
  })

  it('leave what they are given as it is', () => {
    const given = Type.String()
    const before = wholeOf(given)
    Type.Optional(given)
    Type.Refine(
      given,
      () => true,
      () => 'never',
    )
    expect(wholeOf(given)).toEqual(before)
  })
})
