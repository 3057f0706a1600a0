/** GET /domains/{id}/usage (contract decision 54), and what the folder counts of clients. */
import { expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())

test('messages and records are counted per day and in total, and visible to members of the domain only', async () => {
  const device = await plant.newConnectedDevice()
  const asDevice = plant.api.as(`Client ${device.secret}`)
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  const url = `/domains/${plant.domainId}/usage`
  expect((await plant.owner.call('GET', url)).json()).toEqual({
    domain_id: plant.domainId,
    messages: 0,
    records: 0,
    days: [],
    quotas: expect.objectContaining({
      clients: { limit: null, used: 1 },
      channels: { limit: null, used: 1 },
      groups: { limit: null, used: 0 },
    }),
  })
  // Records of several quarters of an hour are several rows, and one message.
  const records = Array.from({ length: 100 }, (_, place) => ({ n: 'a', t: 1_700_000_000 + place * 100, v: place }))
  for (const [body, type] of [
    [JSON.stringify(records), 'application/senml+json'],
    ['[{"x":1},{"x":2}]', 'application/json'],
    ['text', 'text/plain'],
  ] as const)
    expect((await asDevice('POST', path, body, { 'content-type': type })).status).toBe(202)
  await projectPending(plant.api.database)
  const counted = (await plant.owner.call('GET', url)).json<{ messages: number; records: number; days: unknown[] }>()
  expect(counted).toMatchObject({ messages: 3, records: 103 })
  expect(counted.days.length).toBeLessThanOrEqual(2)
  const { rows } = await plant.api.database.pool.query(
    'SELECT inbound_messages, first_seen <= last_seen AS is_ordered FROM client_telemetry',
  )
  expect(rows).toEqual([{ inbound_messages: 3, is_ordered: true }])
  expect((await plant.api.anonymous('GET', url)).status).toBe(401)
  const stranger = await plant.api.newUser()
  expect((await stranger.call('GET', url)).status).toBe(403)
})
