// docs/guides/console.md: one public route says where devices and workers connect
import { expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())

test('the addresses need no login, and are those that the caller reaches', async () => {
  const headers = { host: 'skein.local:8080' }
  const answer = await api.app.inject({ method: 'GET', url: '/connect', headers })
  expect(answer.statusCode).toBe(200)
  // The platform of a test has no listener.
  expect(answer.json()).toEqual({ http: { url: 'http://skein.local:8080' } })
  const strange = await api.app.inject({ method: 'GET', url: '/connect', headers: { host: 'a b"$(id)' } })
  expect([200, 400]).toContain(strange.statusCode)
  expect(strange.body).not.toContain('$(id)')
})

test('a token that is wrong does not matter', async () => {
  expect((await api.as('Bearer wrong')('GET', '/connect')).status).toBe(200)
})
