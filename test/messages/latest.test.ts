/** The newest record of every series in one call (contract decision 54). */
import { expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import { replaceExpiredLatest } from '../../api/messages/projections/replace-latest.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())

type Page = { total: number; messages: { name: string; value?: number; string_value?: string; protocol: string }[] }

async function aChannel() {
  const device = await plant.newConnectedDevice()
  const asDevice = plant.api.as(`Client ${device.secret}`)
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  return {
    device,
    async send(pack: unknown, subtopic = '') {
      const sent = await asDevice('POST', `${path}${subtopic}`, JSON.stringify(pack), {
        'content-type': 'application/senml+json',
      })
      expect(sent.status, sent.text).toBe(202)
    },
    latest: async (query = '') => {
      const page = (await asDevice('GET', `${path}/latest${query}`)).json<Page>()
      const shown = page.messages.map(({ name, value, string_value: text }) => [name, value ?? text] as const)
      return { total: page.total, shown: shown.toSorted(([left], [right]) => left.localeCompare(right)) }
    },
    path,
    asDevice,
  }
}

test('the newest record of every series is returned, of any kind and age', async () => {
  const { send, latest } = await aChannel()
  await send([
    { n: 'a', t: 1_700_000_010, v: 1 },
    { n: 'b', t: 1_700_000_010, vs: 'on' },
  ])
  await send([{ n: 'a', t: 1_700_000_005, v: 2 }])
  expect(await latest()).toEqual({
    total: 2,
    shown: [
      ['a', 1],
      ['b', 'on'],
    ],
  })
  await projectPending(plant.api.database)
  await send([{ n: 'a', t: 1_700_000_020, v: 3 }])
  await send([{ n: 'c', t: 1_700_000_000, v: 4 }])
  expect(await latest()).toEqual({
    total: 3,
    shown: [
      ['a', 3],
      ['b', 'on'],
      ['c', 4],
    ],
  })
  const pages = await Promise.all([0, 1, 2].map((offset) => latest(`?limit=1&offset=${offset}`)))
  expect(pages.flatMap(({ shown }) => shown.map(([name]) => name)).toSorted()).toEqual(['a', 'b', 'c'])
})

test('the result is filtered by name, subtopic, publisher and the protocol of the newest record', async () => {
  const { send, latest, device } = await aChannel()
  await send([{ n: 'a', v: 1 }])
  await send([{ n: 'a', v: 2 }], '/x/y')
  expect((await latest('?name=a')).total).toBe(2)
  expect((await latest('?name=z')).total).toBe(0)
  expect((await latest('?subtopic=x.y')).shown).toEqual([['a', 2]])
  expect((await latest(`?publisher=${device.id}`)).total).toBe(2)
  expect((await latest(`?publisher=${device.channelId}`)).total).toBe(0)
  expect((await latest('?protocol=http')).total).toBe(2)
  expect((await latest('?protocol=mqtt')).total).toBe(0)
})

test('the paths, credentials and errors are those of reading', async () => {
  const { send, device, path, asDevice } = await aChannel()
  await send([{ n: 'a', v: 1 }])
  for (const url of [
    `${path}/latest`,
    `/${plant.domainId}/channels/${device.channelId}/messages/latest`,
    `/channels/${device.channelId}/messages/latest`,
  ]) {
    expect((await asDevice('GET', url)).json<Page>().total, url).toBe(1)
    expect((await plant.owner.call('GET', url)).json<Page>().total, url).toBe(1)
    expect((await plant.api.anonymous('GET', url)).status, url).toBe(401)
  }
  expect((await asDevice('GET', `${path}/latest?limit=1001`)).status).toBe(400)
  const other = await plant.newConnectedDevice()
  expect((await plant.api.as(`Client ${other.secret}`)('GET', `${path}/latest`)).status).toBe(403)
})

test('a record that is removed with its partition is replaced by the newest remaining one', async () => {
  const { send, latest } = await aChannel()
  await send([{ n: 'a', t: 1_700_000_000, v: 1 }])
  await send([{ n: 'a', t: 1_700_000_900, v: 2 }])
  await send([{ n: 'b', t: 1_700_000_900, v: 3 }])
  await projectPending(plant.api.database)
  const { pool } = plant.api.database
  await pool.query(`SELECT create_message_partitions(now() - interval '61 days', now() - interval '59 days')`)
  const old = `UPDATE records SET retention_days = 7, arrived_at = arrived_at - interval '60 days' WHERE "values"[1] IN (2, 3)`
  await pool.query(old)
  await pool.query(`UPDATE rollups SET retention_days = 7, arrived_on = date_trunc('week', now() - interval '60 days', 'UTC')
    WHERE bucket = date_bin('15 minutes', to_timestamp(1700000900), 'epoch') AND series_key > 0`)
  await pool.query(
    `UPDATE latest_records SET retention_days = 7, arrived_at = arrived_at - interval '60 days' WHERE value IN (2, 3)`,
  )
  await replaceExpiredLatest(plant.api.database)
  expect(await latest()).toEqual({ total: 1, shown: [['a', 1]] })
})
