/** Integers above 2^53 in what tasks store and run with (contract section 14, decision 89). */
import { afterAll, expect, test } from 'vitest'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { moduleFromText } from '../worker/pool.ts'
import { startSite } from './support.ts'

const SERIAL = '9007199254740993'
const LARGEST = '18446744073709551615'
const JSON_BODY = { 'content-type': 'application/json' }
/** Returns what it is given. */
const SAME = '(module (func (export "run") (param i64) (result i64) local.get 0))'

const { client, manager, close } = await startSite()
afterAll(close)

/** The text of an answer: its digits as they are sent. */
async function send(method: 'GET' | 'POST' | 'PUT', url: string, payload?: string) {
  const { statusCode: status, body: text } = await manager.app.inject({
    method,
    url,
    headers: payload === undefined ? {} : JSON_BODY,
    ...(payload === undefined ? {} : { payload }),
  })
  return { status, text }
}

async function same(inputs: unknown[]): Promise<string> {
  const { body } = await client.post('/tasks', { name: 'same', function: 'run', inputs })
  const id = String(body['id'])
  await client.upload(id, Buffer.from(await moduleFromText(SAME)))
  return id
}

test('metadata keep them in every answer, after another change, and when they are searched', async () => {
  const metadata = `{"serial":${SERIAL},"deep":[${LARGEST},1]}`
  const made = await send('POST', '/tasks', `{"name":"exact","metadata":${metadata}}`)
  expect(made.status, made.text).toBe(201)
  const { id } = JSON.parse(made.text) as { id: string }
  const changed = await send('PUT', `/tasks/${id}`, '{"priority":60}')
  const search = (text: string) => send('GET', `/tasks?metadata=${encodeURIComponent(`{"serial":${text}}`)}`)
  const found = await search(SERIAL)
  for (const { text } of [made, changed, found, await send('GET', `/tasks/${id}`)]) {
    expect(text).toContain(`"serial":${SERIAL}`)
    expect(text).toContain(LARGEST)
  }
  expect(JSON.parse(found.text)).toMatchObject({ total: 1 })
  expect(JSON.parse((await search('9007199254740992')).text)).toMatchObject({ total: 0 })
})

test('inputs, environment and arguments that are texts reach the guest with their digits, and the task answers them', async () => {
  const id = await same([SERIAL])
  expect((await send('GET', `/tasks/${id}`)).text).toContain(`"inputs":["${SERIAL}"]`)
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [SERIAL] })
  const invoked = await client.post(`/tasks/${id}/invoke`, { inputs: ['-9007199254740995'] })
  expect(invoked.body).toMatchObject({ results: ['-9007199254740995'] })
  await client.put(`/tasks/${id}`, { inputs: ['9007199254740997'] })
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: ['9007199254740997'] })
})

test.each([
  ['POST', () => '/tasks', '{"name":"x","inputs":[1,#]}', '/inputs/1'],
  ['POST', () => '/tasks', '{"name":"x","inputs":[{"a":[#]}]}', '/inputs/0/a/0'],
  ['POST', () => '/tasks', '{"name":"x","env":{"A":#}}', '/env/A'],
  ['PUT', (id: string) => `/tasks/${id}`, '{"inputs":[#]}', '/inputs/0'],
  ['POST', (id: string) => `/tasks/${id}/start`, '{"inputs":[#]}', '/inputs/0'],
  ['POST', (id: string) => `/tasks/${id}/invoke`, '{"inputs":[#]}', '/inputs/0'],
  ['POST', (id: string) => `/tasks/${id}/invoke-many`, '{"inputs":[["1"],[#]]}', '/inputs/1/0'],
  ['POST', () => '/workflows', '{"name":"w","tasks":[{"name":"a","inputs":[#]}]}', '/tasks/0/inputs/0'],
  ['POST', () => '/jobs', '{"name":"w","tasks":[{"name":"a","inputs":[#]}]}', '/tasks/0/inputs/0'],
] as const)('%s refuses one where a number would be rounded (%#)', async (method, urlOf, body, path) => {
  const id = await same(['1'])
  const refused = await send(method, urlOf(id), body.replace('#', SERIAL))
  expect(refused.status, refused.text).toBe(400)
  expect(JSON.parse(refused.text)).toMatchObject({ details: [{ path }] })
  expect((parseWithExactIntegers((await send('GET', `/tasks/${id}`)).text) as { inputs: unknown }).inputs).toEqual([
    '1',
  ])
})
