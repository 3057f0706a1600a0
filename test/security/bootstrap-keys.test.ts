/** External keys of devices (contract decision 73): not short, and not to be guessed. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'

const LIMIT_PER_EXTERNAL_ID = 10
const LIMIT_PER_ADDRESS = 100

let api: TestApi
let owner: TestUser
let domain: string
let channel: string
beforeAll(async () => {
  api = await startTestApi({ trustProxy: ['127.0.0.1'] })
  ;({ owner, domain, channel } = await tenantOf(api))
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
})

async function tenantOf(at: TestApi) {
  const user = await at.newUser()
  const made = await user.call('POST', '/domains', { name: 'plant', route: `p-${newId().slice(0, 8)}` })
  const domainId = made.json<{ id: string }>().id
  const { id } = (await user.call('POST', `/${domainId}/channels`, { name: 'north' })).json<{ id: string }>()
  return { owner: user, domain: domainId, channel: id }
}

const newConfig = async (key: string) => {
  const external = { external_id: newId(), external_key: key }
  const made = await owner.call('POST', `/${domain}/clients/configs`, { ...external, channels: [channel] })
  return { ...external, made }
}

/** As a device behind the trusted proxy, at an address of its own. */
const ask = (externalId: string, key: string, address: string, collection = 'clients') =>
  api.as(`Client ${key}`)('GET', `/${collection}/bootstrap/${externalId}`, undefined, { 'x-forwarded-for': address })

describe('external keys', () => {
  test.each(['', 's', '15 characters..', 'ключ'])('%j is refused as too short, everywhere', async (key) => {
    expect((await newConfig(key)).made.status).toBe(400)
    const { made } = await newConfig('a-key-of-the-factory')
    const path = `/${domain}/clients/configs/${String(made.headers['location']).split('/').at(-1) ?? ''}`
    const patched = await owner.call('PATCH', path, { external_key: key })
    // An empty key of a change says that it stays.
    expect(patched.status, patched.text).toBe(key === '' ? 200 : 400)
    const mapped = await owner.call('POST', `/${domain}/mapping`, { external_id: newId(), external_key: key })
    expect(mapped.status, mapped.text).toBe(400)
  })

  test('of 16 characters are accepted', async () => {
    expect((await newConfig('16 characters...')).made.status).toBe(201)
  })

  test('of any length are accepted with SKEIN_BOOTSTRAP_WEAK_KEYS', async () => {
    await using other = await startTestApi({ environment: { SKEIN_BOOTSTRAP_WEAK_KEYS: 'true' } })
    const tenant = await tenantOf(other)
    const body = { external_id: 'old', external_key: 'k', channels: [tenant.channel] }
    expect((await tenant.owner.call('POST', `/${tenant.domain}/clients/configs`, body)).status).toBe(201)
    expect((await other.as('Client k')('GET', '/clients/bootstrap/old')).status).toBe(200)
  })
})

describe('wrong keys', () => {
  test('are limited for each external id, from any address and on any path', async () => {
    const { external_id: id, external_key: key } = await newConfig('a-key-of-the-factory')
    const other = await newConfig('a-key-of-the-factory-2')
    const answers = await Promise.all(
      Array.from({ length: 3 * LIMIT_PER_EXTERNAL_ID }, (_, index) =>
        ask(id, `guess-${index}`, `198.51.100.${index}`, index % 2 === 0 ? 'clients' : 'things'),
      ),
    )
    expect(answers.filter(({ status }) => status === 403)).toHaveLength(LIMIT_PER_EXTERNAL_ID)
    const refused = answers.filter(({ status }) => status === 429)
    expect(refused).toHaveLength(2 * LIMIT_PER_EXTERNAL_ID)
    for (const { headers } of refused) expect(Number(headers['retry-after'])).toBeGreaterThan(0)
    // A right key is no answer either: it would tell the guesser.
    expect((await ask(id, key, '198.51.100.250')).status).toBe(429)
    expect((await ask(other.external_id, other.external_key, '198.51.100.1')).status).toBe(200)
  })

  test('are limited for each address, over all external ids', async () => {
    const configs = []
    for (let count = 0; count <= LIMIT_PER_ADDRESS / 5; count++) configs.push(await newConfig('a-key-of-the-factory'))
    const statuses: number[] = []
    for (const { external_id: id } of configs)
      for (let guess = 0; guess < 5; guess++) statuses.push((await ask(id, `guess-${guess}`, '203.0.113.7')).status)
    expect(statuses.slice(0, LIMIT_PER_ADDRESS).every((status) => status === 403)).toBe(true)
    expect(statuses.slice(LIMIT_PER_ADDRESS)).toContain(429)
    const [last] = configs.slice(-1)
    expect((await ask(last?.external_id ?? '', 'a-key-of-the-factory', '203.0.113.8')).status).toBe(200)
  })

  test('do not include right keys and unknown devices', async () => {
    const { external_id: id, external_key: key } = await newConfig('a-key-of-the-factory')
    const unknown = newId()
    for (let count = 0; count < 3 * LIMIT_PER_EXTERNAL_ID; count++) {
      expect((await ask(id, key, '192.0.2.9')).status).toBe(200)
      expect((await ask(unknown, key, '192.0.2.9')).status).toBe(404)
    }
  })
})

