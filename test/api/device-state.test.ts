/** The states of devices over HTTP: what users desire, and what devices report. */
import pg from 'pg'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { sql } from '#core/sql.ts'
import type { TestResponse, TestUser } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { DOMAIN_ROUTE, startPlant } from '../messages/support.ts'
import type { Device } from '../messages/support.ts'

type State = {
  name?: string
  desired: Record<string, unknown>
  reported: Record<string, unknown>
  delta: Record<string, unknown>
  version: number
  desired_at?: string
  reported_at?: string
}

const plant = useWorld(() => startPlant())

const pathOf = ({ id }: Device, name = '') => `/${plant.domainId}/clients/${id}/desired-state${name && `/${name}`}`
const stateOf = (response: TestResponse) => {
  expect(response.text, String(response.status)).toContain('desired')
  return response.json<State>()
}

async function desire(device: Device, body: unknown, name = '', headers: Record<string, string> = {}) {
  return await plant.owner.call('PATCH', pathOf(device, name), body, headers)
}
async function asDevice(device: Device, method: string, body?: unknown, path = `/c/${plant.domainId}/state`) {
  return await plant.api.as(`Client ${device.secret}`)(method, path, body)
}

describe('a user and a device', () => {
  test('see what is desired, what is reported and the difference', async () => {
    const device = await plant.newDevice()
    const empty = stateOf(await plant.owner.call('GET', pathOf(device)))
    expect(empty).toEqual({ desired: {}, reported: {}, delta: {}, version: 0 })
    const desired = stateOf(await desire(device, { firmware: '1.4', led: { on: true, colour: 'red' } }))
    expect(desired.delta).toEqual({ firmware: '1.4', led: { on: true, colour: 'red' } })
    expect(desired.version).toBeGreaterThan(Date.now() - 60_000)
    expect(stateOf(await asDevice(device, 'GET'))).toEqual(desired)
    const reported = stateOf(await asDevice(device, 'PATCH', { firmware: '1.4', led: { on: false }, battery: 87 }))
    expect(reported.delta).toEqual({ led: { on: true, colour: 'red' } })
    expect(reported.version).toBeGreaterThan(desired.version)
    expect(reported.reported_at).toBeDefined()
    const done = stateOf(
      await asDevice(device, 'PATCH', { led: { on: true, colour: 'red' } }, `/c/${DOMAIN_ROUTE}/state`),
    )
    expect(done).toMatchObject({ delta: {}, reported: { battery: 87, firmware: '1.4' } })
    const removed = stateOf(await desire(device, { led: { colour: null }, firmware: null }))
    expect(removed.desired).toEqual({ led: { on: true } })
  })

  test('a user waits for the next change, whichever side makes it', async () => {
    const device = await plant.newDevice()
    const { version } = stateOf(await desire(device, { firmware: '1.4' }))
    const waited = async (query: string) => {
      const beganMs = performance.now()
      const state = stateOf(await plant.owner.call('GET', `${pathOf(device)}?${query}`))
      return { state, ms: performance.now() - beganMs }
    }
    // Another version is known: the response follows at once.
    expect((await waited(`wait=30s&version=${version - 1}`)).state.version).toBe(version)
    // Nothing changes.
    const unchanged = await waited(`wait=300ms&version=${version}`)
    expect(unchanged.state.version).toBe(version)
    expect(unchanged.ms).toBeGreaterThanOrEqual(290)
    const desired = waited(`wait=30s&version=${version}`)
    await desire(device, { firmware: '1.5' })
    const { state } = await desired
    expect(state.desired).toEqual({ firmware: '1.5' })
    // In this process a report that the journal does not record ends the wait as well; without a version, the current one is meant.
    await asDevice(device, 'PATCH', { firmware: '1.3' })
    const reported = waited('wait=30s')
    await new Promise((resolve) => setTimeout(resolve, 200))
    await asDevice(device, 'PATCH', { battery: 3 })
    expect((await reported).state.reported).toEqual({ firmware: '1.3', battery: 3 })
    // A change of another document ends no wait.
    const other = waited(`wait=500ms&version=${(await reported).state.version}`)
    await desire(device, { a: 1 }, 'config')
    expect((await other).ms).toBeGreaterThanOrEqual(490)
    for (const query of ['wait=2m', 'wait=x', 'version=x', 'version=-1'])
      expect((await plant.owner.call('GET', `${pathOf(device)}?${query}`)).status, query).toBe(400)
  })

  test('a user who waits reads the document once, however often the device reports', async () => {
    const device = await plant.newDevice()
    const { version } = stateOf(await desire(device, { firmware: '1.4' }))
    const asked = vi.spyOn(pg.Client.prototype, 'query')
    try {
      const looksAt = (statement: string) =>
        asked.mock.calls.filter(([given]) => (given as { name?: string }).name === statement).length
      const began = performance.now()
      const waiting = plant.owner.call('GET', `${pathOf(device)}?wait=1s&version=${version}`)
      while (performance.now() - began < 800)
        await asDevice(device, 'PATCH', { at: performance.now() }, `/c/${plant.domainId}/state/other`)
      expect(stateOf(await waiting).version).toBe(version)
      const passedMs = performance.now() - began
      expect(looksAt('find_device_state')).toBe(1)
      expect(looksAt('find_device_state_version')).toBeGreaterThan(1)
      expect(looksAt('find_device_state_version')).toBeLessThanOrEqual(passedMs / 50 + 2)
    } finally {
      asked.mockRestore()
    }
  })

  test('a device may ask for a flat difference as SenML, with its version as the entity tag', async () => {
    const device = await plant.newDevice()
    const { version } = stateOf(await desire(device, { firmware: '1.4', level: 3, on: false }))
    const asSenml = async (accept: string) =>
      await plant.api.as(`Client ${device.secret}`)('GET', `/c/${plant.domainId}/state`, undefined, { accept })
    const json = await asSenml('application/senml+json')
    expect([json.status, json.headers['content-type'], json.headers['etag']]).toEqual([
      200,
      'application/senml+json',
      `"${version}"`,
    ])
    expect(JSON.parse(json.text)).toEqual([
      { n: 'on', vb: false },
      { n: 'level', v: 3 },
      { n: 'firmware', vs: '1.4' },
    ])
    for (const accept of ['application/senml+cbor;q=1, text/plain', 'application/senml+cbor;q=']) {
      const cbor = await asSenml(accept)
      expect(cbor.headers['content-type'], accept).toBe('application/senml+cbor')
    }
    // The first one that it can have.
    expect(stateOf(await asSenml('application/json, application/senml+cbor')).version).toBe(version)
    // What weighs more, and nothing that weighs nothing.
    expect(stateOf(await asSenml('application/senml+cbor;q=0')).version).toBe(version)
    const weighed = await asSenml('application/json;q=0.1, application/senml+json;q=0.9, application/senml+cbor;q=0.5')
    expect(weighed.headers['content-type']).toBe('application/senml+json')
    await desire(device, { led: { on: true } })
    const nested = await asSenml('application/senml+json')
    expect(nested.status, nested.text).toBe(422)
    expect(nested.text).toContain('the difference is not flat')
    await asDevice(device, 'PATCH', { led: { on: true }, firmware: '1.4', on: false, level: 3 })
    expect((await asSenml('application/senml+json')).text).toBe('[]')
  })

  test('a report that changes nothing has the same version and a later time', async () => {
    const device = await plant.newDevice()
    const first = stateOf(await asDevice(device, 'PATCH', { a: 1 }))
    const second = stateOf(await asDevice(device, 'PATCH', { a: 1 }))
    expect(second.version).toBe(first.version)
    expect(Date.parse(second.reported_at ?? '')).toBeGreaterThan(Date.parse(first.reported_at ?? ''))
  })

  test('PUT replaces what is desired, DELETE removes both sides, and versions grow over it', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1, b: 2 })
    const replaced = stateOf(await plant.owner.call('PUT', pathOf(device), { b: 3, c: null }))
    expect(replaced.desired).toEqual({ b: 3 })
    expect((await plant.owner.call('DELETE', pathOf(device))).status).toBe(204)
    expect(stateOf(await plant.owner.call('GET', pathOf(device)))).toMatchObject({ version: 0, desired: {} })
    expect((await plant.owner.call('DELETE', pathOf(device))).status).toBe(204)
    expect(stateOf(await desire(device, { a: 1 })).version).toBeGreaterThan(replaced.version)
  })

  test('named documents are apart, listed, and bounded', async () => {
    const device = await plant.newDevice()
    const unwritten = { name: 'config', desired: {}, reported: {}, delta: {}, version: 0 }
    expect((await plant.owner.call('GET', pathOf(device, 'config'))).json()).toEqual(unwritten)
    expect((await asDevice(device, 'GET', undefined, `/c/${plant.domainId}/state/config`)).json()).toEqual(unwritten)
    expect(stateOf(await desire(device, { rate: 5 }, 'config'))).toMatchObject({ name: 'config', delta: { rate: 5 } })
    await asDevice(device, 'PATCH', { version: '2' }, `/c/${plant.domainId}/state/firmware`)
    const { states } = (await plant.owner.call('GET', `${pathOf(device)}s`)).json<{ states: State[] }>()
    expect(states).toMatchObject([
      { name: 'config', in_sync: false },
      { name: 'firmware', in_sync: true },
    ])
    for (let index = 2; index < 32; index++)
      expect((await asDevice(device, 'PATCH', { a: 1 }, `/c/${plant.domainId}/state/n${index}`)).status).toBe(200)
    expect((await asDevice(device, 'PATCH', { a: 1 }, `/c/${plant.domainId}/state/more`)).status).toBe(422)
    expect((await desire(device, { a: 1 }, 'more')).status).toBe(422)
    expect((await desire(device, { a: 1 }, 'n2')).status).toBe(200)
    for (const name of ['%24x', 'a%2Fb', '%2B', '%23', '.a', 'a'.repeat(65)])
      expect([name, (await desire(device, { a: 1 }, name)).status]).toEqual([name, 400])
  })
})

