/** The newest value of each of several clients, as a list of clients shows it. */
import { describe, expect, test } from 'vitest'
import { projectPending } from '../../api/messages/projections/project.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

type Value = {
  client_id: string
  channel_id: string
  name: string
  value?: number
  string_value?: string
  data_bytes?: number
}

const plant = useWorld(() => startPlant())

const send = async (device: { secret: string }, channelId: string, pack: unknown) => {
  const sent = await plant.api.as(`Client ${device.secret}`)(
    'POST',
    `/m/${plant.domainId}/c/${channelId}`,
    JSON.stringify(pack),
    { 'content-type': 'application/senml+json' },
  )
  expect(sent.status, sent.text).toBe(202)
}
const newest = async (ids: readonly string[], user = plant.owner) => {
  const answer = await user.call('GET', `/${plant.domainId}/latest?client_id=${ids.join(',')}`)
  expect(answer.status, answer.text).toBe(200)
  return answer.json<{ values: Value[] }>().values
}

describe('the newest values of clients', () => {
  test('are one of each client, over all its channels, in the order of the ids; others are absent', async () => {
    const [first, second, silent] = await Promise.all([1, 2, 3].map(() => plant.newConnectedDevice()))
    if (first === undefined || second === undefined || silent === undefined) throw new Error('no devices')
    await send(first, first.channelId, [
      { n: 'temperature', u: 'Cel', t: 1_700_000_020, v: 21.5 },
      { n: 'humidity', t: 1_700_000_010, v: 40 },
    ])
    await send(second, second.channelId, [{ n: 'mode', t: 1_700_000_000, vs: 'x'.repeat(1_000) }])
    await projectPending(plant.api.database)
    const found = await newest([second.id, silent.id, first.id, 'nobody', first.id])
    expect(found).toEqual([
      {
        client_id: second.id,
        channel_id: second.channelId,
        name: 'mode',
        time: 1_700_000_000,
        string_value: 'x'.repeat(256),
      },
      {
        client_id: first.id,
        channel_id: first.channelId,
        name: 'temperature',
        unit: 'Cel',
        time: 1_700_000_020,
        value: 21.5,
      },
    ])
    await send(second, second.channelId, [{ n: 'image', t: 1_700_000_030, vd: 'AAEC' }])
    await projectPending(plant.api.database)
    expect(await newest([second.id])).toMatchObject([{ name: 'image', data_bytes: 3 }])
  })

  test('of channels that the caller may not read are absent', async () => {
    const device = await plant.newConnectedDevice()
    await send(device, device.channelId, [{ n: 'a', v: 1 }])
    await projectPending(plant.api.database)
    expect(await newest([device.id])).toHaveLength(1)
    const member = await plant.api.newUser()
    const role = {
      role_name: `Clients ${device.id}`,
      optional_actions: ['read', 'client_read'],
      optional_members: [member.id],
    }
    const made = await plant.owner.call('POST', `/domains/${plant.domainId}/roles`, role)
    expect(made.status, made.text).toBe(201)
    expect(await newest([device.id], member)).toEqual([])
    const foreigner = await plant.api.newUser()
    const refused = await foreigner.call('GET', `/${plant.domainId}/latest?client_id=${device.id}`)
    expect(refused.status).toBe(403)
  })

  test('are refused without ids and for more than 100', async () => {
    const of = async (query: string) => await plant.owner.call('GET', `/${plant.domainId}/latest${query}`)
    expect((await of('')).status).toBe(400)
    const many = Array.from({ length: 101 }, (_none, at) => `c${at}`)
    expect((await of(`?client_id=${many.join(',')}`)).json()).toMatchObject({
      message: 'client_id must contain at most 100 ids',
      details: [{ path: 'client_id' }],
    })
    expect((await of(`?client_id=${many.slice(1).join(',')}`)).json()).toEqual({ values: [] })
  })
})
