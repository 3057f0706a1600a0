/** `retention_days` of channel and domain (contract decision 54): in force for what comes next, on every path at once. */
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())

test('a message is kept as its channel or else its domain says, as soon as it is set; stored messages are unchanged', async () => {
  const device = await plant.newConnectedDevice()
  const asDevice = plant.api.as(`Client ${device.secret}`)
  let sent = 0
  /** The retention class in which a message published now is stored. */
  const classNow = async () => {
    const value = ++sent
    const path = `/m/${plant.domainId}/c/${device.channelId}`
    const headers = { 'content-type': 'application/senml+json' }
    expect((await asDevice('POST', path, JSON.stringify([{ n: 'a', v: value }]), headers)).status).toBe(202)
    const { rows } = await plant.api.database.pool.query<{ retention_days: number }>(
      'SELECT retention_days FROM records WHERE "values"[1] = $1',
      [value],
    )
    return rows[0]?.retention_days
  }
  const set = async (url: string, days: number | null) =>
    expect((await plant.owner.call('PATCH', url, { retention_days: days })).status).toBe(200)
  const channel = `/${plant.domainId}/channels/${device.channelId}`
  const becomes = (days: number) => until(async () => (await classNow()) === days, `class ${days}`)

  expect(await classNow()).toBe(0)
  await set(`/domains/${plant.domainId}`, 20)
  await becomes(30)
  await set(channel, 3)
  await becomes(7)
  await set(channel, null)
  await becomes(30)
  await set(`/domains/${plant.domainId}`, null)
  await becomes(0)
  const { rows } = await plant.api.database.pool.query(
    'SELECT array_agg(DISTINCT retention_days ORDER BY retention_days) AS classes FROM records',
  )
  expect(rows).toEqual([{ classes: [0, 7, 30] }])
})
