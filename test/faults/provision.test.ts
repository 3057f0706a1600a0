// One call makes everything that a device needs, or nothing, whenever it is killed (specification section 4 Provision service).
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'

const CALLERS = 8
const ACKNOWLEDGED = 20
/** Each has a key and a certificate of its own. */
const MADE_DEADLINE_MS = 60_000
/** Two, of the default layout. */
const CHANNELS_OF_ONE = 2

type Device = { client_cert?: string; channels?: unknown[] }

test('kill -9 during /mapping leaves each device complete or absent', async () => {
  using installation = await createInstallation({ SKEIN_PROVISION_X509_PROVISIONING: 'true' })
  let whole = await startWhole(installation)
  try {
    const login = { body: { identity: 'admin', secret: 'the-first-admin' } }
    const { access_token: token } = (await whole.call('POST', '/users/tokens/issue', login)).json<{
      access_token: string
    }>()
    const authorization = `Bearer ${token}`
    const domain = { body: { name: 'faults' }, authorization }
    const { id: domainId } = (await whole.call('POST', '/domains', domain)).json<{ id: string }>()

    const map = (id: string) =>
      whole.call('POST', `/${domainId}/mapping`, {
        body: { external_id: id, external_key: `key of ${id}`, name: id },
        authorization,
      })
    const acknowledged = new Set<string>()
    const asked = new Set<string>()
    let isKilled = false
    const calling = Array.from({ length: CALLERS }, async (_, caller) => {
      for (let place = 0; !isKilled; place++) {
        const id = `device-${caller}-${place}`
        asked.add(id)
        // The blow breaks it off.
        const answer = await map(id).catch(() => undefined)
        if (answer?.status === 201) acknowledged.add(id)
        if (answer === undefined) return
      }
    })
    await until(() => acknowledged.size >= ACKNOWLEDGED, 'devices are made', MADE_DEADLINE_MS)
    isKilled = true
    whole.kill('SIGKILL')
    await whole.ended
    await Promise.all(calling)

    whole = await startWhole(installation)
    const total = async (path: string) =>
      (await whole.call('GET', `/${domainId}/${path}?limit=1`, { authorization })).json<{ total: number }>().total
    const fetched = async (id: string) => {
      const answer = await whole.call('GET', `/clients/bootstrap/${id}`, { authorization: `Client key of ${id}` })
      return answer.status === 200 ? answer.json<Device>() : answer.status
    }
    const devices = await Promise.all([...asked].map(async (id) => ({ id, device: await fetched(id) })))
    const present = devices.filter(({ device }) => device !== 404)
    for (const { id, device } of present)
      expect(device, id).toMatchObject({ client_cert: expect.stringContaining('BEGIN CERTIFICATE') as string })
    expect(acknowledged.difference(new Set(present.map(({ id }) => id)))).toEqual(new Set())
    for (const path of ['clients', 'clients/configs', 'certs']) expect(await total(path), path).toBe(present.length)
    expect(await total('channels')).toBe(CHANNELS_OF_ONE * present.length)

    // A caller without a response asks again: created now, or earlier.
    for (const { id, device } of devices.filter((one) => !acknowledged.has(one.id)))
      expect((await map(id)).status, id).toBe(device === 404 ? 201 : 409)
  } finally {
    await whole[Symbol.asyncDispose]()
  }
}, 300_000)