describe('If-Match', () => {
  test('another version is 412 with the current document, and changes nothing', async () => {
    const device = await plant.newDevice()
    const first = stateOf(await desire(device, { a: 1 }, '', { 'if-match': '0' }))
    const refused = await desire(device, { a: 2 }, '', { 'if-match': '"0"' })
    expect(refused.status).toBe(412)
    expect(refused.json()).toEqual({
      error: 'precondition_failed',
      message: expect.stringContaining(`version ${first.version}`),
      current: first,
    })
    expect(stateOf(await desire(device, { a: 2 }, '', { 'if-match': `"${first.version}"` })).desired).toEqual({ a: 2 })
    expect((await desire(device, { a: 3 }, '', { 'if-match': 'x' })).status).toBe(400)
    const deletion = await plant.owner.call('DELETE', pathOf(device), undefined, { 'if-match': String(first.version) })
    expect(deletion.status).toBe(412)
  })

  test('of two writers with the same version one changes it, and without a version both are merged', async () => {
    const device = await plant.newDevice()
    const { version } = stateOf(await desire(device, { a: 0 }))
    const both = await Promise.all(
      [1, 2].map((value) => desire(device, { a: value }, '', { 'if-match': String(version) })),
    )
    expect(both.map(({ status }) => status).toSorted((one, other) => one - other)).toEqual([200, 412])
    const fields = Array.from({ length: 20 }, (_, index) => `f${index}`)
    await Promise.all(fields.map((field) => desire(device, { [field]: 1 })))
    const { desired } = stateOf(await plant.owner.call('GET', pathOf(device)))
    expect(Object.keys(desired)).toEqual(expect.arrayContaining(fields))
  })

  test('the first writers of a document do not overwrite each other', async () => {
    const device = await plant.newDevice()
    await Promise.all([
      ...[1, 2, 3].map((n) => desire(device, { [`u${n}`]: n }, 'fresh')),
      ...[1, 2, 3].map((n) => asDevice(device, 'PATCH', { [`d${n}`]: n }, `/c/${plant.domainId}/state/fresh`)),
    ])
    const { desired, reported } = stateOf(await plant.owner.call('GET', pathOf(device, 'fresh')))
    expect(desired).toEqual({ u1: 1, u2: 2, u3: 3 })
    expect(reported).toEqual({ d1: 1, d2: 2, d3: 3 })
  })
})

