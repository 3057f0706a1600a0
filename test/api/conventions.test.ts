// contract section 0 "Conventions", section 11 "Health and metrics", section 12 "Errors"; decisions 42 to 45, 49
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Person, Requests } from './shapes/requests.ts'
import { A_STRING, A_TIME, UNKNOWN_ID, page, startRequests } from './shapes/requests.ts'

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

const JSON_TYPE = { 'content-type': expect.stringMatching(/^application\/json/) }

describe('0 conventions', () => {
  test('authorization is a token with the scheme Bearer', async () => {
    for (const authorization of ['', 'Bearer', `Token ${ann.token}`, ann.token])
      await requests.nobody('GET /domains -> 401', {
        with: { authorization },
        gives: { error: 'unauthenticated' },
        headers: JSON_TYPE,
      })
  })

  test('JSON bodies have the type application/json with parameters, else 415; unneeded bodies any type (decision 42)', async () => {
    const json = '{"name":"one"}'
    await ann(`POST /${d}/clients -> 201`, { sends: json, with: { 'content-type': 'application/json; charset=utf-8' } })
    for (const type of ['text/plain', 'application/xml'])
      await ann(`POST /${d}/clients -> 415`, { sends: json, with: { 'content-type': type } })
    const { id } = await ann(`POST /${d}/clients -> 201`, { sends: {} })
    await ann(`POST /${d}/clients/${id}/disable -> 200`, { with: { 'content-type': 'application/json' } })
    await ann(`POST /${d}/clients/${id}/disable -> 403`, { with: { origin: 'https://elsewhere.example' } })
  })

  test('unknown fields of a body and of a query are ignored (decision 43)', async () => {
    await ann(`POST /${d}/clients -> 201`, { sends: { name: 'extra', colour: 'red' } })
    await ann(`GET /${d}/clients?name=extra&colour=red -> 200`, { gives: { total: 1 } })
  })

  test('pages have limit, offset, total and the array, also when empty', async () => {
    for (const type of ['clients', 'channels', 'groups']) {
      await ann(`GET /${d}/${type}?name=none -> 200`, { gives: page(type, []), headers: JSON_TYPE })
      for (const query of [
        'limit=0',
        'limit=101',
        'limit=1&limit=1',
        'offset=-1',
        'offset=x',
        'status=freezed',
        'metadata={',
      ])
        await ann(`GET /${d}/${type}?${query} -> 400`, { gives: { error: 'malformed' } })
    }
  })

  test('X-Request-Id is accepted', async () => {
    await ann('GET /domains -> 200', { with: { 'x-request-id': 'mine-1' }, headers: { 'x-request-id': 'mine-1' } })
  })
})

describe('11 health and metrics', () => {
  test('GET and HEAD /ready', async () => {
    const ready = { status: 'ready', since: A_TIME }
    await requests.nobody('GET /ready -> 200', {
      gives: { status: 'ready', checks: { program: ready, disk: ready, database: ready, changelog: ready } },
    })
    await requests.nobody('HEAD /ready -> 200')
    await requests.nobody('POST /ready -> 405')
  })

  test('GET and HEAD /health', async () => {
    await requests.nobody('GET /health -> 200', {
      gives: {
        status: 'pass',
        version: A_STRING,
        commit: A_STRING,
        description: A_STRING,
        build_time: A_STRING,
        instance_id: A_STRING,
      },
      headers: JSON_TYPE,
    })
    await requests.nobody('GET /health -> 200', {
      with: { accept: 'application/health+json' },
      headers: { 'content-type': expect.stringMatching(/^application\/health\+json/) },
    })
    await requests.nobody('HEAD /health -> 200', { gives: '' })
    await requests.nobody('POST /health -> 405', { headers: { allow: expect.stringContaining('GET') } })
  })

  test('GET /metrics', async () => {
    const text = await requests.nobody<string>('GET /metrics -> 200', {
      headers: { 'content-type': expect.stringMatching(/^text\/plain/) },
    })
    expect(text).toContain('skein_requests_total')
  })
})

describe('12 errors', () => {
  test('each class', async () => {
    await ann(`POST /${d}/clients -> 400`, {
      sends: { id: 'x' },
      gives: { error: 'malformed', details: [{ path: A_STRING, message: A_STRING }] },
    })
    await ann(`POST /${d}/clients -> 400`, { sends: '{', gives: { error: 'malformed' } })
    await requests.nobody(`GET /${d}/clients -> 401`, { gives: { error: 'unauthenticated' }, headers: JSON_TYPE })
    await bob(`GET /${d}/clients -> 403`, { gives: { error: 'forbidden' } })
    await ann(`GET /${d}/clients/${UNKNOWN_ID} -> 404`, { gives: { error: 'not_found' } })
    const { id } = await ann(`POST /${d}/clients -> 201`, { sends: {} })
    await ann(`POST /${d}/clients -> 409`, { sends: { id }, gives: { error: 'conflict' } })
    await ann(`POST /domains -> 413`, { sends: { name: 'x'.repeat(2 ** 20) }, gives: { error: 'too_large' } })
    await ann(`POST /${d}/clients -> 415`, {
      sends: 'x',
      with: { 'content-type': 'text/plain' },
      gives: { error: 'unsupported_media_type' },
    })
    await ann(`POST /${d}/groups -> 422`, {
      sends: { name: 'x', parent_id: UNKNOWN_ID },
      gives: { error: 'unprocessable' },
    })
    await ann('GET /no/such/path/at/all -> 404', { gives: { error: 'not_found' } })
    await ann(`PATCH /${d}/clients -> 405`, {
      sends: {},
      gives: { error: 'method_not_allowed' },
      headers: { allow: expect.stringContaining('POST') },
    })
  })

  test('the order of checks (decision 45): 401, 415, 400, 403, 404, 409', async () => {
    const wrong = { sends: '{', with: { 'content-type': 'text/plain' } }
    await requests.nobody(`POST /${d}/clients -> 401`, wrong)
    await bob(`POST /${d}/clients -> 415`, wrong)
    await bob(`POST /${d}/clients -> 400`, { sends: { id: 'x' } })
    await bob(`POST /${d}/clients -> 403`, { sends: {} })
    await bob(`GET /${d}/clients/${UNKNOWN_ID} -> 403`)
  })

  test('a foreign id and an unknown id get the same response', async () => {
    const { id: other } = await bob('POST /domains -> 201', { sends: { name: 'other' } })
    for (const type of ['clients', 'channels', 'groups']) {
      const { id } = await bob(`POST /${other}/${type} -> 201`, { sends: { name: 'theirs' } })
      for (const base of ['', `/${d}`]) {
        const foreign = await ann<object>(`GET ${base}/${type}/${id} -> 404`)
        expect(await ann(`GET ${base}/${type}/${UNKNOWN_ID} -> 404`)).toEqual(foreign)
      }
    }
    const foreign = await ann<object>(`GET /domains/${other} -> 403`)
    expect(await ann(`GET /domains/${UNKNOWN_ID} -> 403`)).toEqual(foreign)
  })

  test('Location is exposed to browsers (decision 49)', async () => {
    await ann(`POST /${d}/clients -> 201`, {
      sends: {},
      headers: { 'access-control-expose-headers': expect.stringContaining('Location') },
    })
  })
})
