// contract sections 0, 7.1 and 12, decisions 42 to 45: whatever comes in, the error body goes out and nothing hangs
import { beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import type { Caller, TestResponse } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let call: Caller
beforeAll(async () => {
  call = tenant.call
})

/** The error body of decision 44: both keys, at most details beside them, JSON, and nothing of our insides. */
function expectError(answer: TestResponse, status: number, kind: string): void {
  expect(answer.status, answer.text).toBe(status)
  expect(answer.headers['content-type']).toMatch(/^application\/json/)
  const body = answer.json<{ error: string; message: string; details?: { path: string; message: string }[] }>()
  expect(body.error).toBe(kind)
  expect(body.message).toMatch(/\S/)
  expect(Object.keys(body).filter((key) => !['error', 'message', 'details'].includes(key))).toEqual([])
  for (const detail of body.details ?? []) expect(Object.keys(detail).toSorted()).toEqual(['message', 'path'])
  expect(answer.text).not.toMatch(/\bat \S+ \(|\.ts:\d|node_modules|SELECT|INSERT|postgres|constraint/i)
}

const JSON_TYPE = { 'content-type': 'application/json' }
const clients = () => `/${tenant.domainId}/clients`

describe('a path', () => {
  test('without a route is 404, with any method and with or without credentials', async () => {
    for (const path of ['/nothing', '/users/a/b/c', `/${newId()}/nothing`, '/%F0%9F%98%80'])
      for (const [caller, method] of [
        [call, 'GET'],
        [call, 'POST'],
        [api.anonymous, 'DELETE'],
      ] as const)
        expectError(await caller(method, path), 404, 'not_found')
  })

  test('with a route for other methods is 405 and names them in Allow', async () => {
    for (const [method, path, allow] of [
      ['POST', '/users/profile', /GET/],
      ['PUT', '/domains', /^GET, HEAD, POST$/],
      ['POST', `/domains/${newId()}`, /GET.*PATCH/],
      ['GET', `${clients()}/${newId()}/enable`, /^POST$/],
      ['PATCH', '/users/tokens/issue', /^POST$/],
      ['DELETE', '/health', /^GET, HEAD$/],
    ] as const) {
      const answer = await call(method, path)
      expectError(answer, 405, 'method_not_allowed')
      expect(answer.headers['allow'], path).toMatch(allow)
    }
  })

  test('with invalid UTF-8, a NUL or excessive length is 400 or 404', async () => {
    for (const path of ['/users/%ff', '/users/%zz', '/users/%00', `/${newId()}/clients/%00`, '/domains/a%00b'])
      expectError(await call('GET', path), 400, 'malformed')
    expect([400, 404, 414]).toContain((await call('GET', `/users/${'x'.repeat(5000)}`)).status)
  })
})

describe('a query', () => {
  test.each([
    'name=%00',
    'name=%zz%00',
    'name=a&name=b',
    'limit=1&limit=1',
    'limit=1e3',
    'limit=0x10',
    'limit=NaN',
    'limit=Infinity',
    'offset=-0.5',
    'offset=1e400',
    'offset=9007199254740993',
    'metadata=%7B%22a%22%3A1e400%7D',
    'metadata=%7B%22a%22%3A%22%5Cu0000%22%7D',
    'metadata=%7B%22a%22%3A%22%5Cud800%22%7D',
    `name=${'x'.repeat(1025)}`,
  ])('%s is malformed in every listing', async (query) => {
    for (const path of ['/users', '/domains', '/clients', '/channels', clients(), `/${tenant.domainId}/channels`])
      expectError(await call('GET', `${path}?${query}`), 400, 'malformed')
  })

  test('with unknown parameters is answered as without them', async () => {
    for (const query of ['unknown=1', '__proto__=1', 'constructor=1', '=', '&&', '%F0%9F%98%80=1', 'name=%ff'])
      expect((await call('GET', `${clients()}?${query}`)).status, query).toBe(200)
  })
})

describe('a body', () => {
  test.each([
    ['an unclosed brace', '{"name":"x"'],
    ['no JSON', 'name=x'],
    ['two values', '{} {}'],
    ['a NUL', '{"name":"a\\u0000b"}'],
    ['a NUL in a key', '{"metadata":{"a\\u0000":1}}'],
    ['a lone surrogate', '{"name":"\\ud800"}'],
    ['a lone surrogate deep inside', '{"metadata":{"a":[{"b":"\\udc00x"}]}}'],
    ['a number that no double holds', '{"metadata":{"a":1e400}}'],
    ['a negative one', '{"metadata":{"a":-1e400}}'],
    ['a prototype', '{"metadata":{"__proto__":{"x":1}}}'],
    ['nothing that is known', '"name"'],
    ['null', 'null'],
    ['a list', '[]'],
    ['depth', `{"metadata":${'{"a":'.repeat(200)}1${'}'.repeat(200)}}`],
    ['far more depth', `${'['.repeat(200_000)}`],
    ['a wrong type', '{"name":true}'],
    ['nothing', ''],
  ])('with %s is malformed', async (_what, body) => {
    expectError(await call('POST', clients(), body, JSON_TYPE), 400, 'malformed')
    expectError(await call('POST', '/domains', body, JSON_TYPE), 400, 'malformed')
  })

  test('with invalid UTF-8 is malformed', async () => {
    const answer = await api.app.inject({
      method: 'POST',
      url: clients(),
      headers: { ...JSON_TYPE, authorization: `Bearer ${tenant.user.accessToken}` },
      payload: Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xff, 0xfe, 0x22, 0x7d]),
    })
    expect(answer.statusCode).toBe(400)
    expect(answer.json()).toMatchObject({ error: 'malformed' })
  })

  test('that is malformed is not repeated to its sender: it may contain a password', async () => {
    const answer = await api.anonymous('POST', '/users/tokens/issue', '{"secret":"hunter2hunter2",}', JSON_TYPE)
    expectError(answer, 400, 'malformed')
    expect(answer.text).not.toContain('hunter2')
    const wrong = await api.anonymous('POST', '/users/tokens/issue', { identity: 'x', secret: ['hunter2hunter2'] })
    expectError(wrong, 400, 'malformed')
    expect(wrong.text).not.toContain('hunter2')
  })

  test('of another content type is 415, and parameters after the JSON type are accepted', async () => {
    for (const type of [
      'text/plain',
      'application/xml',
      'application/x-www-form-urlencoded',
      'application/senml+json',
      'nonsense',
    ])
      expectError(await call('POST', clients(), '{}', { 'content-type': type }), 415, 'unsupported_media_type')
    for (const type of ['application/json; charset=utf-8', 'Application/JSON', 'application/json;charset=UTF-8;x=y'])
      expect((await call('POST', clients(), '{}', { 'content-type': type })).status, type).toBe(201)
  })

  test('above its limit is 413, and a bulk has a larger limit than a single item', async () => {
    const large = JSON.stringify({ metadata: { text: 'x'.repeat(1024 * 1024) } })
    expectError(await call('POST', clients(), large, JSON_TYPE), 413, 'too_large')
    expect((await call('POST', `${clients()}/bulk`, `[${large}]`, JSON_TYPE)).status).toBe(200)
    const huge = JSON.stringify([{ metadata: { text: 'x'.repeat(16 * 1024 * 1024) } }])
    expectError(await call('POST', `${clients()}/bulk`, huge, JSON_TYPE), 413, 'too_large')
  })

  test('that a request does not require may have any type, or be empty as JSON', async () => {
    const client = await tenant.newClient()
    for (const [body, type] of [
      ['', 'application/json'],
      ['', 'text/plain'],
      ['ignored', 'text/plain'],
      ['a=b', 'application/x-www-form-urlencoded'],
    ] as const) {
      const answer = await call('POST', `${clients()}/${client.id}/disable`, body, { 'content-type': type })
      expect(answer.status, type).toBe(200)
    }
  })
})

