// contract section 6 and task-manager.md section 1: personal access tokens and the task manager
import { expect, test } from 'vitest'
import { FULL_APP_ADMIN, startFullApp } from '../../tools/generate/full-app.ts'
import { createTestDatabase } from '../harness/database.ts'

test('tasks and workers have their own scopes, in the domain that they name', async () => {
  await using database = await createTestDatabase()
  await using full = await startFullApp(database.address)
  const callWith = (token: string | undefined) => async (method: string, url: string, body?: object) => {
    const response = await full.app.inject({
      method: method as 'GET',
      url,
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
      ...(body === undefined ? {} : { payload: body }),
    })
    return { status: response.statusCode, text: response.body, json: () => response.json<Record<string, unknown>>() }
  }
  const logIn = async (identity: string, secret: string) =>
    String((await callWith(undefined)('POST', '/users/tokens/issue', { identity, secret })).json()['access_token'])
  const admin = callWith(await logIn(FULL_APP_ADMIN.SKEIN_ADMIN_USERNAME, FULL_APP_ADMIN.SKEIN_ADMIN_SECRET))
  const registered = await callWith(undefined)('POST', '/users', {
    first_name: 'Grace',
    last_name: 'Hopper',
    email: 'grace@example.com',
    credentials: { username: 'grace', secret: 'secret-of-grace' },
  })
  expect(registered.status, registered.text).toBe(201)
  const owner = callWith(await logIn('grace', 'secret-of-grace'))
  const domainId = String((await owner('POST', '/domains', { name: 'plant' })).json()['id'])
  const robot = async (call: typeof owner, scopes: readonly (readonly [string, string])[], domain = domainId) => {
    const { id, secret } = (await call('POST', '/pats', { name: 'robot', duration: '1h' })).json()
    const added = await call('PATCH', `/pats/${String(id)}/scope/add`, {
      scopes: scopes.map(([entity_type, operation]) => ({
        optional_domain_id: domain,
        entity_type,
        entity_id: '*',
        operation,
      })),
    })
    expect(added.status, added.text).toBe(200)
    return callWith(String(secret))
  }
  const creator = await robot(owner, [['tasks', 'create']])
  const reader = await robot(owner, [['tasks', 'read']])
  const starter = await robot(owner, [['tasks', 'update']])
  const other = await robot(owner, [['clients', 'list']])

  const made = await creator('POST', '/tasks', { name: 'add', inputs: [1, 2], domain_id: domainId })
  expect(made.status, made.text).toBe(201)
  const path = `/tasks/${String(made.json()['id'])}`
  expect((await reader('GET', path)).status).toBe(200)
  expect((await reader('GET', '/tasks')).json()).toMatchObject({ total: 1 })
  expect((await reader('POST', '/tasks', { name: 'add', domain_id: domainId })).status).toBe(403)
  expect((await reader('DELETE', path)).status).toBe(403)
  for (const call of [creator, starter, other]) {
    expect((await call('GET', '/tasks')).status).toBe(403)
    expect((await call('GET', path)).status).toBe(403)
    expect((await call('GET', '/workers')).status).toBe(403)
  }
  // The administrator's token has no access to tasks of a domain of which they are not a member.
  const own = String((await admin('POST', '/domains', { name: 'of the admin' })).json()['id'])
  const adminReader = await robot(admin, [['tasks', 'read']], own)
  expect((await adminReader('GET', '/tasks')).json()).toMatchObject({ total: 0 })
  expect((await adminReader('GET', path)).status).toBe(404)
})
