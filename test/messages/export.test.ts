/** Exports: the reading paths stream everything that matches as CSV (RFC 4180) or JSON lines. */
import { expect, test } from 'vitest'
import { projectPending } from '../../api/messages/projections/project.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())

const CSV = { accept: 'text/csv' }
const LINES = { accept: 'application/x-ndjson' }

async function aChannel() {
  const device = await plant.newConnectedDevice()
  const asDevice = plant.api.as(`Client ${device.secret}`)
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  const send = async (body: unknown, type = 'application/senml+json', subtopic = '') => {
    const sent = await asDevice('POST', `${path}${subtopic}`, typeof body === 'string' ? body : JSON.stringify(body), {
      'content-type': type,
    })
    expect(sent.status, sent.text).toBe(202)
  }
  return { device, asDevice, path, send }
}

const parsed = (text: string): unknown[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))

test('JSON lines contain what all pages contain, in their order, in both directions and with every filter', async () => {
  const { asDevice, path, send } = await aChannel()
  for (let hour = 0; hour < 6; hour++) {
    const records = Array.from({ length: 150 }, (_, place) => ({
      n: `n${place % 3}`,
      t: 1_700_000_000 + hour * 3000 + (place % 40) * 50,
      ...(place % 7 === 0 ? { vs: `text ${place}` } : { v: place / 8 }),
    }))
    await send(records)
    if (hour === 3) await projectPending(plant.api.database)
  }
  for (const query of [
    '?',
    '?dir=asc',
    '?name=n1',
    '?from=1700003000&to=1700009100.5',
    '?v=3&comparator=gt',
    '?name=z',
  ]) {
    const page = await asDevice('GET', `${path}${query}&limit=1000`)
    const lines = await asDevice('GET', `${path}${query}&limit=5&offset=7`, undefined, LINES)
    expect(lines.status).toBe(200)
    expect(lines.headers['content-type']).toContain('application/x-ndjson')
    const { messages, total } = page.json<{ messages: unknown[]; total: number }>()
    expect(total, query).toBe(messages.length)
    expect(parsed(lines.text), query).toEqual(messages)
  }
})

test('CSV has a header, the quotes of RFC 4180, and no cell that a spreadsheet would evaluate', async () => {
  const { asDevice, path, send, device } = await aChannel()
  await send([
    { n: 'a', u: 'Cel', t: 1_700_000_000, v: -1.5 },
    { n: 'b', t: 1_700_000_001, vs: 'says "no", twice\r\nand more' },
    { n: 'c', t: 1_700_000_002, vs: '=1+1' },
    { n: 'd', t: 1_700_000_003.25, vb: true },
  ])
  const { text, headers } = await asDevice('GET', `${path}?dir=asc`, undefined, CSV)
  expect(headers['content-type']).toContain('text/csv')
  const common = `${device.channelId},,${device.id},http`
  expect(text).toBe(
    [
      'channel,subtopic,publisher,protocol,name,unit,time,value,string_value,bool_value,data_value,sum,update_time',
      `${common},a,Cel,1700000000,-1.5,,,,,`,
      `${common},b,,1700000001,,"says ""no"", twice\r\nand more",,,,`,
      `${common},c,,1700000002,,'=1+1,,,,`,
      `${common},d,,1700000003.25,,,true,,,`,
      '',
    ].join('\r\n'),
  )
})

test('JSON and raw messages are exported too', async () => {
  const { asDevice, path, send } = await aChannel()
  await send('{"door":"open","count":12345678901234567890}', 'application/json', '/state')
  await send('hello', 'text/plain')
  const state = await asDevice('GET', `${path}?format=state`, undefined, LINES)
  expect(state.text).toContain('"payload":{"door":"open","count":12345678901234567890}')
  const raw = await asDevice('GET', `${path}?format=raw`, undefined, CSV)
  expect(raw.text.split('\r\n')[0]).toBe('channel,subtopic,publisher,protocol,created,content_type,payload')
  expect(raw.text).toContain(`text/plain,${Buffer.from('hello').toString('base64')}\r\n`)
})

test('an export refuses what a page refuses, and also aggregations and other orders', async () => {
  const { asDevice, path } = await aChannel()
  for (const query of ['?aggregation=sum&from=1&to=2', '?order=value', '?from=x'])
    expect((await asDevice('GET', `${path}${query}`, undefined, CSV)).status, query).toBe(400)
  expect((await plant.api.anonymous('GET', path, undefined, CSV)).status).toBe(401)
  const page = await asDevice('GET', path, undefined, { accept: 'application/json, text/csv' })
  expect(page.headers['content-type']).toContain('application/json')
})

test('the accepted type with the highest weight is used, of equal ones the first', async () => {
  const { asDevice, path, send } = await aChannel()
  await send([{ n: 'a', v: 1 }])
  const typeOf = async (accept: string) =>
    (await asDevice('GET', path, undefined, { accept })).headers['content-type']?.toString().split(';')[0]
  expect(await typeOf('text/csv;q=0')).toBe('application/json')
  expect(await typeOf('text/csv;q=0.5, application/json')).toBe('application/json')
  expect(await typeOf('application/json;q=0.1, text/csv')).toBe('text/csv')
  expect(await typeOf('text/csv; header=present; q=0.2, application/x-ndjson; q=0.3, */*;q=0.1')).toBe(
    'application/x-ndjson',
  )
  expect(await typeOf('text/html, application/x-ndjson, text/csv')).toBe('application/x-ndjson')
  expect(await typeOf('image/png')).toBe('application/json')
})

test('a few exports are open at a time, further ones get a retry time, and an abandoned one releases its slot', async () => {
  const { device, send } = await aChannel()
  await send([{ n: 'a', v: 1 }])
  const access = await plant.api.api.devices.gate.authorize(
    { kind: 'client', secret: device.secret },
    { domain: plant.domainId, channel: device.channelId },
    'subscribe',
  )
  const query = { format: 'messages', offset: 0, limit: 10 }
  const open = () => plant.api.api.messages.export(access, query, 'csv')
  const opened = await Promise.all([open(), open(), open()])
  await expect(open()).rejects.toMatchObject({ kind: 'rate_limited', retryAfterSeconds: 10 })
  const [left] = opened
  await left?.chunks.next()
  await left?.chunks.return()
  opened[0] = await open()
  for (const { chunks } of opened) for await (const text of chunks) expect(text).not.toBe('')
  const connections = async () => {
    const { rows } = await plant.api.database.pool.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'skein export'`,
    )
    return rows.length === 0
  }
  await until(connections, 'every connection is closed')
})
