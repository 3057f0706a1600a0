import { expect, test } from 'vitest'
import { basicCredentialsOf, bearerTokenOf, deviceKeyOf, parseAuthorization } from './authorization.ts'

test.each([
  ['Bearer abc', 'bearer', 'abc'],
  ['BEARER   abc', 'bearer', 'abc'],
  ['client a b', 'client', 'a b'],
])('%j has a scheme in any case, followed by any number of spaces', (value, scheme, credentials) => {
  expect(parseAuthorization(value)).toEqual({ scheme, credentials })
})

test.each([undefined, '', 'Bearer', 'Bearer ', 'Bearer    ', ' Bearer x'])('%j is no authorization', (value) => {
  expect(parseAuthorization(value)).toBeUndefined()
})

test('the key of a device is read from the schemes Client and Thing', () => {
  expect(['Client k', 'thing  k', 'Basic k', undefined].map(deviceKeyOf)).toEqual(['k', 'k', undefined, undefined])
})

test('a long run of spaces is scanned once', () => {
  expect(parseAuthorization(`Bearer${' '.repeat(1_000_000)}`)).toBeUndefined()
})

test('a bearer token is read in any case, and no other scheme is accepted', () => {
  expect(bearerTokenOf('bEARER  abc')).toBe('abc')
  expect(bearerTokenOf('Basic abc')).toBeUndefined()
  expect(bearerTokenOf('Bearer')).toBeUndefined()
})

const encode = (text: string) => Buffer.from(text).toString('base64')

test.each([
  [`basic ${encode('ada:a:b')}`, { username: 'ada', password: 'a:b' }],
  [`Basic ${encode(':secret')}`, { username: '', password: 'secret' }],
  [`Basic ${encode('ada:')}`, { username: 'ada', password: '' }],
  [`Basic ${encode('ada')}`, undefined],
  ['Basic', undefined],
  [`Bearer ${encode('ada:b')}`, undefined],
])('%j has Basic credentials, or none', (value, credentials) => {
  expect(basicCredentialsOf(value)).toEqual(credentials)
})
