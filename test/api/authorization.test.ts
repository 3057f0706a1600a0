// contract section 1 "Auth header", decisions 59 and 60; RFC 9110 sections 11.1 and 11.4
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const profile = (authorization: string) => api.anonymous('GET', '/users/profile', undefined, { authorization })

describe('the scheme', () => {
  test.each(['Bearer ', 'bearer ', 'BEARER ', 'Bearer    '])('%j contains a token', async (scheme) => {
    expect((await profile(`${scheme}${tenant.user.accessToken}`)).status).toBe(200)
  })

  test.each(['Bearer', 'Bearerx ', 'Basic ', 'Thing '])('%j contains no token', async (scheme) => {
    expect((await profile(`${scheme}${tenant.user.accessToken}`)).status).toBe(401)
  })

  test.each(['Client ', 'client ', 'CLIENT  ', 'Thing ', 'thing ', 'THING   '])(
    '%j contains the secret of a device',
    async (scheme) => {
      const client = await tenant.newClient()
      const channel = await tenant.newChannel()
      await tenant.connect(client.id, channel.id)
      const headers = { authorization: `${scheme}${client.credentials.secret}` }
      const pack = [{ n: 'temperature', v: 21 }]
      const published = await api.anonymous('POST', `/m/${tenant.domainId}/c/${channel.id}`, pack, headers)
      expect(published.status).toBe(202)
      const identified = await api.anonymous('POST', `/${tenant.domainId}/clients/identify`, undefined, headers)
      expect(identified.json()).toMatchObject({ id: client.id })
    },
  )

  test('contains the id and the secret of a device', async () => {
    const client = await tenant.newClient()
    const channel = await tenant.newChannel()
    await tenant.connect(client.id, channel.id)
    const pair = Buffer.from(`${client.id}:${client.credentials.secret}`).toString('base64')
    for (const scheme of ['Basic', 'basic', 'BASIC ']) {
      const headers = { authorization: `${scheme} ${pair}` }
      const pack = [{ n: 'temperature', v: 21 }]
      expect((await api.anonymous('POST', `/m/${tenant.domainId}/c/${channel.id}`, pack, headers)).status).toBe(202)
    }
  })
})

describe('where no token is required', () => {
  const register = (authorization: string) => {
    const mark = newId().slice(-8)
    const user = {
      first_name: `Jane ${mark}`,
      last_name: `Doe ${mark}`,
      email: `jane-${mark}@example.com`,
      credentials: { username: `jane-${mark}`, secret: 'a-long-password' },
    }
    return api.anonymous('POST', '/users', user, { authorization })
  }

  test.each(['Bearer undefined', 'Bearer null', 'Bearer ', 'bearer', 'Bearer eyJh.b.c'])(
    '%j is treated as absent',
    async (authorization) => {
      expect((await register(authorization)).status).toBe(201)
    },
  )

  test('a token is verified', async () => {
    const [header, claims] = tenant.user.accessToken.split('.')
    expect((await register(`Bearer ${tenant.user.accessToken}`)).json()).toMatchObject({ owner: tenant.user.id })
    expect((await register(`Bearer ${header}.${claims}.AAAA`)).status).toBe(401)
    expect((await register('Bearer pat_unknown')).status).toBe(401)
    expect((await register('Basic YTpi')).status).toBe(401)
  })
})