describe('the order of refusals', () => {
  test('is 401, 415, 400, 403, 404, 409', async () => {
    const existing = await tenant.newClient()
    const stranger = await api.newUser()
    const foreign = `/${tenant.domainId}/clients`
    const post = (caller: Caller, path: string, body: string, type = 'application/json') =>
      caller('POST', path, body, { 'content-type': type })
    expectError(await post(api.anonymous, foreign, '{', 'text/plain'), 401, 'unauthenticated')
    expectError(await post(stranger.call, foreign, '{', 'text/plain'), 415, 'unsupported_media_type')
    expectError(await post(stranger.call, foreign, '{"name":7}'), 400, 'malformed')
    expectError(await post(stranger.call, foreign, JSON.stringify({ id: existing.id })), 403, 'forbidden')
    expectError(
      await call('PATCH', `${clients()}/${newId()}/secret`, { secret: existing.credentials.secret }),
      404,
      'not_found',
    )
    expectError(await call('POST', clients(), { id: existing.id }), 409, 'conflict')
  })

  test('names the invalid part of a query or body before it refuses a foreign domain', async () => {
    for (const [method, path, body] of [
      ['GET', `/${newId()}/clients?metadata=x`, undefined],
      ['GET', `/${newId()}/channels?limit=0`, undefined],
      ['PATCH', `/domains/${newId()}`, { alias: 'users' }],
      ['PATCH', `/domains/${newId()}`, { alias: '' }],
      ['POST', `/${newId()}/channels/connect`, { client_ids: ['x'], channel_ids: ['y'] }],
      ['PATCH', `/${newId()}/clients/${newId()}/secret`, {}],
    ] as const)
      expectError(await call(method, path, body), 400, 'malformed')
  })
})

test('a validation error lists each field with the rule that it breaks', async () => {
  const answer = await call('POST', clients(), { name: 7, tags: 'x', status: 'gone', credentials: { secret: '' } })
  expectError(answer, 400, 'malformed')
  const { details } = answer.json<{ details: { path: string; message: string }[] }>()
  expect(details.map((detail) => detail.path).toSorted()).toEqual(['/credentials/secret', '/name', '/status', '/tags'])
  expect(details.find((detail) => detail.path === '/status')?.message).toBe('must be one of enabled, disabled')
})

test('a request of a page of another origin changes nothing, and the request id comes back', async () => {
  const answer = await call('POST', clients(), {}, { origin: 'https://evil.example', 'x-request-id': 'mine-7' })
  expectError(answer, 403, 'forbidden')
  expect(answer.headers['x-request-id']).toBe('mine-7')
  const made = await call('GET', '/users/profile', undefined, { 'x-request-id': 'not a\tvalid id' })
  expect(made.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/)
})
