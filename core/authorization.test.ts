import { expect, test } from 'vitest'
import { deviceKeyOf, parseAuthorization } from './authorization.ts'

test.each([
  ['Bearer abc', 'bearer', 'abc'],
  ['BEARER   abc', 'bearer', 'abc'],
  ['client a b', 'client', 'a b'],
])('%j has a scheme in any case and any number of spaces behind it', (value, scheme, credentials) => {
  expect(parseAuthorization(value)).toEqual({ scheme, credentials })
})

test.each([undefined, '', 'Bearer', 'Bearer ', 'Bearer    ', ' Bearer x'])('%j says nothing', (value) => {
  expect(parseAuthorization(value)).toBeUndefined()
})

test('devices of today and older ones say their key', () => {
  expect(['Client k', 'thing  k', 'Basic k', undefined].map(deviceKeyOf)).toEqual(['k', 'k', undefined, undefined])
})

test('spaces without end are read once', () => {
  expect(parseAuthorization(`Bearer${' '.repeat(1_000_000)}`)).toBeUndefined()
})