// contract decision 87
describe('a factory key that several domains use', () => {
  type Tenant = Awaited<ReturnType<typeof tenantOf>>
  const pairOf = () => ({ external_id: newId(), external_key: `factory-key-${newId()}` })
  type Pair = ReturnType<typeof pairOf>

  async function configure(tenant: Tenant, pair: Pair, fields: object = {}): Promise<string> {
    const body = { ...pair, channels: [tenant.channel], status: 'enabled', ...fields }
    const made = await tenant.owner.call('POST', `/${tenant.domain}/clients/configs`, body)
    expect(made.status, made.text).toBe(201)
    return String(made.headers['location']).split('/').at(-1) ?? ''
  }
  const viewOf = async (tenant: Tenant, client: string) =>
    (await tenant.owner.call('GET', `/${tenant.domain}/clients/configs/${client}`)).json<Record<string, unknown>>()
  const served = async ({ external_id: id, external_key: key }: Pair) =>
    (await ask(id, key, '192.0.2.44')).json<{ client_id: string }>().client_id

  test('is served by the oldest enabled configuration, and the others wait for its owner', async () => {
    const [seller, buyer] = [await tenantOf(api), await tenantOf(api)]
    const pair = pairOf()
    const sold = await configure(seller, pair)
    const bought = await configure(buyer, pair)
    expect(await served(pair)).toBe(sold)
    expect(await viewOf(buyer, bought)).toMatchObject({ waiting_for_other_owner: true })
    expect(await viewOf(seller, sold)).not.toHaveProperty('waiting_for_other_owner')
    const disabled = await seller.owner.call('POST', `/${seller.domain}/clients/configs/${sold}/disable`)
    expect(disabled.status, disabled.text).toBeLessThan(300)
    expect(await served(pair)).toBe(bought)
    expect(await viewOf(buyer, bought)).not.toHaveProperty('waiting_for_other_owner')
    expect(await viewOf(seller, sold)).toMatchObject({ waiting_for_other_owner: true })
    await seller.owner.call('POST', `/${seller.domain}/clients/configs/${sold}/enable`)
    expect(await served(pair)).toBe(sold)
    expect((await seller.owner.call('DELETE', `/${seller.domain}/clients/${sold}`)).status).toBe(200)
    expect(await served(pair)).toBe(bought)
  })

  test('is created in one domain as if there were no other, with every call, dry or not', async () => {
    const [victim, other] = [await tenantOf(api), await tenantOf(api)]
    const pair = pairOf()
    await configure(victim, pair)
    const orders = () => [pair, { ...pair, external_key: `factory-key-${newId()}` }, pairOf()]
    for (const order of orders()) {
      const dry = await other.owner.call('POST', `/${other.domain}/mapping?dry_run=true`, order)
      expect(dry.status, dry.text).toBe(200)
      const report = dry.json<{ rows: { table: string; created: number }[] }>()
      expect(report.rows.find(({ table }) => table === 'bootstrap_configs')).toMatchObject({ created: 1 })
    }
    for (const path of ['mapping', 'clients/configs'])
      for (const order of orders()) {
        const { owner: creator, domain: at, channel: one } = await tenantOf(api)
        const body = path === 'mapping' ? order : { ...order, channels: [one] }
        const made = await creator.call('POST', `/${at}/${path}`, body)
        expect(made.status, made.text).toBe(201)
      }
  })

  test('is guessed at ten times a minute, and its owner finds the guesses in the journal', async () => {
    const [victim, guesser] = [await tenantOf(api), await tenantOf(api)]
    const pair = pairOf()
    const client = await configure(victim, pair)
    const guess = async (key: string) =>
      await guesser.owner.call('POST', `/${guesser.domain}/mapping?dry_run=true`, { ...pair, external_key: key })
    for (let count = 0; count < LIMIT_PER_EXTERNAL_ID; count++)
      expect((await guess(`a wrong guess of the key ${count}`)).status).toBe(200)
    const refused = await guess('one wrong guess more')
    expect(refused.status).toBe(429)
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    // A right key is no answer either.
    expect((await guess(pair.external_key)).status).toBe(429)
    const journal = await victim.owner.call(
      'GET',
      `/${victim.domain}/journal/client/${client}?limit=100&with_attributes=true`,
    )
    const { journals } = journal.json<{ journals: { operation: string; attributes: Record<string, unknown> }[] }>()
    const refusals = journals.filter(({ operation }) => operation === 'client.refuse_external_key')
    expect(refusals, journal.text).toHaveLength(LIMIT_PER_EXTERNAL_ID)
    expect(refusals[0]?.attributes).toMatchObject({ external_id: pair.external_id, source: 'configuration' })
    expect(journal.text).not.toContain(guesser.owner.id)
  })

  test('slows nothing down when it is right or new', async () => {
    const [seller, buyer] = [await tenantOf(api), await tenantOf(api)]
    for (let count = 0; count < 3 * LIMIT_PER_EXTERNAL_ID; count++) {
      const pair = pairOf()
      await configure(seller, pair)
      await configure(buyer, pair)
    }
    const pair = pairOf()
    await configure(seller, pair)
    for (let count = 0; count < 3 * LIMIT_PER_EXTERNAL_ID; count++)
      expect((await buyer.owner.call('POST', `/${buyer.domain}/mapping?dry_run=true`, pair)).status).toBe(200)
  })
})
