import { expect, test } from 'vitest'
import { fieldName, refusedField } from './refused-field.ts'

test('a field is named as a sentence begins with it', () => {
  expect(['/credentials/secret', '/ttl', 'limit'].map(fieldName)).toEqual(['credentials.secret', 'ttl', 'limit'])
})

test('a refusal names the field in its sentence and the path in its details', () => {
  expect(refusedField('/credentials/secret', 'is required')).toMatchObject({
    kind: 'malformed',
    message: 'credentials.secret is required',
    details: [{ path: '/credentials/secret', message: 'is required' }],
  })
})
