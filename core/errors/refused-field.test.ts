import { expect, test } from 'vitest'
import { fieldName, refusedField } from './refused-field.ts'

test('a path becomes the name of a field', () => {
  expect(['/credentials/secret', '/ttl', 'limit'].map(fieldName)).toEqual(['credentials.secret', 'ttl', 'limit'])
})

test('an error names the field in its message and the path in its details', () => {
  expect(refusedField('/credentials/secret', 'is required')).toMatchObject({
    kind: 'malformed',
    message: 'credentials.secret is required',
    details: [{ path: '/credentials/secret', message: 'is required' }],
  })
})
