// From which address a caller comes (contract section 12): X-Forwarded-For counts from the proxies of SKEIN_TRUST_PROXY alone
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TestApi, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'

const PROXY = '10.1.2.3'
const SECOND_PROXY = '10.9.9.9'
const STRANGER = '192.0.2.77'
/** Failures from one address before the limit, see RULES of the throttle. */
const PAIR_BURST = 10

type Edge = { api: TestApi; user: TestUser }

let direct: Edge
let proxied: Edge
const start = async (trustProxy: readonly string[]): Promise<Edge> => {
  const api = await startTestApi({ trustProxy })
  return { api, user: await api.newUser() }
}
beforeAll(async () => {
  direct = await start([])
  proxied = await start(['10.0.0.0/8', '2001:db8::/32'])
})
afterAll(async () => {
  await direct.api[Symbol.asyncDispose]()
  await proxied.api[Symbol.asyncDispose]()
})

type Headers = Record<string, string>

async function send({ api }: Edge, peer: string, url: string, payload: object, headers: Headers) {
  return await api.app.inject({ method: 'POST', url, remoteAddress: peer, headers, payload })
}

/** What the journal says of a call that came from this peer with these headers. */
async function addressOf(edge: Edge, peer: string, headers: Headers): Promise<unknown> {
  const { user } = edge
  const authorization = `Bearer ${user.accessToken}`
  const created = await send(edge, peer, '/domains', { name: 'forwarded' }, { ...headers, authorization })
  expect(created.statusCode).toBe(201)
  const { id } = created.json<{ id: string }>()
  const journal = await user.call('GET', `/${id}/journal/domain/${id}?with_attributes=true`)
  return journal.json<{ journals: { attributes: Headers }[] }>().journals[0]?.attributes['address']
}

const guess = async (edge: Edge, identity: string, peer: string, forwarded: string) =>
  (
    await send(
      edge,
      peer,
      '/users/tokens/issue',
      { identity, secret: 'wrong password' },
      { 'x-forwarded-for': forwarded },
    )
  ).statusCode

describe('without trusted proxies', () => {
  test('the peer is the caller, whatever its headers claim', async () => {
    expect(await addressOf(direct, STRANGER, {})).toBe(STRANGER)
    expect(await addressOf(direct, STRANGER, { 'x-forwarded-for': '198.51.100.1' })).toBe(STRANGER)
    expect(await addressOf(direct, STRANGER, { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1' })).toBe(
      STRANGER,
    )
    expect(await addressOf(direct, STRANGER, { forwarded: 'for=198.51.100.1' })).toBe(STRANGER)
  })

  test('no caller escapes the limit of an address by naming others', async () => {
    const { username } = await direct.api.newUser()
    for (let attempt = 0; attempt < PAIR_BURST; attempt++)
      expect(await guess(direct, username, STRANGER, `198.51.100.${attempt}`)).toBe(401)
    expect(await guess(direct, username, STRANGER, '198.51.100.200')).toBe(429)
  })
})

describe('with trusted proxies', () => {
  test('the caller is the last address that is not a trusted proxy', async () => {
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': '198.51.100.1' })).toBe('198.51.100.1')
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': '2001:db9::1' })).toBe('2001:db9::1')
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': `198.51.100.1, ${SECOND_PROXY}` })).toBe('198.51.100.1')
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': '198.51.100.1, 2001:db8::7' })).toBe('198.51.100.1')
  })

  test('addresses that a caller added to the header are ignored', async () => {
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': '127.0.0.1, 198.51.100.1' })).toBe('198.51.100.1')
    expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': `${PROXY}, 198.51.100.1` })).toBe('198.51.100.1')
  })

  test('a peer that is not a proxy is the caller', async () => {
    expect(await addressOf(proxied, STRANGER, { 'x-forwarded-for': '198.51.100.1' })).toBe(STRANGER)
    expect(await addressOf(proxied, PROXY, {})).toBe(PROXY)
  })

  test('an invalid address of any length is counted as the proxy itself', async () => {
    for (const nonsense of ['unknown', '_hidden', '1.2.3', "'; --", 'x'.repeat(8000)])
      expect(await addressOf(proxied, PROXY, { 'x-forwarded-for': nonsense })).toBe(PROXY)
    const { username, secret } = proxied.user
    const forwarded = { 'x-forwarded-for': 'x'.repeat(8000) }
    const loggedIn = await send(proxied, PROXY, '/users/tokens/issue', { identity: username, secret }, forwarded)
    expect(loggedIn.statusCode).toBe(201)
  })

  test('each address behind the proxies has a limit of its own', async () => {
    const { username } = await proxied.api.newUser()
    for (let attempt = 0; attempt < PAIR_BURST; attempt++)
      expect(await guess(proxied, username, PROXY, '198.51.100.1')).toBe(401)
    expect(await guess(proxied, username, PROXY, '198.51.100.1')).toBe(429)
    expect(await guess(proxied, username, PROXY, '198.51.100.2')).toBe(401)
  })

  test('X-Forwarded-Host and X-Forwarded-Proto appear in no answer', async () => {
    const { user } = proxied
    const { id } = (await user.call('POST', '/domains', { name: 'hosted' })).json<{ id: string }>()
    const headers = {
      authorization: `Bearer ${user.accessToken}`,
      'x-forwarded-host': 'evil.example',
      'x-forwarded-proto': 'gopher',
      'x-forwarded-for': '198.51.100.1',
    }
    const created = await send(proxied, PROXY, `/${id}/clients`, { name: 'hosted' }, headers)
    expect(created.statusCode).toBe(201)
    expect(created.headers.location).toBe(`/clients/${created.json<{ id: string }>().id}`)
    expect(JSON.stringify([created.headers, created.body])).not.toMatch(/evil|gopher/)
  })
})
