import { expect, test } from 'vitest'
import { REDACTED, redact } from './redact.ts'

test('fields with a secret are redacted, also inside before and after', () => {
  const secrets = {
    secret: 'x',
    password: 'x',
    new_secret: 'x',
    access_token: 'x',
    credentials: { secret: 'x' },
    secret_hash: 'x',
  }
  const clean = redact({ id: '1', ...secrets, before: secrets, after: { name: 'pump', ...secrets } })
  expect(JSON.stringify(clean)).not.toContain('"x"')
  expect(clean).toMatchObject({ id: '1', secret: REDACTED, after: { name: 'pump', password: REDACTED } })
})

test('other fields are unchanged, including metadata', () => {
  const attributes = {
    id: '1',
    name: 'token',
    token_type: 'pat',
    tags: ['secret'],
    metadata: { secret: 'mine' },
    before: null,
  }
  expect(redact(attributes)).toEqual(attributes)
})

test('the external key of a gateway, which provisioning stores in its metadata, is redacted', () => {
  const metadata = { type: 'gateway', external_key: 'x' }
  const clean = redact({ id: '1', metadata, after: { metadata } })
  expect(JSON.stringify(clean)).not.toContain('"x"')
  expect(clean).toMatchObject({ metadata: { type: 'gateway', external_key: REDACTED } })
})
