/** Messages that lack a publisher or a subtopic: contract decision 86. */
import { beforeAll, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import type { Device } from './support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let device: Device & { channelId: string }

const START = 1_700_000_000
/** `<publisher> <subtopic>` of the four messages of each format, whose values are 0 to 3. */
const MESSAGES = [
  { isOfUser: false, subtopic: '' },
  { isOfUser: false, subtopic: '/hall' },
  { isOfUser: true, subtopic: '' },
  { isOfUser: true, subtopic: '/hall' },
]

beforeAll(async () => {
  device = await plant.newConnectedDevice()
  for (const [value, { isOfUser, subtopic }] of MESSAGES.entries()) {
    const headers = { authorization: isOfUser ? `Bearer ${plant.owner.accessToken}` : `Client ${device.secret}` }
    const records = JSON.stringify([{ n: 'temp', u: 'Cel', t: START + value, v: value }])
    for (const [type, payload] of [
      ['application/senml+json', records],
      ['text/plain', String(value)],
    ] as const) {
      const url = `/m/${plant.domainId}/c/${device.channelId}${subtopic}`
      const answer = await plant.api.app.inject({
        method: 'POST',
        url,
        payload,
        headers: { ...headers, 'content-type': type },
      })
      if (answer.statusCode !== 202) throw new Error(answer.body)
    }
  }
}, 60_000)

type Page = { total: number; messages: { value?: number; payload?: string; values?: { count: number } }[] }

async function get(query: string, { path = '', accept = 'application/json' } = {}) {
  return await plant.api.app.inject({
    url: `/m/${plant.domainId}/c/${device.channelId}${path}?${query}`,
    headers: { authorization: `Client ${device.secret}`, accept },
  })
}

const page = async (query: string, path = '') => (await get(query, { path })).json<Page>()

const SELECTIONS = [
  ['publisher', [2, 3]],
  ['subtopic', [0, 2]],
  ['publisher,subtopic', [2]],
  ['subtopic,publisher', [2]],
  ['', [0, 1, 2, 3]],
] as const

test.each(SELECTIONS)(
  'without=%s selects %j in pages, totals, aggregations, newest records and exports',
  async (without, found) => {
    const query = `without=${without}&dir=asc`
    const values = (answer: Page) => answer.messages.map(({ value }) => value)
    expect(await page(query)).toMatchObject({ total: found.length, ...(without === '' ? {} : { without }) })
    expect(values(await page(query))).toEqual(found)
    expect(await page(`${query}&only_total=true`)).toMatchObject({ total: found.length, messages: [] })
    expect(values(await page(`${query}&order=value`))).toEqual(found)
    const range = `from=${START}&to=${START + 3600}`
    expect(
      values(await page(`${query}&${range}&aggregation=max&interval=1h`)).toSorted((one = 0, other = 0) => one - other),
    ).toEqual(found)
    expect(values(await page(`without=${without}`, '/latest')).toSorted((one = 0, other = 0) => one - other)).toEqual(
      found,
    )
    const raw = await page(`${query}&format=raw`)
    expect(raw.messages.map(({ payload = '' }) => Number(Buffer.from(payload, 'base64')))).toEqual(found)
    const lines = (await get(query, { accept: 'application/x-ndjson' })).body.trimEnd().split('\n')
    expect(lines.map((line) => (JSON.parse(line) as { value: number }).value)).toEqual(found)
  },
)

test('it narrows together with the other filters, and an empty filter of the same name is absent', async () => {
  expect((await page('without=publisher&subtopic=hall&dir=asc')).messages.map(({ value }) => value)).toEqual([3])
  expect((await page(`without=subtopic&publisher=${device.id}`)).messages.map(({ value }) => value)).toEqual([0])
  expect(await page('without=publisher&publisher=&subtopic=')).toMatchObject({ total: 2 })
})

test.each(['', '/latest', '/live'])('other names, and the filter of the same name, are refused at %s', async (path) => {
  for (const query of ['without=unit', 'without=publisher,', 'without=subtopic&subtopic=hall'])
    expect(await get(query, { path })).toMatchObject({ statusCode: 400 })
  if (path !== '/live')
    expect((await get(`without=publisher&publisher=${device.id}`, { path })).json()).toMatchObject({
      error: 'malformed',
      message: 'without must not contain publisher together with the filter publisher',
    })
})
