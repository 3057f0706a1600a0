// contract section 12, decision 44: validation errors name the field, and finding the names costs no more than validation
import { expect, test } from 'vitest'
import { Type } from 'typebox'
import { faultsOf } from './faults.ts'
import { recordOf } from './record.ts'

const Item = Type.Object({ name: Type.String({ maxLength: 5 }), tags: Type.Optional(Type.Array(Type.String())) })
const paths = (...of: Parameters<typeof faultsOf>) =>
  faultsOf(...of).map((fault) => `${fault.instancePath} ${fault.keyword}`)

test('names each invalid field and each missing one', () => {
  expect(paths(Item, { name: 'too long' }, '')).toEqual(['/name maxLength'])
  expect(paths(Item, { tags: ['a', 1, null] }, '')).toEqual([' required', '/tags/1 type', '/tags/2 type'])
  expect(paths(Item, 3, '')).toEqual([' type'])
})

test('finds an invalid item at any index', () => {
  const items = Array.from({ length: 20_000 }, () => ({ name: 'good' }))
  expect(paths(Type.Array(Item), [...items, { name: 7 }], '')).toEqual(['/20000/name type'])
})

test('reports too many items without validating each', () => {
  expect(paths(Type.Array(Item, { maxItems: 2 }), [0, 0, 0], '')).toEqual([' maxItems'])
})

test('reports the branch of a union that has the type of the value', () => {
  const OneOrMany = Type.Union([Item, Type.Array(Item)])
  expect(paths(OneOrMany, [{ name: 'good' }, {}], '')).toEqual(['/1 required'])
  expect(paths(OneOrMany, { name: 1 }, '')).toEqual(['/name type'])
})

test('reports an optional field that is null, and unions of simple types', () => {
  const Nullable = Type.Object({ name: Type.Union([Type.String(), Type.Null()]) })
  expect(paths(Nullable, { name: 1 }, '')).toContain('/name anyOf')
})

test('reports each part of an intersection separately', () => {
  const Both = Type.Intersect([
    Item,
    Type.Object({ env: recordOf(Type.String(), { propertyNames: Type.String({ minLength: 1 }) }) }),
  ])
  const [fault] = faultsOf(Both, { name: 'good', env: { '': 'x' } }, '')
  expect(fault).toMatchObject({ keyword: 'propertyNames', params: { fault: { keyword: 'minLength' } } })
  expect(paths(Both, { name: 'too long', env: {} }, '')).toEqual(['/name maxLength'])
})

test('validates no more items than it reports', () => {
  let looked = 0
  const item = {
    get name() {
      looked += 1
      return 'too long'
    },
  }
  const items = Array.from({ length: 100_000 }, () => item)
  expect(faultsOf(Type.Array(Item), items, '')).toHaveLength(8)
  expect(looked).toBeLessThan(1000)
})

test('lists the types of a union for a value of another type, and describes the pattern of a string', () => {
  const Size = Type.Union([Type.Integer({ minimum: 1 }), Type.String({ maxLength: 3 }), Type.Null()])
  expect(faultsOf(Size, true, '/size')).toMatchObject([
    { keyword: 'anyOf', instancePath: '/size', params: { accepted: 'an integer or a string or null' } },
  ])
  expect(paths(Size, 'long', '/size')).toEqual(['/size maxLength'])
  expect(paths(Size, 0, '/size')).toEqual(['/size minimum'])
  const Form = Type.Object({ id: Type.String({ pattern: '^a+$', description: 'letters a' }) })
  expect(faultsOf(Form, { id: 'b' }, '')).toMatchObject([{ keyword: 'pattern', params: { description: 'letters a' } }])
})
