// contract section 4.3 (`POST /clients/identify`), decision 31c
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const identify = (secret: string, domain?: string) =>
  api.as(`Client ${secret}`)('POST', `${domain === undefined ? '' : `/${domain}`}/clients/identify`)

test('a client gets its id for its secret, with the domain in the path and without', async () => {
  const client = await tenant.newClient()
  for (const domain of [undefined, tenant.domainId]) {
    const found = await identify(client.credentials.secret, domain)
    expect(found.status).toBe(200)
    expect(found.json()).toEqual({ id: client.id, domain_id: tenant.domainId })
  }
})

test('an absent secret, another scheme, a wrong and a foreign secret are the same 401', async () => {
  const foreign = await (await newTenant(api)).newClient()
  const answers = [
    await identify('wrong-secret-that-is-long', tenant.domainId),
    await identify(foreign.credentials.secret, tenant.domainId),
    await identify(foreign.credentials.secret, newId()),
  ]
  // The response does not say which of the two is wrong.
  expect(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size).toBe(1)
  expect(answers[0]?.text).toContain('wrong domain or secret')
  const withoutDomain = await identify('wrong-secret-that-is-long')
  expect([withoutDomain.status, withoutDomain.text]).toEqual([401, expect.stringContaining('client secret')])
  for (const authorization of [undefined, 'Client ', `Bearer ${tenant.user.accessToken}`, 'Basic secret']) {
    const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
    expect((await api.anonymous('POST', '/clients/identify', undefined, headers)).status).toBe(401)
  }
})

test('a disabled client, a deleted one and a client of a disabled domain are 401', async () => {
  const own = await newTenant(api)
  const [disabled, deleted, shut] = [await own.newClient(), await own.newClient(), await own.newClient()]
  await own.call('POST', `/${own.domainId}/clients/${disabled.id}/disable`)
  await own.call('DELETE', `/${own.domainId}/clients/${deleted.id}`)
  expect((await identify(disabled.credentials.secret)).status).toBe(401)
  expect((await identify(deleted.credentials.secret)).status).toBe(401)
  expect((await identify(shut.credentials.secret)).status).toBe(200)
  await own.call('POST', `/domains/${own.domainId}/disable`)
  expect((await identify(shut.credentials.secret)).status).toBe(401)
})

test('a secret of several domains is refused and recorded in each; the domain in the path resolves it', async () => {
  const other = await newTenant(api)
  const secret = `shared-by-two-${newId()}`
  const [mine, theirs] = [
    await tenant.newClient({ credentials: { secret } }),
    await other.newClient({ credentials: { secret } }),
  ]
  expect((await identify(secret)).status).toBe(401)
  const { rows } = await sql<{ id: string }>`SELECT d.id FROM journal j JOIN domains d ON d.key = j.domain_key
    WHERE j.operation = 'client.ambiguous' AND j.attributes ->> 'id' = ANY (${[mine.id, theirs.id]})`.execute(
    api.database.db,
  )
  expect(rows.map((row) => row.id).toSorted()).toEqual([tenant.domainId, other.domainId].toSorted())
  expect((await identify(secret, tenant.domainId)).json()).toMatchObject({ id: mine.id })
  expect((await identify(secret, other.domainId)).json()).toMatchObject({ id: theirs.id })
})

test('a short external secret is accepted only in the domain of the path', async () => {
  const secret = 'short-one'
  const client = await tenant.newClient({ credentials: { secret } })
  expect((await identify(secret)).status).toBe(401)
  expect((await identify(secret, tenant.domainId)).json()).toMatchObject({ id: client.id })
})
