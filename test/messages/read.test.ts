/** Reading over HTTP: specification section 4 (Messages), contract section 8, decisions 18, 19 and 31b. */
import { beforeAll, describe, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { projectPending } from '../../api/messages/projections/project.ts'
import type { Device } from './support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let device: Device & { channelId: string }
let other: Device

const START = 1_700_000_000

beforeAll(async () => {
  device = await plant.newConnectedDevice()
  other = await plant.newDevice()
  await plant.connect(other, device.channelId)
  // 20 temperatures, one a minute, of which each second one is of the other device and below a subtopic.
  for (let index = 0; index < 20; index++) {
    const isOther = index % 2 === 1
    await publish(isOther ? other : device, isOther ? '/hall/a' : '', [
      { n: 'temp', u: 'Cel', t: START + index * 60, v: index },
    ])
  }
  await publish(device, '', [
    { bn: 'x:', bt: START - 100, n: 'on', vb: true },
    { n: 'label', vs: 'Machine Room' },
    { n: 'label', vs: 'Room' },
    { n: 'blob', vd: 'aGkgCg' },
  ])
}, 60_000)

async function publish(from: Device, subtopic: string, pack: object[], channelId = device.channelId): Promise<void> {
  const response = await plant.api.app.inject({
    method: 'POST',
    url: `/m/${plant.domainId}/c/${channelId}${subtopic}`,
    payload: JSON.stringify(pack),
    headers: { authorization: `Client ${from.secret}`, 'content-type': 'application/senml+json' },
  })
  if (response.statusCode !== 202) throw new Error(response.body)
}

type Page = Record<string, unknown> & { total: number; messages: ReadMessage[] }
type ReadMessage = { name: string; value?: number; values?: Record<string, number>; time: number; publisher: string }

async function read(query: string, channelId = device.channelId): Promise<Page> {
  const response = await plant.api.app.inject({
    url: `/m/${plant.domainId}/c/${channelId}?${query}`,
    headers: { authorization: `Client ${device.secret}` },
  })
  if (response.statusCode !== 200) throw new Error(response.body)
  return response.json<Page>()
}

async function values(query: string): Promise<(number | undefined)[]> {
  return (await read(query)).messages.map((message) => message.value)
}

async function statusOf(query: string): Promise<number> {
  const url = `/m/${plant.domainId}/c/${device.channelId}?${query}`
  return (await plant.api.app.inject({ url, headers: { authorization: `Client ${device.secret}` } })).statusCode
}

describe('pages', () => {
  test('have ten records by default, newest first, with the total', async () => {
    const page = await read('')
    expect(page).toMatchObject({ offset: 0, limit: 10, format: 'messages', total: 24 })
    expect(page.messages.map((message) => message.value)).toEqual([19, 18, 17, 16, 15, 14, 13, 12, 11, 10])
  })

  test('accept lists of names and publishers', async () => {
    const all = await read('limit=100')
    const named = await read('limit=100&name=temp,x:on')
    expect(named.messages).toEqual(all.messages.filter(({ name }) => name === 'temp' || name === 'x:on'))
    expect(await read(`limit=100&publisher=${device.id},${other.id}`)).toMatchObject({ messages: all.messages })
    expect((await read(`limit=100&publisher=${other.id},none`)).total).toBe(10)
  })

  test('cover the whole stream without overlap, in both directions', async () => {
    for (const dir of ['asc', 'desc']) {
      const whole = (await read(`limit=1000&dir=${dir}`)).messages
      const pages: object[] = []
      for (let offset = 0; offset < 28; offset += 7)
        pages.push(...(await read(`limit=7&offset=${offset}&dir=${dir}`)).messages)
      expect(pages).toEqual(whole)
    }
  })

  test('keep records of one time in the order in which they were sent', async () => {
    expect((await read('dir=desc&offset=20')).messages.map((message) => message.name)).toEqual([
      'x:on',
      'x:label',
      'x:label',
      'x:blob',
    ])
    expect((await read('dir=asc&limit=4')).messages.map((message) => message.name)).toEqual([
      'x:on',
      'x:label',
      'x:label',
      'x:blob',
    ])
  })

  test('keep that order also when the records take more rows than a page has records', async () => {
    const clock = await plant.newConnectedDevice()
    const names = Array.from({ length: 800 }, (_, index) => `n${index}`)
    await publish(
      clock,
      '',
      names.map((n) => ({ n, t: START, v: 1 })),
      clock.channelId,
    )
    const shown = async (query: string) => {
      const response = await plant.api.app.inject({
        url: `/m/${plant.domainId}/c/${clock.channelId}?${query}`,
        headers: { authorization: `Client ${clock.secret}` },
      })
      return response.json<Page>().messages.map(({ name }) => name)
    }
    for (const dir of ['asc', 'desc'])
      for (const [offset, limit] of [
        [0, 1],
        [0, 10],
        [60, 10],
        [640, 100],
      ] as const)
        expect(await shown(`dir=${dir}&offset=${offset}&limit=${limit}`)).toEqual(names.slice(offset, offset + limit))
  })

  test('beyond the end are empty arrays with the total', async () => {
    expect(await read('offset=100')).toMatchObject({ total: 24, messages: [] })
  })

  test('accept another order, with equal values newest first', async () => {
    expect((await read('order=name&dir=asc&limit=3')).messages.map((message) => message.value)).toEqual([0, 1, 2])
    expect((await read('order=name&dir=desc&limit=2')).messages.map((message) => message.name)).toEqual([
      'x:on',
      'x:label',
    ])
    expect(await values('order=value&limit=2')).toEqual([19, 18])
    expect(await values('order=value&dir=asc&limit=2')).toEqual([0, 1])
    expect((await values('order=value&offset=19&limit=3')).map((value) => value ?? 'none')).toEqual([0, 'none', 'none'])
    expect(await values('order=nonsense&limit=2')).toEqual([19, 18])
  })

  test.each(['limit=0', 'limit=1001', 'limit=x', 'limit=', 'offset=-1', 'offset=1.5', 'dir=up', 'limit=5&limit=6'])(
    '%s is 400',
    async (query) => {
      expect(await statusOf(query)).toBe(400)
    },
  )

  test('return the same stream under every path', async () => {
    for (const url of [
      `/m/plant/c/${device.channelId}`,
      `/${plant.domainId}/channels/${device.channelId}/messages`,
      `/channels/${device.channelId}/messages`,
    ]) {
      const response = await plant.api.app.inject({ url, headers: { authorization: `Client ${device.secret}` } })
      expect([url, response.json<Page>().total]).toEqual([url, 24])
    }
  })

  test('are available to a user with the action subscribe and a Bearer token', async () => {
    const url = `/m/${plant.domainId}/c/${device.channelId}`
    const response = await plant.api.app.inject({
      url,
      headers: { authorization: `Bearer ${plant.owner.accessToken}` },
    })
    expect(response.json<Page>().total).toBe(24)
  })

  test('require credentials (401), and the channel must exist: 403 for a client and 404 for a user', async () => {
    const unknown = `/m/${plant.domainId}/c/11111111-1111-4111-8111-111111111111`
    const statuses = await Promise.all(
      [{}, { authorization: `Client ${device.secret}` }, { authorization: `Bearer ${plant.owner.accessToken}` }].map(
        async (headers) => (await plant.api.app.inject({ url: unknown, headers })).statusCode,
      ),
    )
    expect(statuses).toEqual([401, 403, 404])
  })
})

describe('filters', () => {
  test('select by name, subtopic, publisher and protocol, and are repeated in the response', async () => {
    expect(await read('name=temp&limit=1')).toMatchObject({ total: 20, name: 'temp' })
    expect(await read('subtopic=hall/a&limit=1')).toMatchObject({ total: 10, subtopic: 'hall/a' })
    expect(await read('subtopic=hall.a&limit=1')).toMatchObject({ total: 10 })
    expect(await read(`publisher=${other.id}&limit=1`)).toMatchObject({ total: 10, publisher: other.id })
    expect(await read('protocol=http&limit=1')).toMatchObject({ total: 24, protocol: 'http' })
    expect(await read('protocol=mqtt')).toMatchObject({ total: 0 })
    expect(await read('name=nothing')).toMatchObject({ total: 0, messages: [] })
  })

  test('an empty text filters nothing and is not echoed', async () => {
    const page = await read('name=&subtopic=&publisher=&protocol=&vs=&vd=&limit=1')
    expect(page.total).toBe(24)
    expect(Object.keys(page).toSorted((left, right) => left.localeCompare(right))).toEqual([
      'format',
      'limit',
      'messages',
      'next',
      'offset',
      'total',
    ])
  })

  test('a secret in the query is never echoed', async () => {
    const url = `/m/${plant.domainId}/c/${device.channelId}?limit=1&authorization=${device.secret}`
    const response = await plant.api.app.inject({ url })
    expect(response.statusCode).toBe(200)
    expect(response.body).not.toContain(device.secret)
  })

  test('from is inclusive, to is exclusive, in seconds or nanoseconds', async () => {
    expect(await values(`from=${START + 60}&to=${START + 180}`)).toEqual([2, 1])
    expect(await values(`from=${START + 60}000000000&to=${START + 180}000000000`)).toEqual([2, 1])
    expect((await read(`from=${START + 60}&to=${START + 180}`))['from']).toBe(START + 60)
    expect(await values('from=9e13')).toEqual([])
  })

  test.each([
    ['v=3', [3]],
    ['v=3&comparator=eq', [3]],
    ['v=3&comparator=lt', [2, 1, 0]],
    ['v=3&comparator=le', [3, 2, 1, 0]],
    ['v=17&comparator=gt', [19, 18]],
    ['v=17&comparator=ge', [19, 18, 17]],
    ['v=-1', []],
  ])('%s', async (query, expected) => expect(await values(query)).toEqual(expected))

  test.each([
    ['vs=Room', ['Room']],
    ['vs=Room&comparator=ge', ['Machine Room', 'Room']],
    ['vs=Room&comparator=gt', ['Machine Room']],
    ['vs=Machine%20Room%20B&comparator=le', ['Machine Room', 'Room']],
    ['vs=Machine%20Room%20B&comparator=lt', ['Machine Room', 'Room']],
    ['vs=room', []],
    ['vs=%25&comparator=ge', []],
  ])('%s', async (query, expected) => {
    const { messages } = await read(query)
    expect(messages.map((message) => (message as { string_value?: string }).string_value)).toEqual(expected)
  })

  test('by boolean and by data', async () => {
    expect(await read('vb=true')).toMatchObject({ total: 1, vb: true })
    expect(await read('vb=false')).toMatchObject({ total: 0 })
    expect(await read('vd=aGkgCg')).toMatchObject({ total: 1, vd: 'aGkgCg' })
    expect(await read('vd=aGkgCQ&comparator=gt')).toMatchObject({ total: 1 })
  })

  test.each(['comparator=ne', 'v=x', 'v=', 'vb=maybe', 'vd=%2B%2B', 'from=x', 'aggregation=median&from=1&to=2'])(
    '%s is 400',
    async (query) => {
      expect(await statusOf(query)).toBe(400)
    },
  )

  test('a format without stored messages gives an empty page', async () => {
    expect(await read('format=unknown')).toMatchObject({ format: 'unknown', total: 0, messages: [] })
  })
})

describe('aggregation', () => {
  const range = `from=${START}&to=${START + 1200}`

  test.each([
    ['max', [18, 16, 10]],
    ['MIN', [18, 12, 8]],
    ['avg', [18, 14, 9]],
    ['sum', [18, 42, 18]],
    ['count', [1, 3, 2]],
  ])('%s per interval of one series, newest first', async (aggregation, expected) => {
    // START is 200 s after a multiple of 5 minutes: the even minutes fall into 0 | 2 4 6 | 8 10 | 12 14 16 | 18.
    const page = await read(`${range}&aggregation=${aggregation}&interval=5m&publisher=${device.id}&name=temp&limit=3`)
    expect(page.total).toBe(5)
    expect(page.messages.map((message) => message.value)).toEqual(expected)
    expect(page.messages.every((message) => message.time % 300 === 0)).toBe(true)
  })

  test('series are never mixed, for any interval', async () => {
    const { messages } = await read(`${range}&aggregation=count&interval=1%20hour`)
    expect(messages.map((message) => message.value)).toEqual([10, 10])
  })

  test('several aggregations of several series in one call equal those of separate calls', async () => {
    const range = `from=${START}&to=${START + 1200}&interval=5m&limit=1000`
    const publishers = `publisher=${device.id},${other.id}`
    const page = await read(`${range}&${publishers}&name=temp,none&aggregation=min,MAX,avg,sum,count`)
    expect(page).toMatchObject({ aggregation: 'min,MAX,avg,sum,count', name: 'temp,none' })
    const each = new Map<string, Record<string, number>>()
    for (const by of ['min', 'max', 'avg', 'sum', 'count'])
      for (const publisher of [device.id, other.id])
        for (const { time, value } of (await read(`${range}&publisher=${publisher}&name=temp&aggregation=${by}`))
          .messages) {
          const key = `${publisher} ${time}`
          each.set(key, { ...each.get(key), [by]: value as number })
        }
    expect(page.total).toBe(each.size)
    expect(page.messages.every((message) => !('value' in message))).toBe(true)
    expect(
      new Map(page.messages.map(({ publisher, time, values: found }) => [`${String(publisher)} ${time}`, found])),
    ).toEqual(each)
  })

  test('days begin at midnight of the time zone', async () => {
    const first = async (query: string) =>
      (await read(`${range}&aggregation=count&interval=1%20day&limit=1${query}`)).messages[0]?.time
    // START is 2023-11-14 22:13:20 UTC, 23:13:20 in Belgrade.
    expect(await first('')).toBe(Date.UTC(2023, 10, 14) / 1000)
    expect(await first('&tz=Europe/Belgrade')).toBe(Date.UTC(2023, 10, 13, 23) / 1000)
  })

  test('a day with a repeated hour after midnight begins with the first of them, and contains both', async () => {
    const { channelId } = await plant.newConnectedDevice()
    await plant.connect(device, channelId)
    // In the Azores 26 October 2025 begins at 00:00 UTC; from 01:00 UTC on it is midnight again.
    const midnight = Date.UTC(2025, 9, 26) / 1000
    const hours = [-1, 0, 1, 24, 25].map((hour) => ({ n: 'temp', t: midnight + hour * 3600 + 60, v: 1 }))
    await publish(device, '', hours, channelId)
    const query = `from=${midnight - 86_400}&to=${midnight + 3 * 86_400}&aggregation=count&tz=Atlantic/Azores`
    const { messages } = await read(`${query}&interval=1%20day`, channelId)
    const day = (hour: number, value: number) => ({ time: midnight + hour * 3600, value })
    expect(messages).toMatchObject([day(25, 1), day(0, 3), day(-24, 1)])
    expect((await read(`${query}&interval=1%20day&limit=1&offset=1`, channelId)).messages).toMatchObject([day(0, 3)])
  })

  describe('intervals count from local midnight', () => {
    const HOUR = 3600
    /** Counts of a record in each hour of 26 hours, by the hour in which the interval begins. */
    async function hourly(begin: number, tz: string, interval: string) {
      const { channelId } = await plant.newConnectedDevice()
      await plant.connect(device, channelId)
      const hours = Array.from({ length: 26 }, (_, hour) => ({ n: 'temp', t: begin + hour * HOUR + 60, v: 1 }))
      await publish(device, '', hours, channelId)
      const found = []
      // From rollups, and from records.
      for (const from of [begin - 40 * 86_400, -1]) {
        const query = `from=${from}&to=${begin + 7 * 86_400}&aggregation=count&interval=${interval}&limit=100&dir=asc`
        const { messages } = await read(`${query}${tz === '' ? '' : `&tz=${tz}`}`, channelId)
        found.push(messages.map(({ time, value }) => [((time as number) - begin) / HOUR, value]))
      }
      expect(found[0]).toEqual(found[1])
      return found[0]
    }
    const longDay = Date.UTC(2025, 9, 25, 22) / 1000
    const shortDay = Date.UTC(2025, 2, 29, 23) / 1000
    const monday = Date.UTC(2025, 9, 19, 22) / 1000
    const berlin = 'Europe/Berlin'

    test.each([
      [
        '24h',
        [
          [0, 25],
          [25, 1],
        ],
      ],
      [
        '86400s',
        [
          [0, 25],
          [25, 1],
        ],
      ],
      [
        '1%20day',
        [
          [0, 25],
          [25, 1],
        ],
      ],
      [
        '6h',
        [
          [0, 6],
          [6, 6],
          [12, 6],
          [18, 6],
          [24, 1],
          [25, 1],
        ],
      ],
      [
        '7h',
        [
          [0, 7],
          [7, 7],
          [14, 7],
          [21, 4],
          [25, 1],
        ],
      ],
      [
        '12h30m',
        [
          [0, 13],
          [12.5, 12],
          [25, 1],
        ],
      ],
      [
        '168h',
        [
          [-144, 25],
          [25, 1],
        ],
      ],
      [
        '7%20days',
        [
          [-144, 25],
          [25, 1],
        ],
      ],
      [
        '1%20week',
        [
          [-144, 25],
          [25, 1],
        ],
      ],
    ])('of a day of 25 hours: %s', async (interval, expected) => {
      expect((monday - longDay) / HOUR).toBe(-144)
      expect(await hourly(longDay, berlin, interval)).toEqual(expected)
    })

    test('of a day of 23 hours', async () => {
      expect(await hourly(shortDay, berlin, '7h')).toEqual([
        [0, 7],
        [7, 7],
        [14, 7],
        [21, 2],
        [23, 3],
      ])
    })

    test('of a time zone at half an hour', async () => {
      const begin = Date.UTC(2025, 9, 25, 18, 30) / 1000
      expect(await hourly(begin, 'Asia/Kolkata', '12h')).toEqual([
        [0, 12],
        [12, 12],
        [24, 2],
      ])
      expect(await hourly(begin, 'Asia/Kolkata', '1h')).toEqual(Array.from({ length: 26 }, (_, hour) => [hour, 1]))
    })

    test('of UTC without a time zone', async () => {
      const begin = Date.UTC(2025, 9, 26) / 1000
      expect(await hourly(begin, '', '7h')).toEqual([
        [0, 7],
        [7, 7],
        [14, 7],
        [21, 3],
        [24, 2],
      ])
      expect(await hourly(begin, '', '168h')).toEqual([
        [-144, 24],
        [24, 2],
      ])
    })
  })

  test('a day of 26 hours contains its last one', async () => {
    const { channelId } = await plant.newConnectedDevice()
    await plant.connect(device, channelId)
    // At Troll clocks go back by two hours: 26 October 2025 is from 22:00 UTC of the day before to midnight UTC.
    const begin = Date.UTC(2025, 9, 25, 22) / 1000
    const hours = [0, 25.5].map((hour) => ({ n: 'temp', t: begin + hour * 3600, v: 1 }))
    await publish(device, '', hours, channelId)
    for (const from of [begin - 86_400, -1])
      expect(
        (
          await read(
            `from=${from}&to=${begin + 7 * 86_400}&aggregation=count&tz=Antarctica/Troll&interval=1%20day`,
            channelId,
          )
        ).messages,
      ).toMatchObject([{ time: begin, value: 2 }])
  })

  test('years before the first thousand', async () => {
    const { channelId } = await plant.newConnectedDevice()
    await plant.connect(device, channelId)
    // Before the time of reception, which is in the third millennium.
    await publish(device, '', [{ n: 'temp', t: -1050 * 365.25 * 86_400, v: 1 }], channelId)
    const query = `from=-62135596800&to=${START}&aggregation=count&interval=1000%20years`
    expect((await read(query, channelId)).messages).toMatchObject([{ time: -62_135_596_800, value: 1 }])
  })

  test('months and years', async () => {
    const first = async (interval: string) =>
      (await read(`${range}&aggregation=sum&interval=${interval}&limit=1`)).messages[0]?.time
    expect(await first('1%20month')).toBe(Date.UTC(2023, 10, 1) / 1000)
    expect(await first('3%20months')).toBe(Date.UTC(2023, 9, 1) / 1000)
    expect(await first('1%20year')).toBe(Date.UTC(2023, 0, 1) / 1000)
    expect(await first('1%20week')).toBe(Date.UTC(2023, 10, 13) / 1000)
  })

  test.each([
    'aggregation=avg',
    'aggregation=avg&from=1',
    'aggregation=avg&from=0&to=5',
    `${range}&aggregation=avg&interval=soon`,
    `${range}&aggregation=avg&interval=0s`,
    `${range}&aggregation=avg&interval=36h`,
    `${range}&aggregation=avg&interval=36h&tz=Europe/Berlin`,
    `${range}&aggregation=avg&interval=-5m`,
    `${range}&aggregation=avg&interval=9999999%20years`,
    `${range}&aggregation=avg&tz=Mars`,
    `${range}&aggregation=avg,median`,
    `${range}&aggregation=avg,avg`,
    `${range}&aggregation=avg,`,
    `name=${Array.from({ length: 101 }, () => 'a').join(',')}`,
  ])('%s is 400', async (query) => expect(await statusOf(query)).toBe(400))
})

test('an acknowledged message is in the next read, always', async () => {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  for (let index = 1; index <= 50; index++) {
    await publish(device, '', [{ n: 'n', v: index, t: START + index }], channelId)
    const page = await read('limit=1', channelId)
    expect([page.total, page.messages[0]?.value]).toEqual([index, index])
  }
})

test('the total of a channel without messages is 0, whether or not batches of others are pending', async () => {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  const read = plant.api.as(`Client ${device.secret}`)
  for (const isProjected of [false, true]) {
    if (isProjected) await projectPending(plant.api.database)
    const response = await read('GET', `/m/${plant.domainId}/c/${channelId}?only_total=true&name=none`)
    expect([response.status, response.json()]).toEqual([200, { total: 0, messages: [] }])
  }
})

describe('one message', () => {
  type Linked = { value?: number; message_id: string; payload?: string }
  const linked = async (channelId: string, query = '') =>
    (await read(`links=true&limit=100&${query}`, channelId)).messages as unknown as Linked[]

  test('is read by its id alone: pages, totals, aggregates and exports', async () => {
    const own = await plant.newConnectedDevice()
    await plant.connect(device, own.channelId)
    // At once: so several messages may be in one batch.
    await Promise.all(
      [1, 2, 3, 4].map((value) =>
        publish(
          own,
          '',
          [
            { n: 'first', v: value, t: START },
            { n: 'second', v: value * 10, t: START + 10_000_000 },
          ],
          own.channelId,
        ),
      ),
    )
    const all = await linked(own.channelId)
    expect(new Set(all.map(({ message_id: id }) => id)).size).toBe(4)
    const valuesOf = async (query: string) => (await read(query, own.channelId)).messages.map(({ value }) => value)
    const check = async () => {
      for (const { value = 0, message_id: id } of all.filter((record) => (record.value ?? 0) < 10)) {
        expect(await read(`message=${id}`, own.channelId)).toMatchObject({
          total: 2,
          message: id,
          messages: [{ value: value * 10 }, { value }],
        })
        expect(await valuesOf(`message=${id}&order=value&dir=asc`)).toEqual([value, value * 10])
        expect(await valuesOf(`message=${id}&name=first`)).toEqual([value])
        expect(await read(`message=${id}&only_total=true`, own.channelId)).toMatchObject({ total: 2 })
        const range = `from=${START - 1}&to=${START + 20_000_000}`
        expect(await valuesOf(`message=${id}&${range}&aggregation=sum&interval=1h`)).toEqual([value * 10, value])
        const lines = await plant.api.app.inject({
          url: `/m/${plant.domainId}/c/${own.channelId}?dir=asc&message=${id}`,
          headers: { authorization: `Client ${device.secret}`, accept: 'application/x-ndjson' },
        })
        const exported = lines.body.trim().split('\n')
        expect(exported.map((line) => (JSON.parse(line) as ReadMessage).value)).toEqual([value, value * 10])
      }
    }
    await check()
    await projectPending(plant.api.database)
    await check()
    // Batches are kept for eight days, messages longer.
    const seqs = all.map(({ message_id: id }) => Number(id.split('/')[0]))
    await plant.api.database.pool.query('DELETE FROM ingest_batches WHERE seq = ANY ($1)', [seqs])
    await check()
  })

  test('is also read when it is no SenML', async () => {
    const own = await plant.newConnectedDevice()
    await plant.connect(device, own.channelId)
    for (const payload of ['one', 'two']) {
      const response = await plant.api.app.inject({
        method: 'POST',
        url: `/m/${plant.domainId}/c/${own.channelId}`,
        payload,
        headers: { authorization: `Client ${own.secret}`, 'content-type': 'text/plain' },
      })
      expect(response.statusCode).toBe(202)
    }
    const [newest, oldest] = await linked(own.channelId, 'format=raw')
    expect(await read(`format=raw&message=${oldest?.message_id}`, own.channelId)).toMatchObject({
      total: 1,
      messages: [{ payload: oldest?.payload }],
    })
    expect((await read(`message=${newest?.message_id}`, own.channelId)).total).toBe(0)
  })

  test('of another channel is as one that does not exist', async () => {
    const foreign = await plant.newConnectedDevice()
    await plant.connect(device, foreign.channelId)
    await publish(foreign, '', [{ n: 'secret', v: 1 }], foreign.channelId)
    const [{ message_id: id } = { message_id: '' }] = await linked(foreign.channelId)
    expect((await read(`message=${id}`, foreign.channelId)).total).toBe(1)
    const { message: _, ...unknown } = await read('message=9007199254740991/0')
    expect(unknown).toMatchObject({ total: 0, messages: [] })
    expect(await read(`message=${id}`)).toEqual({ ...unknown, message: id })
  })

  test('has an id of two numbers, not together with a run; newest records and deletions refuse it', async () => {
    const run = '6f9619ff-8b86-4d01-b42d-00cf4fc964ff'
    for (const query of ['1', '1/', '/0', '-1/0', '1/0/0', '1/a', '9999999999999999999/0', `1/0&run=${run}`])
      expect(await statusOf(`message=${query}`), query).toBe(400)
    const url = `/m/${plant.domainId}/c/${device.channelId}/latest?message=1/0`
    const latest = await plant.api.app.inject({ url, headers: { authorization: `Client ${device.secret}` } })
    expect(latest.json()).toMatchObject({ error: 'malformed', details: [{ path: 'message' }] })
    const messages = `/${plant.domainId}/channels/${device.channelId}/messages`
    expect((await plant.owner.call('DELETE', `${messages}?from=0&message=1/0`)).status).toBe(400)
  })
})

test('only_total returns the total only, for pages, aggregates and the newest records', async () => {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  const records = [1, 2, 3].map((value) => ({ n: `n${value}`, v: value, t: START + value }))
  await publish(device, '', records, channelId)
  const path = `/m/${plant.domainId}/c/${channelId}`
  for (const query of ['', '/latest', `?aggregation=max&interval=1h&from=${START}&to=${START + 60}`]) {
    const url = `${path}${query}${query.includes('?') ? '&' : '?'}only_total=true`
    const response = await plant.api.as(`Client ${device.secret}`)('GET', url)
    expect([query, response.status, response.json()]).toEqual([query, 200, { total: 3, messages: [] }])
  }
})
