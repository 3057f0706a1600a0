// contract decision 76: the quota of bytes of modules applies to a module in the body of a new task
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'

const MODULE = readFileSync('examples/add/add.wasm')

/** The same module with a custom section: other bytes. */
function moduleNumber(number: number): string {
  const content = Buffer.from(String(number).padStart(3, '0'))
  return Buffer.concat([MODULE, Buffer.from([0, content.length + 1, content.length]), content]).toString('base64')
}

test('a new task with a module beyond the quota is refused; one with a stored module is not', async () => {
  await using database = await createTestDatabase()
  const bytes = Buffer.from(moduleNumber(1), 'base64').length
  await using full = await startFullApp(database.address, { SKEIN_QUOTA_MODULE_BYTES: String(bytes) })
  const call = async (headers: Record<string, string>, url: string, payload: object) => {
    const response = await full.app.inject({ method: 'POST', url, payload, headers })
    return { status: response.statusCode, body: response.json<Record<string, unknown>>() }
  }
  const { SKEIN_ADMIN_USERNAME: identity, SKEIN_ADMIN_SECRET: secret } = FULL_APP_ADMIN
  const token = String((await call({}, '/users/tokens/issue', { identity, secret })).body['access_token'])
  const post = async (url: string, payload: object) => await call({ authorization: `Bearer ${token}` }, url, payload)
  const { id: domainId } = (await post('/domains', { name: 'plant' })).body
  const create = async (file: string) => await post('/tasks', { name: 'add', domain_id: domainId, file })

  expect(await create(moduleNumber(1))).toMatchObject({ status: 201 })
  expect(await create(moduleNumber(2))).toMatchObject({ status: 422, body: { error: 'quota_exceeded' } })
  // Stored already, for this domain or for another one: it counts once in each domain.
  expect(await create(moduleNumber(1))).toMatchObject({ status: 201 })
  const other = (await post('/domains', { name: 'mill' })).body['id']
  expect(await post('/tasks', { name: 'add', domain_id: other, file: moduleNumber(2) })).toMatchObject({ status: 201 })
  expect(await create(moduleNumber(2))).toMatchObject({ status: 422, body: { error: 'quota_exceeded' } })
})