describe('bad input', () => {
  const nested = (levels: number): unknown => (levels === 1 ? {} : { a: nested(levels - 1) })

  test.each([
    ['a number', '1', 400],
    ['a list', '[]', 400],
    ['null', 'null', 400],
    ['nothing', '', 400],
    ['no JSON', '{"a":', 400],
    ['a key __proto__', '{"a":{"__proto__":{"x":1}}}', 400],
    ['a NUL character', '{"a":"\\u0000"}', 400],
    ['a lone surrogate', '{"a":"\\ud800"}', 400],
    ['an infinite number', '{"a":1e999}', 400],
    ['21 levels', JSON.stringify(nested(21)), 400],
    ['100 levels', JSON.stringify(nested(100)), 400],
    ['more than 64 KiB', JSON.stringify({ a: 'x'.repeat(65_536) }), 413],
  ])('%s is refused, of users and of devices', async (_what, text, status) => {
    const device = await plant.newDevice()
    const send = async (path: string, authorization: string) => {
      const response = await plant.api.app.inject({
        method: 'PATCH',
        url: path,
        headers: { authorization, 'content-type': 'application/merge-patch+json' },
        payload: text,
      })
      return response.statusCode
    }
    expect(await send(pathOf(device), `Bearer ${plant.owner.accessToken}`)).toBe(status)
    expect(await send(`/c/${plant.domainId}/state`, `Client ${device.secret}`)).toBe(status)
    expect(stateOf(await plant.owner.call('GET', pathOf(device))).version).toBe(0)
  })

  test('a document grows to its limit by patches, and not above it', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 'x'.repeat(40_000) })
    expect((await desire(device, { b: 'x'.repeat(40_000) })).status).toBe(413)
    expect(stateOf(await desire(device, { a: null, b: 'x'.repeat(40_000) })).desired).not.toHaveProperty('a')
  })

  test('integers above 2^53 are kept exactly, and compared exactly', async () => {
    const device = await plant.newDevice()
    const text = '{"serial":9007199254740993}'
    const send = async (path: string, authorization: string) =>
      await plant.api.app.inject({
        method: 'PATCH',
        url: path,
        headers: { authorization, 'content-type': 'application/json' },
        payload: text,
      })
    const desired = await send(pathOf(device), `Bearer ${plant.owner.accessToken}`)
    expect(desired.body).toContain('"delta":{"serial":9007199254740993}')
    const other = await asDevice(device, 'PATCH', { serial: 9_007_199_254_740_992 })
    expect(other.text).toContain('"delta":{"serial":9007199254740993}')
    const same = await send(`/c/${plant.domainId}/state`, `Client ${device.secret}`)
    expect(same.body).toContain('"delta":{}')
  })

  test('names of the prototype are names like others', async () => {
    const device = await plant.newDevice()
    const names = { constructor: 1, toString: 'x', hasOwnProperty: { valueOf: true } }
    expect(stateOf(await desire(device, names)).delta).toEqual(names)
    expect(stateOf(await asDevice(device, 'PATCH', { constructor: 1 })).delta).toEqual({
      toString: 'x',
      hasOwnProperty: { valueOf: true },
    })
  })
})

