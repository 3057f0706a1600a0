/** Secrets of clients that callers choose (contract decisions 73 and 87): a refusal tells that a client has the secret. */
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'

const LIMIT_PER_CALLER = 10

const api = useWorld(() => startTestApi())

type Attempt = (tenant: Tenant, secrets: readonly string[]) => Promise<{ status: number; text: string }>

const items = (secrets: readonly string[]) => secrets.map((secret) => ({ credentials: { secret } }))

const ATTEMPTS: readonly (readonly [string, Attempt])[] = [
  ['a dry import', (by, secrets) => by.call('POST', `/${by.domainId}/clients/import?dry_run=true`, items(secrets))],
  ['an import', (by, secrets) => by.call('POST', `/${by.domainId}/clients/import`, items(secrets))],
  ['a dry bulk', (by, secrets) => by.call('POST', `/${by.domainId}/clients/bulk?dry_run=true`, items(secrets))],
  ['a creation', (by, [secret = '']) => by.call('POST', `/${by.domainId}/clients`, items([secret])[0])],
  [
    'a new secret',
    async (by, [secret = '']) => {
      const { id } = await by.newClient()
      return await by.call('PATCH', `/${by.domainId}/clients/${id}/secret`, { secret })
    },
  ],
]

test.each(ATTEMPTS)('%s with taken secrets is limited for each caller, and recorded', async (_what, attempt) => {
  const tenant = await newTenant(api)
  const { credentials } = await tenant.newClient()
  const taken = () => attempt(tenant, [credentials.secret, `guess-${newId()}`])
  for (let count = 0; count < LIMIT_PER_CALLER; count++) {
    const refused = await taken()
    expect(refused.status, refused.text).toBe(409)
  }
  expect(await taken()).toMatchObject({ status: 429 })
  // Another secret is no answer either: it would tell that no client has it.
  expect(await attempt(tenant, [`guess-${newId()}`])).toMatchObject({ status: 429 })
  // Without a secret there is nothing to guess.
  expect((await tenant.call('POST', `/${tenant.domainId}/clients`, { name: 'pump' })).status).toBe(201)
  const journal = await tenant.call('GET', `/${tenant.domainId}/journal/domain/${tenant.domainId}?limit=100`)
  expect(journal.text.split('client.refuse_secret').length - 1, journal.text).toBe(LIMIT_PER_CALLER)
})

test('secrets that no client has are not limited', async () => {
  const tenant = await newTenant(api)
  for (let count = 0; count < 3 * LIMIT_PER_CALLER; count++) {
    const made = await tenant.call('POST', `/${tenant.domainId}/clients/bulk`, items([`secret-${newId()}`]))
    expect(made.status, made.text).toBe(200)
  }
})
