// contract section 6 "Auth": keys, and personal access tokens
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { A_STRING, A_TIME, A_UUID, UNKNOWN_ID, having, page, startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let bob: Person
let d = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  bob = await requests.person()
  d = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
})
afterAll(() => requests[Symbol.asyncDispose]())

describe('keys', () => {
  test('GET /keys/.well-known/jwks.json', async () => {
    await requests.nobody('GET /keys/.well-known/jwks.json -> 200', {
      gives: { keys: [{ kty: 'OKP', alg: 'EdDSA', crv: 'Ed25519', kid: A_STRING, x: A_STRING }] },
    })
  })

  test('POST /keys, GET and DELETE /keys/{id}', async () => {
    const key = await ann<{ id: string; value: string }>('POST /keys -> 201', {
      sends: { type: 3, duration: 3600 },
      gives: { id: A_UUID, value: A_STRING, issued_at: A_TIME, expires_at: A_TIME },
    })
    const endless = await ann<Record<string, unknown>>('POST /keys -> 201', { sends: { type: 3 } })
    expect(endless['expires_at']).toBeUndefined()
    await ann('POST /keys -> 400', { sends: { type: 0 } })
    await ann(`GET /keys/${key.id} -> 200`, {
      gives: { id: key.id, issuer_id: ann.id, subject: A_STRING, type: 3, issued_at: A_TIME, expires_at: A_TIME },
    })
    await ann(`GET /keys/${UNKNOWN_ID} -> 404`)
    await bob(`GET /keys/${key.id} -> 404`)
    await requests.bearer(key.value)(`GET /${d}/clients -> 200`)
    await ann(`DELETE /keys/${key.id} -> 204`, { gives: '' })
    await requests.bearer(key.value)(`GET /${d}/clients -> 401`)
  })
})

describe('personal access tokens', () => {
  test('every row of the table', async () => {
    const pat = await ann<{ id: string; secret: string }>('POST /pats -> 201', {
      sends: { name: 'backup', description: 'nightly', duration: '24h' },
      gives: {
        id: A_UUID,
        user_id: ann.id,
        name: 'backup',
        description: 'nightly',
        secret: expect.stringMatching(/^pat_/),
        issued_at: A_TIME,
        expires_at: A_TIME,
        revoked: false,
        status: 'active',
      },
    })
    await ann('POST /pats -> 400', { sends: { duration: '24h' } })
    await ann('POST /pats -> 400', { sends: { name: 'x', duration: 'soon' } })
    const listed = await ann<{ pats: object[] }>('GET /pats?name=back&status=active -> 200', {
      gives: page('pats', [having({ id: pat.id, name: 'backup' })]),
    })
    expect(JSON.stringify(listed)).not.toContain('"secret":"pat_')
    await ann(`GET /pats/${pat.id} -> 200`, { gives: { id: pat.id } })
    await bob(`GET /pats/${pat.id} -> 404`)
    await ann(`PATCH /pats/${pat.id}/name -> 202`, { sends: { name: 'copy' }, gives: { name: 'copy' } })
    await ann(`PATCH /pats/${pat.id}/description -> 202`, {
      sends: { description: 'weekly' },
      gives: { description: 'weekly' },
    })

    // scopes: without one nothing is allowed
    const token = requests.bearer(pat.secret)
    await token(`GET /${d}/clients -> 403`)
    await token('GET /pats -> 403')
    const scope = { domain_id: d, entity_type: 'clients', entity_id: '*', operation: 'list' }
    await ann(`PATCH /pats/${pat.id}/scope/add -> 200`, { sends: { scopes: [scope] } })
    await ann(`PATCH /pats/${pat.id}/scope/add -> 400`, { sends: { scopes: [{ ...scope, operation: 'fly' }] } })
    await ann(`PATCH /pats/${pat.id}/scope/add -> 409`, { sends: { scopes: [scope] } })
    const { scopes } = await ann<{ scopes: { id: string }[] }>(`GET /pats/${pat.id}/scope -> 200`, {
      gives: page('scopes', [having({ ...scope, pat_id: pat.id, optional_domain_id: d, id: A_STRING })]),
    })
    await token(`GET /${d}/clients -> 200`, { gives: page('clients', []) })
    await token(`POST /${d}/clients -> 403`, { sends: {} })
    await ann(`PATCH /pats/${pat.id}/scope/remove -> 200`, { sends: { scopes_id: [scopes[0]?.id] } })
    await token(`GET /${d}/clients -> 403`)
    await ann(`DELETE /pats/${pat.id}/scope -> 200`)

    // secret
    const renewed = await ann<{ secret: string }>(`PATCH /pats/${pat.id}/secret/reset -> 200`, {
      sends: { duration: '1h' },
      gives: { secret: expect.stringMatching(/^pat_/) },
    })
    await token(`GET /${d}/clients -> 401`)
    await ann(`PATCH /pats/${pat.id}/secret/revoke -> 204`, { gives: '' })
    await requests.bearer(renewed.secret)(`GET /${d}/clients -> 401`)
    await ann(`GET /pats/${pat.id} -> 200`, { gives: { revoked: true, revoked_at: A_TIME, status: 'revoked' } })
    await ann(`DELETE /pats/${pat.id} -> 204`, { gives: '' })
    await ann(`GET /pats/${pat.id} -> 404`)
    await ann('DELETE /pats -> 200')
  })
})