describe('callers', () => {
  let stranger: TestUser
  beforeAll(async () => {
    stranger = await plant.api.newUser()
  })

  test('a device of another domain, a wrong secret, and an unknown domain are the same 401, and a user is 403', async () => {
    const device = await plant.newDevice()
    const other = (await plant.owner.call('POST', '/domains', { name: 'other' })).json<{ id: string }>().id
    const theirs = (await plant.owner.call('POST', `/${other}/clients`, { name: 'x' })).json<{
      id: string
      credentials: { secret: string }
    }>()
    const refused = [
      await asDevice({ ...device, secret: theirs.credentials.secret }, 'GET'),
      await asDevice({ ...device, secret: 'wrong-secret-of-a-device' }, 'GET'),
      await asDevice(device, 'GET', undefined, `/c/${other}/state`),
      await asDevice(device, 'GET', undefined, '/c/no-such-domain/state'),
    ]
    for (const response of refused) expect([response.status, response.text]).toEqual([401, refused[0]?.text])
    const asUser = await plant.owner.call('GET', `/c/${plant.domainId}/state`)
    expect(asUser.status).toBe(403)
    expect((await plant.api.anonymous('GET', `/c/${plant.domainId}/state`)).status).toBe(401)
  })

  test('a disabled device is 401 at once', async () => {
    const device = await plant.newDevice()
    await asDevice(device, 'PATCH', { a: 1 })
    await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
    expect((await asDevice(device, 'GET')).status).toBe(401)
  })

  test('a stranger gets 403, a viewer reads, a contributor reads and may not change', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1 })
    expect((await stranger.call('GET', pathOf(device))).status).toBe(403)
    for (const [relation, read, change] of [
      ['viewer', 200, 403],
      ['contributor', 200, 403],
      ['editor', 200, 200],
    ] as const) {
      const user = await plant.api.newUser()
      const body = { user_ids: [user.id], relation }
      expect((await plant.owner.call('POST', `/domains/${plant.domainId}/users/assign`, body)).status).toBe(201)
      expect([relation, (await user.call('GET', pathOf(device))).status]).toEqual([relation, read])
      expect([relation, (await user.call('PATCH', pathOf(device), { b: 1 })).status]).toEqual([relation, change])
      expect([relation, (await user.call('DELETE', pathOf(device))).status]).toEqual([
        relation,
        change === 403 ? 403 : 204,
      ])
    }
  })

  test('the state of a deleted client is gone', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1 })
    await plant.owner.call('DELETE', `/${plant.domainId}/clients/${device.id}`)
    expect((await plant.owner.call('GET', pathOf(device))).status).toBe(404)
    expect((await asDevice(device, 'PATCH', { a: 1 })).status).toBe(401)
  })
})

