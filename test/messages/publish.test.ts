/** Publishing over HTTP: specification sections 4 and 5, contract sections 7.1 and 7.6, decisions 17, 17b, 31c and 54. */
import { gzipSync } from 'node:zlib'
import { Encoder } from 'cbor-x'
import type { InjectOptions } from 'fastify'
import { beforeAll, describe, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import type { Device } from './support.ts'
import { startPlant } from './support.ts'

/** The default of SKEIN_MAX_BODY_BYTES. */
const MAX_BODY_BYTES = 1024 * 1024
/** The pack of the specification. */
const PACK = [
  { bn: 'some-base-name:', bt: 1.276020076001e9, bu: 'A', bver: 5, n: 'voltage', u: 'V', v: 120.1 },
  { n: 'current', t: -5, v: 1.2 },
  { n: 'current', t: -4, v: 1.3 },
]

const plant = useWorld(() => startPlant())
let device: Device & { channelId: string }
let path: string

beforeAll(async () => {
  device = await plant.newConnectedDevice()
  path = `/http/m/${plant.domainId}/c/${device.channelId}`
}, 60_000)

type Headers = Record<string, string>

async function publish(payload: unknown, headers: Headers = {}, url = path) {
  const body = Buffer.isBuffer(payload) || typeof payload === 'string' ? payload : JSON.stringify(payload)
  const request: InjectOptions = {
    method: 'POST',
    url,
    payload: body,
    headers: { 'content-type': 'application/senml+json', authorization: `Client ${device.secret}`, ...headers },
  }
  return await plant.api.app.inject(request)
}

async function read(query = '', channelId = device.channelId, authorization = `Client ${device.secret}`) {
  const response = await plant.api.app.inject({
    url: `/m/${plant.domainId}/c/${channelId}${query}`,
    headers: { authorization },
  })
  expect(response.statusCode).toBe(200)
  return response.json<{ total: number; messages: Record<string, unknown>[] }>()
}

/** Another channel, so that a test sees its own messages alone. */
async function freshChannel() {
  const channelId = await plant.newChannel()
  await plant.connect(device, channelId)
  return { channelId, url: `/m/${plant.domainId}/c/${channelId}` }
}

test('publishing returns 202 with an empty body, and the next read has the records, resolved and newest first', async () => {
  const response = await publish(PACK)
  expect([response.statusCode, response.body]).toEqual([202, ''])
  const common = { channel: device.channelId, publisher: device.id, protocol: 'http' }
  expect(await read()).toEqual({
    offset: 0,
    limit: 10,
    format: 'messages',
    total: 3,
    messages: [
      { ...common, name: 'some-base-name:voltage', unit: 'V', time: 1276020076.001, value: 120.1 },
      { ...common, name: 'some-base-name:current', unit: 'A', time: 1276020072.001, value: 1.3 },
      { ...common, name: 'some-base-name:current', unit: 'A', time: 1276020071.001, value: 1.2 },
    ],
  })
})

describe('paths', () => {
  test.each(['/http/m/D/c/C', '/m/D/c/C', '/http/channels/C/messages', '/channels/C/messages', '/m/plant/c/C'])(
    '%s',
    async (form) => {
      const { channelId } = await freshChannel()
      const url = form.replace('D', plant.domainId).replace('C', channelId)
      expect((await publish([{ n: 'a', v: 1 }], {}, url)).statusCode).toBe(202)
      expect((await publish([{ n: 'a', v: 2 }], {}, `${url}/a/b`)).statusCode).toBe(202)
      expect((await publish([{ n: 'a', v: 3 }], {}, `${url}//a.b/`)).statusCode).toBe(202)
      expect((await read('?subtopic=a/b', channelId)).total).toBe(2)
      expect((await read('', channelId)).total).toBe(3)
    },
  )

  test.each(['a/+', 'a/%23', '*', 'a%3E', 'a%20b', 'a%00b'])('a subtopic %s is refused', async (subtopic) => {
    expect((await publish(PACK, {}, `${path}/${subtopic}`)).statusCode).toBe(400)
  })
})

describe('credentials', () => {
  const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`

  test('Basic with the client id and secret, with an empty name, and the secret in the query', async () => {
    expect((await publish(PACK, { authorization: basic(device.id, device.secret) })).statusCode).toBe(202)
    expect((await publish(PACK, { authorization: basic('', device.secret) })).statusCode).toBe(202)
    const request = {
      method: 'POST' as const,
      payload: JSON.stringify(PACK),
      headers: { 'content-type': 'application/senml+json' },
    }
    const inQuery = await plant.api.app.inject({ ...request, url: `${path}?authorization=${device.secret}` })
    expect(inQuery.statusCode).toBe(202)
  })

  test('a user with the action publish appears without a publisher', async () => {
    const { channelId, url } = await freshChannel()
    expect(
      (await publish([{ n: 'a', v: 1 }], { authorization: `Bearer ${plant.owner.accessToken}` }, url)).statusCode,
    ).toBe(202)
    expect((await read('', channelId)).messages[0]).toMatchObject({ publisher: '' })
  })

  test.each([
    ['a wrong secret', 'Client wrong-secret-of-sixteen-and-more'],
    ['the id of another client', basic('7e6e9ea6-5ea3-4cf5-9b0c-3ff8a7a0c5a2', 'x')],
    ['a wrong token', 'Bearer nonsense'],
    ['an unknown scheme', 'Digest x'],
    ['an empty secret', 'Client '],
    ['the bare secret', 'secret'],
  ])('%s is 401', async (_, authorization) => {
    const response = await publish(PACK, { authorization })
    expect(response.statusCode).toBe(401)
    expect(response.json()).toMatchObject({ error: 'unauthenticated', message: expect.stringMatching(/./) })
  })

  test('for an unknown or a foreign domain are 401 alike, and the message mentions the domain', async () => {
    const foreign = await plant.api.newUser()
    const { id } = (await foreign.call('POST', '/domains', { name: 'foreign' })).json<{ id: string }>()
    for (const domain of ['00000000-0000-4000-8000-000000000000', 'no-such-route', id]) {
      const response = await publish(PACK, {}, `/m/${domain}/c/${device.channelId}`)
      expect([response.statusCode, response.json<{ message: string }>().message]).toEqual([
        401,
        'failed to perform authentication: wrong domain or secret',
      ])
    }
  })

  test('that are absent are 401', async () => {
    const response = await plant.api.app.inject({ method: 'POST', url: path, payload: '[]' })
    expect(response.statusCode).toBe(401)
  })

  test('an unknown, a foreign and an unconnected channel are 403 alike', async () => {
    const unconnected = await plant.newChannel()
    const answers = await Promise.all(
      [unconnected, '11111111-1111-4111-8111-111111111111', 'no-such-route'].map((channel) =>
        publish(PACK, {}, `/m/${plant.domainId}/c/${channel}`),
      ),
    )
    expect(answers.map((answer) => answer.statusCode)).toEqual([403, 403, 403])
    expect(new Set(answers.map((answer) => answer.body)).size).toBe(1)
  })

  test('a client connected for subscribe only cannot publish, and one for publish only cannot read', async () => {
    const [channelId, listener, sender] = [await plant.newChannel(), await plant.newDevice(), await plant.newDevice()]
    await plant.connect(listener, channelId, ['subscribe'])
    await plant.connect(sender, channelId, ['publish'])
    const url = `/m/${plant.domainId}/c/${channelId}`
    expect((await publish(PACK, { authorization: `Client ${listener.secret}` }, url)).statusCode).toBe(403)
    expect((await publish(PACK, { authorization: `Client ${sender.secret}` }, url)).statusCode).toBe(202)
    const reading = await plant.api.app.inject({ url, headers: { authorization: `Client ${sender.secret}` } })
    expect(reading.statusCode).toBe(403)
    expect((await read('', channelId, `Client ${listener.secret}`)).total).toBe(3)
  })

  test('a user outside the domain gets the same 403 for publishing and for reading', async () => {
    const { accessToken } = await plant.api.newUser()
    const authorization = `Bearer ${accessToken}`
    expect((await publish(PACK, { authorization })).statusCode).toBe(403)
    const reading = await plant.api.app.inject({
      url: `/m/${plant.domainId}/c/${device.channelId}`,
      headers: { authorization },
    })
    expect(reading.statusCode).toBe(403)
  })

  test('the order of checks is 401, 415, 400, 403', async () => {
    const forbidden = `/m/${plant.domainId}/c/11111111-1111-4111-8111-111111111111`
    const wrong = { authorization: 'Client wrong-secret-of-sixteen-and-more' }
    expect((await publish('{', { ...wrong, 'content-type': 'image/png' }, forbidden)).statusCode).toBe(401)
    expect((await publish('{', { 'content-type': 'image/png' }, forbidden)).statusCode).toBe(415)
    expect((await publish('{', {}, forbidden)).statusCode).toBe(400)
    expect((await publish(PACK, {}, forbidden)).statusCode).toBe(403)
  })
})

describe('content', () => {
  test('SenML in CBOR', async () => {
    const { channelId, url } = await freshChannel()
    const encoder = new Encoder({ useRecords: false, mapsAsObjects: false })
    const record = new Map<number, unknown>([
      [0, 'a'],
      [2, 21.5],
    ])
    const body = encoder.encode([record])
    expect((await publish(Buffer.from(body), { 'content-type': 'application/senml+cbor' }, url)).statusCode).toBe(202)
    expect((await read('', channelId)).messages[0]).toMatchObject({ name: 'a', value: 21.5 })
  })

  test('all kinds of value are read back as they were sent', async () => {
    const { channelId, url } = await freshChannel()
    await publish(
      [
        { n: 'vs', vs: 'Zähler 😀' },
        { n: 'vb', vb: false },
        { n: 'vd', vd: 'aGkgCg' },
        { n: 's', s: 12.5, ut: 60 },
      ],
      {},
      url,
    )
    const { messages } = await read('', channelId)
    expect(messages).toEqual([
      expect.objectContaining({ name: 'vs', string_value: 'Zähler 😀' }),
      expect.objectContaining({ name: 'vb', bool_value: false }),
      expect.objectContaining({ name: 'vd', data_value: 'aGkgCg' }),
      expect.objectContaining({ name: 's', sum: 12.5, update_time: 60 }),
    ])
    for (const message of messages) {
      expect(Object.keys(message).filter((key) => /value$|^sum$/.test(key))).toHaveLength(1)
    }
  })

  test('the extremes of numbers and times are read back unchanged', async () => {
    const { channelId, url } = await freshChannel()
    const values = [5e-324, -1.7976931348623157e308, 0.1 + 0.2, Number.MAX_SAFE_INTEGER]
    const times = [253_402_300_799.5, 1_276_020_076.000001, 1_700_000_000.123456, 268_435_456]
    const pack = values.map((v, index) => ({ n: `n${index}`, v, t: times[index] }))
    expect((await publish(pack, {}, url)).statusCode).toBe(202)
    expect(
      (await publish([{ n: 'first', v: 0, t: -62_135_596_800 - Math.floor(Date.now() / 1000) + 5 }], {}, url))
        .statusCode,
    ).toBe(202)
    const { messages } = await read('?order=name&dir=asc', channelId)
    expect(messages.slice(1).map(({ value, time }) => [value, time])).toEqual(
      values.map((value, index) => [value, times[index]]),
    )
    expect(messages[0]?.['time']).toBeLessThan(-62_135_596_700)
  })

  test('a record without a time has the time of reception', async () => {
    const { channelId, url } = await freshChannel()
    const before = Date.now() / 1000
    await publish(
      [
        { n: 'now', v: 1 },
        { n: 'ago', v: 1, t: -60 },
      ],
      {},
      url,
    )
    const times = (await read('', channelId)).messages.map((message) => message['time'] as number)
    const after = Date.now() / 1000
    expect(times[0]).toBeGreaterThanOrEqual(before - 1e-3)
    expect(times[0]).toBeLessThanOrEqual(after + 1e-3)
    expect((times[0] as number) - (times[1] as number)).toBeCloseTo(60, 3)
  })

  test('application/json is SenML when it is a valid pack, else JSON under the last element of the subtopic', async () => {
    const { channelId, url } = await freshChannel()
    const json = { 'content-type': 'application/json; charset=utf-8' }
    expect((await publish([{ n: 'a', v: 1 }], json, url)).statusCode).toBe(202)
    expect((await publish('{"big": 9007199254740993, "price": 1.10}', json, `${url}/shop/prices`)).statusCode).toBe(202)
    expect((await publish([{ a: 1 }, { a: 2 }], json, url)).statusCode).toBe(202)
    expect((await read('', channelId)).total).toBe(1)
    expect((await read('?format=json', channelId)).messages.map((message) => message['payload'])).toEqual([
      { a: 1 },
      { a: 2 },
    ])
    const response = await plant.api.app.inject({
      url: `${url}?format=prices`,
      headers: { authorization: `Client ${device.secret}` },
    })
    expect(response.body).toContain('"payload":{"big":9007199254740993,"price":1.10}')
    expect(response.json<{ messages: unknown[] }>().messages[0]).toMatchObject({
      channel: channelId,
      created: expect.any(Number),
      subtopic: 'shop.prices',
      publisher: device.id,
      protocol: 'http',
    })
  })

  test('octets and text are stored raw and read with format=raw', async () => {
    const { channelId, url } = await freshChannel()
    const bytes = Buffer.from([0, 255, 128, 10])
    expect((await publish(bytes, { 'content-type': 'application/octet-stream' }, `${url}/bin`)).statusCode).toBe(202)
    expect((await publish('Grüße', { 'content-type': 'text/plain; charset=utf-8' }, url)).statusCode).toBe(202)
    expect((await read('?format=raw', channelId)).messages).toEqual([
      expect.objectContaining({
        content_type: 'text/plain',
        subtopic: '',
        payload: Buffer.from('Grüße').toString('base64'),
      }),
      expect.objectContaining({
        content_type: 'application/octet-stream',
        subtopic: 'bin',
        payload: bytes.toString('base64'),
      }),
    ])
  })

  test('the type of a body without a content type is detected from its bytes', async () => {
    const { channelId, url } = await freshChannel()
    const send = (payload: string | Buffer) =>
      plant.api.app.inject({
        method: 'POST',
        url,
        payload,
        headers: { authorization: `Client ${device.secret}` },
      })
    for (const body of [JSON.stringify([{ n: 'a', v: 1 }]), '{"a":1}', 'plain', '[1]']) {
      expect((await send(body)).statusCode).toBe(202)
    }
    const totals = await Promise.all(
      ['messages', 'json', 'raw'].map(async (format) => (await read(`?format=${format}`, channelId)).total),
    )
    expect(totals).toEqual([1, 1, 2])
  })

  test('gzip is decompressed up to the limit', async () => {
    const { channelId, url } = await freshChannel()
    const gzip = { 'content-encoding': 'gzip' }
    expect((await publish(gzipSync(JSON.stringify(PACK)), gzip, url)).statusCode).toBe(202)
    expect((await read('', channelId)).total).toBe(3)
    expect((await publish(gzipSync(Buffer.alloc(MAX_BODY_BYTES + 1, 32)), gzip, url)).statusCode).toBe(413)
    expect((await publish('no gzip', gzip, url)).statusCode).toBe(400)
    expect((await publish(PACK, { 'content-encoding': 'br' }, url)).statusCode).toBe(415)
  })

  test.each(['application/xml', 'application/x-www-form-urlencoded', 'nonsense'])('%s is 415', async (type) => {
    expect((await publish('x', { 'content-type': type })).statusCode).toBe(415)
  })

  test('a body above the limit is 413', async () => {
    const response = await publish(Buffer.alloc(MAX_BODY_BYTES + 1, 32))
    expect([response.statusCode, response.json<{ error: string }>().error]).toEqual([413, 'too_large'])
  })

  test.each([
    ['no JSON', 'application/senml+json', '{', ''],
    ['an empty body', 'application/senml+json', '', ''],
    ['a value of another type', 'application/senml+json', '[{"n":"a","v":1},{"n":"b","v":"1"}]', '/1/v'],
    ['1e400', 'application/senml+json', '[{"n":"a","v":1e400}]', '/0/v'],
    ['a NUL character', 'application/senml+json', '[{"n":"a","vs":"x\\u0000"}]', '/0/vs'],
    ['a lone surrogate', 'application/senml+json', '[{"n":"a","vs":"\\ud800"}]', '/0/vs'],
    ['1e400 in JSON', 'application/json', '{"a":{"b":1e400}}', '/a/b'],
    ['a NUL character in JSON', 'application/json', '{"a":"\\u0000"}', '/a'],
    ['a lone surrogate in JSON', 'application/json', '{"a":["\\udc00"]}', '/a/0'],
    ['an element that is no object', 'application/json', '[{"a":1},2]', '/1'],
    ['a reserved key', 'application/json', '{"channel":"x"}', '/channel'],
    ['a JSON number alone', 'application/json', '5', ''],
  ])('%s is 400 with the position', async (_, type, body, place) => {
    const response = await publish(body, { 'content-type': type })
    expect(response.statusCode).toBe(400)
    expect(response.json<{ error: string }>().error).toBe('malformed')
    if (place !== '') expect(response.json<{ details: { path: string }[] }>().details[0]?.path).toBe(place)
  })

  test('bytes with invalid UTF-8 are 400', async () => {
    expect((await publish(Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d]))).statusCode).toBe(400)
  })

  test('an unknown method on the path is 405', async () => {
    const response = await plant.api.app.inject({
      method: 'PATCH',
      url: path,
      headers: { authorization: `Client ${device.secret}` },
    })
    expect([response.statusCode, response.headers['allow']]).toEqual([405, expect.stringContaining('POST')])
  })
})

describe('Idempotency-Key', () => {
  test('the same key with the same body is stored once, also at the same time', async () => {
    const { channelId, url } = await freshChannel()
    const key = { 'idempotency-key': 'k-1' }
    const answers = await Promise.all(Array.from({ length: 10 }, () => publish(PACK, key, url)))
    answers.push(await publish(PACK, key, url))
    expect(new Set(answers.map((answer) => answer.statusCode))).toEqual(new Set([202]))
    expect((await read('', channelId)).total).toBe(3)
  })

  test('the same key with another body is 422 and stores nothing', async () => {
    const { channelId, url } = await freshChannel()
    const key = { 'idempotency-key': 'k-2' }
    expect((await publish(PACK, key, url)).statusCode).toBe(202)
    const response = await publish([{ n: 'other', v: 1 }], key, url)
    expect([response.statusCode, response.json<{ error: string }>().error]).toEqual([422, 'unprocessable'])
    expect((await read('', channelId)).total).toBe(3)
  })

  test('another channel, subtopic or client has separate keys', async () => {
    const { channelId, url } = await freshChannel()
    const key = { 'idempotency-key': 'k-1' }
    const other = await plant.newDevice()
    await plant.connect(other, channelId)
    await publish(PACK, key, url)
    await publish(PACK, key, `${url}/sub`)
    await publish(PACK, { ...key, authorization: `Client ${other.secret}` }, url)
    expect((await read('', channelId)).total).toBe(9)
  })

  test('an empty key is 400', async () => {
    expect((await publish(PACK, { 'idempotency-key': '' })).statusCode).toBe(400)
  })
})
