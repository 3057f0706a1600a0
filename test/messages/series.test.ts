/** Aggregates of several series in columns (contract section 8, decisions 18 and 116). */
import { gunzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import { startPlant } from './support.ts'
import type { Device } from './support.ts'

const plant = useWorld(() => startPlant())

type Answer = {
  total: number
  next?: string
  times: number[]
  series: {
    publisher: string
    subtopic?: string
    name: string
    unit?: string
    records: number
    values: Record<string, (number | null)[]>
  }[]
}

const START = 1_700_000_100

async function aChannel() {
  const device = await plant.newConnectedDevice()
  const { channelId } = device
  const path = `/m/${plant.domainId}/c/${channelId}`
  return {
    device,
    channelId,
    path,
    async send(pack: unknown, { secret, subtopic = '' }: { secret?: string; subtopic?: string } = {}) {
      const sent = await plant.api.as(`Client ${secret ?? device.secret}`)(
        'POST',
        `${path}${subtopic}`,
        JSON.stringify(pack),
        { 'content-type': 'application/senml+json' },
      )
      expect(sent.status, sent.text).toBe(202)
    },
    read: async (query: string) => {
      const answer = await plant.api.as(`Client ${device.secret}`)('GET', `${path}/series?${query}`)
      return { status: answer.status, text: answer.text, ...answer.json<Answer>() }
    },
  }
}

const records = (name: string, values: readonly number[], stepSeconds = 60) =>
  values.map((v, at) => ({ n: name, u: 'Cel', t: START + at * stepSeconds, v }))

test('the series of a range share their times, and null stands where one has no value', async () => {
  const { send, read, device, channelId } = await aChannel()
  const other: Device = await plant.newDevice()
  await plant.connect(other, channelId)
  await send(records('t', [1, 2, 3, 4]))
  await send(records('t', [10, 20], 120), { secret: other.secret, subtopic: '/hall' })
  await send([{ n: 'word', t: START, vs: 'on' }])
  const whole = `from=${START}&to=${START + 600}`
  for (const isProjected of [false, true]) {
    if (isProjected) await projectPending(plant.api.database)
    const { status, total, times, series } = await read(`${whole}&interval=1m`)
    expect(status).toBe(200)
    expect(total).toBe(2)
    expect(times).toEqual([0, 60, 120, 180].map((after) => START + after))
    expect(series).toEqual([
      {
        publisher: device.id,
        name: 't',
        unit: 'Cel',
        records: 4,
        values: { avg: [1, 2, 3, 4], min: [1, 2, 3, 4], max: [1, 2, 3, 4], count: [1, 1, 1, 1] },
      },
      {
        publisher: other.id,
        subtopic: 'hall',
        name: 't',
        unit: 'Cel',
        records: 2,
        values: {
          avg: [10, null, 20, null],
          min: [10, null, 20, null],
          max: [10, null, 20, null],
          count: [1, null, 1, null],
        },
      },
    ])
    const coarse = await read(`${whole}&interval=5m&aggregation=sum`)
    expect(coarse.times).toEqual([START])
    expect(coarse.series.map(({ values }) => values)).toEqual([{ sum: [10] }, { sum: [30] }])
  }
})

test('the filters and pages are those of reading, and the total counts the series with numeric values', async () => {
  const { send, read, device } = await aChannel()
  await send(records('a', [1]))
  await send(records('b', [2]))
  await send(records('c', [3]), { subtopic: '/x' })
  const range = `from=${START - 60}&to=${START + 60}&interval=1m`
  const names = async (query: string) => (await read(`${range}${query}`)).series.map(({ name }) => name)
  expect(await names('')).toEqual(['a', 'b', 'c'])
  expect(await names('&name=a,c')).toEqual(['a', 'c'])
  expect(await names('&subtopic=x')).toEqual(['c'])
  expect(await names('&without=subtopic')).toEqual(['a', 'b'])
  expect(await names(`&publisher=${device.id}`)).toEqual(['a', 'b', 'c'])
  expect(await names(`&publisher=${device.channelId}`)).toEqual([])
  expect(await names('&protocol=mqtt')).toEqual([])
  expect((await read(`${range}&limit=2&offset=1`)).series.map(({ name }) => name)).toEqual(['b', 'c'])
  expect((await read(`${range}&limit=1&offset=7`)).total).toBe(3)
  const first = await read(`${range}&limit=2`)
  expect(first.series.map(({ name }) => name)).toEqual(['a', 'b'])
  expect(await names(`&limit=2&cursor=${first.next}`)).toEqual(['c'])
  expect((await read(`${range}&limit=2&cursor=${first.next}`)).next).toBeUndefined()
  expect((await read(`from=${START + 60}&to=${START + 120}`)).total).toBe(0)
})

test('a whole day of quarters is that of the records, from rollups and from pending records', async () => {
  const { send, read } = await aChannel()
  await send(records('t', [1, 5, 9, 13], 900))
  await projectPending(plant.api.database)
  await send([{ n: 't', u: 'Cel', t: START + 1, v: 7 }])
  const begin = Math.floor(START / 900) * 900
  const { times, series } = await read(`from=${begin}&to=${begin + 86_400}&interval=15m`)
  expect(times).toEqual([0, 900, 1_800, 2_700].map((after) => begin + after))
  expect(series[0]?.values).toEqual({
    avg: [4, 5, 9, 13],
    min: [1, 5, 9, 13],
    max: [7, 5, 9, 13],
    count: [2, 1, 1, 1],
  })
})

test('days of a time zone begin at its midnight', async () => {
  const { send, read } = await aChannel()
  await send(records('t', [1]))
  const { times } = await read(`from=${START - 86_400}&to=${START + 86_400}&interval=24h&tz=Europe/Belgrade`)
  expect(times.map((time) => new Date(time * 1_000).toISOString())).toEqual(['2023-11-13T23:00:00.000Z'])
})

test('a range of too many intervals, for all series together too, is refused with what is accepted', async () => {
  const { read } = await aChannel()
  const refused = await read(`from=${START}&to=${START + 2_000}&interval=1s`)
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('at most 1000 intervals')
  const wide = await read(`from=${START}&to=${START + 1_000}&interval=1s&limit=51`)
  expect(wide.status).toBe(400)
  expect(wide.text).toContain('must be at most 50 for 1000 intervals')
  expect((await read(`from=${START}&to=${START + 1_000}&interval=1s&limit=50`)).status).toBe(200)
  expect((await read(`to=${START}`)).status).toBe(400)
  expect((await read(`from=${START}&to=${START + 60}&aggregation=median`)).status).toBe(400)
})

test('the paths, credentials and errors are those of reading', async () => {
  const { send, device, path } = await aChannel()
  await send(records('t', [1]))
  const range = `from=${START}&to=${START + 60}&interval=1m`
  for (const base of [
    path,
    `/${plant.domainId}/channels/${device.channelId}/messages`,
    `/channels/${device.channelId}/messages`,
  ]) {
    const url = `${base}/series?${range}`
    expect((await plant.owner.call('GET', url)).json<Answer>().total, url).toBe(1)
    expect((await plant.api.anonymous('GET', url)).status, url).toBe(401)
  }
  const other = await plant.newConnectedDevice()
  expect((await plant.api.as(`Client ${other.secret}`)('GET', `${path}/series?${range}`)).status).toBe(403)
})

test('a large answer is compressed for callers that accept gzip, and for no others', async () => {
  const { send, path, device } = await aChannel()
  await send(
    records(
      't',
      Array.from({ length: 200 }, (_none, at) => at + 0.25),
    ),
  )
  const url = `${path}/series?from=${START}&to=${START + 12_000}&interval=1m`
  const asked = async (encoding: string | undefined) =>
    await plant.api.app.inject({
      url,
      headers: {
        authorization: `Client ${device.secret}`,
        ...(encoding === undefined ? {} : { 'accept-encoding': encoding }),
      },
    })
  const plain = await asked(undefined)
  expect(plain.headers['content-encoding']).toBeUndefined()
  expect(plain.headers['vary']).toContain('Accept-Encoding')
  const small = await asked('br;q=0.5, gzip')
  expect(small.headers['content-encoding']).toBe('gzip')
  expect(gunzipSync(small.rawPayload).toString()).toBe(plain.body)
  expect(small.rawPayload.length).toBeLessThan(plain.rawPayload.length / 2)
  expect((await asked('gzip;q=0')).headers['content-encoding']).toBeUndefined()
})