describe('the journal', () => {
  test('shows who changed what, before and after, and when a device came in sync', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1, keep: true })
    await desire(device, { a: 2 })
    await asDevice(device, 'PATCH', { a: 2, keep: true })
    await asDevice(device, 'PATCH', { battery: 12 })
    await asDevice(device, 'PATCH', { a: 3 })
    const path = `/${plant.domainId}/journal/client/${device.id}?dir=asc&with_attributes=true`
    const { journals } = (await plant.owner.call('GET', path)).json<{
      journals: { operation: string; attributes: Record<string, unknown> }[]
    }>()
    const ours = journals.filter(({ operation }) => operation.startsWith('client_state.'))
    expect(ours.map(({ operation }) => operation)).toEqual([
      'client_state.update',
      'client_state.update',
      'client_state.in_sync',
      'client_state.out_of_sync',
    ])
    expect(ours[1]?.attributes).toMatchObject({
      id: device.id,
      before: { desired: { a: 1 } },
      after: { desired: { a: 2 } },
    })
  })
})

describe('many clients', () => {
  async function tagged(count: number, tag: string) {
    const body = Array.from({ length: count }, (_, index) => ({ name: `${tag} ${index}`, tags: [tag] }))
    const made = await plant.owner.call('POST', `/${plant.domainId}/clients/bulk`, body)
    return made
      .json<{ clients: { id: string; credentials: { secret: string } }[] }>()
      .clients.map(({ id, credentials: { secret } }) => ({ id, secret }))
  }
  const many = `/clients/desired-state`

  test('are changed by tag, with a dry run and progress', async () => {
    const devices = await tagged(120, 'pumps')
    const [first, second] = devices as [Device, Device]
    await asDevice(first, 'PATCH', { firmware: '1.4' })
    await asDevice(second, 'PATCH', { firmware: '1.3' })
    const base = `/${plant.domainId}${many}?tag=pumps`
    const dry = await plant.owner.call('PATCH', `${base}&dry_run=true`, { firmware: '1.4' })
    expect(dry.json()).toMatchObject({ total: 120 })
    expect(stateOf(await plant.owner.call('GET', pathOf(second))).desired).toEqual({})
    const changed = await plant.owner.call('PATCH', base, { firmware: '1.4' })
    expect([changed.status, changed.json()]).toEqual([200, { total: 120, changed: 120 }])
    expect((await plant.owner.call('PATCH', base, { firmware: '1.4' })).json()).toEqual({ total: 120, changed: 0 })
    expect((await plant.owner.call('GET', base)).json()).toEqual({
      total: 120,
      in_sync: 1,
      pending: 1,
      never_seen: 118,
    })
    await asDevice(second, 'PATCH', { firmware: '1.4' })
    expect((await plant.owner.call('GET', base)).json()).toMatchObject({ in_sync: 2, pending: 0 })
  })

  test('have no version in common: If-Match is refused, and nothing changes', async () => {
    const [device] = (await tagged(1, 'guarded')) as [Device]
    const ifMatch = { 'if-match': '5' }
    for (const query of ['', '&dry_run=true']) {
      const refused = await plant.owner.call(
        'PATCH',
        `/${plant.domainId}${many}?tag=guarded${query}`,
        { a: 1 },
        ifMatch,
      )
      expect(refused.status, refused.text).toBe(400)
      expect(refused.text).toContain('if-match')
    }
    expect(stateOf(await plant.owner.call('GET', pathOf(device))).desired).toEqual({})
  })

  test('are changed by more JSON than one statement takes', async () => {
    const devices = await tagged(30, 'large')
    const text = 'x'.repeat(60_000)
    const answer = await plant.owner.call('PATCH', `/${plant.domainId}${many}?tag=large`, { text })
    expect([answer.status, answer.json()]).toEqual([200, { total: 30, changed: 30 }])
    for (const device of [devices[0], devices.at(-1)] as Device[])
      expect(stateOf(await plant.owner.call('GET', pathOf(device))).desired).toEqual({ text })
  })

  test('do not keep a report waiting while they change', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1 })
    const refused = await plant.api.database.transaction(async (tx) => {
      await sql`SELECT FROM device_states WHERE client_key = (SELECT key FROM clients WHERE id = ${device.id}) FOR UPDATE`.execute(
        tx,
      )
      return await asDevice(device, 'PATCH', { a: 1 })
    })
    expect([refused.status, refused.json()]).toMatchObject([
      503,
      { message: 'the document is being changed: try again' },
    ])
    expect((await asDevice(device, 'PATCH', { a: 1 })).status).toBe(200)
  })

  test('are changed by group; a selection is required, and others are not touched', async () => {
    const { id: group } = (await plant.owner.call('POST', `/${plant.domainId}/groups`, { name: 'hall' })).json<{
      id: string
    }>()
    const [inside, outside] = [await plant.newDevice(), await plant.newDevice()]
    await plant.owner.call('POST', `/${plant.domainId}/clients/${inside.id}/parent`, { parent_group_id: group })
    const answer = await plant.owner.call('PATCH', `/${plant.domainId}${many}?group=${group}&name=config`, { rate: 1 })
    expect(answer.json()).toEqual({ total: 1, changed: 1 })
    expect(stateOf(await plant.owner.call('GET', pathOf(inside, 'config'))).desired).toEqual({ rate: 1 })
    expect(stateOf(await plant.owner.call('GET', pathOf(outside, 'config'))).version).toBe(0)
    expect((await plant.owner.call('PATCH', `/${plant.domainId}${many}`, { a: 1 })).status).toBe(400)
    expect((await plant.owner.call('PATCH', `/${plant.domainId}${many}?tag=`, { a: 1 })).status).toBe(400)
    const none = await plant.owner.call('PATCH', `/${plant.domainId}${many}?group=${plant.domainId}`, { a: 1 })
    expect(none.json()).toEqual({ total: 0, changed: 0 })
  })

  test('are changed all or none: one document above its limit refuses all', async () => {
    const [first, second] = (await tagged(2, 'full')) as [Device, Device]
    await desire(second, { big: 'x'.repeat(60_000) })
    const answer = await plant.owner.call('PATCH', `/${plant.domainId}${many}?tag=full`, { more: 'x'.repeat(10_000) })
    expect(answer.status).toBe(413)
    expect(answer.text).toContain(second.id)
    expect(stateOf(await plant.owner.call('GET', pathOf(first))).version).toBe(0)
  })
})

