/** A page is answered even where its exact total is not known in time (contract decision 75). */
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import type { Device } from './support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let device: Device & { channelId: string }
/** Holds the rollups, so that no total of a range of times is counted; the records themselves can be read. */
let blocker: pg.Client

const RECORDS = 20
/** Behind them, on the quarter of an hour. */
const END_SECONDS = 1_700_003_700

beforeAll(async () => {
  device = await plant.newConnectedDevice()
  const response = await plant.api.app.inject({
    method: 'POST',
    url: `/m/${plant.domainId}/c/${device.channelId}`,
    payload: JSON.stringify(Array.from({ length: RECORDS }, (_, index) => ({ n: 'temp', t: 1.7e9 + index, v: index }))),
    headers: { authorization: `Client ${device.secret}`, 'content-type': 'application/senml+json' },
  })
  expect(response.statusCode).toBe(202)
  // A range that cuts the week of arrival is counted from the rollups of quarters.
  const later = JSON.stringify([{ n: 'temp', t: END_SECONDS, v: 0 }])
  const sent = await plant.api.app.inject({
    method: 'POST',
    url: `/m/${plant.domainId}/c/${device.channelId}`,
    payload: later,
    headers: { authorization: `Client ${device.secret}`, 'content-type': 'application/senml+json' },
  })
  expect(sent.statusCode).toBe(202)
  await projectPending(plant.api.database)
  blocker = await plant.api.database.dedicated('test')
  await blocker.query('BEGIN; LOCK TABLE rollups IN ACCESS EXCLUSIVE MODE')
}, 60_000)
afterAll(async () => {
  await blocker.end()
})

type Page = { total: number; total_exact?: boolean; messages: { value: number }[] }

async function read(query: string): Promise<Page> {
  const response = await plant.api.app.inject({
    url: `/m/${plant.domainId}/c/${device.channelId}?to=${END_SECONDS}&${query}`,
    headers: { authorization: `Client ${device.secret}` },
  })
  expect(response.statusCode, response.body).toBe(200)
  return response.json<Page>()
}

test('a total that takes too long is a lower bound, above the records of the page while more follow', async () => {
  const page = await read('limit=5&offset=3')
  expect(page.messages.map(({ value }) => value)).toEqual([16, 15, 14, 13, 12])
  expect(page).toMatchObject({ total: 9, total_exact: false })
})

test('a client that continues while the offset is below the total reads everything', async () => {
  const values: number[] = []
  for (let total = 1; values.length < total;) {
    const page = await read(`limit=7&offset=${values.length}&name=temp`)
    values.push(...page.messages.map(({ value }) => value))
    total = page.total
  }
  expect(values).toEqual(Array.from({ length: RECORDS }, (_, index) => RECORDS - 1 - index))
})

test('a page that is not full gives the exact total', async () => {
  const page = await read('limit=30')
  expect(page.total).toBe(RECORDS)
  expect(page).not.toHaveProperty('total_exact')
})

test('the total alone reports that it is not exact', async () => {
  expect(await read('only_total=true&offset=2')).toEqual({ total: 2, total_exact: false, messages: [] })
})

test('an exact total has no such mark', async () => {
  await blocker.query('ROLLBACK')
  const page = await read('limit=5')
  expect(page.total).toBe(RECORDS)
  expect(page).not.toHaveProperty('total_exact')
  expect(await read('only_total=true')).toEqual({ total: RECORDS, messages: [] })
})