describe('lists of clients', () => {
  const list = async (query: string, call = plant.owner.call) => {
    const page = (await call('GET', `/${plant.domainId}/clients?${query}`)).json<{
      total: number
      clients: { id: string }[]
    }>()
    expect(page.total).toBe(page.clients.length)
    return page.clients.map(({ id }) => id)
  }

  test('are filtered by what is reported, and by what is out of sync', async () => {
    const [first, second, third] = [await plant.newDevice(), await plant.newDevice(), await plant.newDevice()]
    const site = `site-${first.id}`
    await asDevice(first, 'PATCH', { site, net: { ip: '10.0.0.1', up: true } })
    await asDevice(second, 'PATCH', { site, net: { ip: '10.0.0.2', up: true } })
    await asDevice(third, 'PATCH', { site }, `/c/${plant.domainId}/state/named`)
    const query = (reported: unknown) => `limit=100&reported=${encodeURIComponent(JSON.stringify(reported))}`
    expect((await list(query({ site }))).toSorted()).toEqual([first.id, second.id].toSorted())
    expect(await list(query({ site, net: { ip: '10.0.0.2' } }))).toEqual([second.id])
    await desire(first, { net: { up: false } })
    await desire(third, { a: 1 }, 'named')
    for (const { id } of [first, third]) expect(await list(`id=${id}&out_of_sync=true`)).toEqual([id])
    expect(await list(`id=${second.id}&out_of_sync=true`)).toEqual([])
    expect(await list(`${query({ site })}&out_of_sync=false`)).toEqual([second.id])
    for (const wrong of ['x', '[]', '1', 'null', '%7B%22a%22%3A%22%5Cu0000%22%7D'])
      expect((await plant.owner.call('GET', `/${plant.domainId}/clients?reported=${wrong}`)).status).toBe(400)
  })

  test('do not show by a filter what the caller may not read', async () => {
    const device = await plant.newDevice()
    await asDevice(device, 'PATCH', { secretly: device.id })
    const reader = await plant.api.newUser()
    const role = await plant.owner.call('POST', `/domains/${plant.domainId}/roles`, {
      role_name: 'only clients',
      optional_actions: ['read', 'client_read'],
      optional_members: [reader.id],
    })
    expect(role.status).toBe(201)
    const reported = `limit=100&reported=${encodeURIComponent(JSON.stringify({ secretly: device.id }))}`
    expect(await list(`limit=100&id=${device.id}`, reader.call)).toEqual([device.id])
    expect(await list(reported, reader.call)).toEqual([])
    expect(await list('limit=100&out_of_sync=false', reader.call)).toEqual([])
    expect((await reader.call('GET', pathOf(device))).status).toBe(403)
  })
})
