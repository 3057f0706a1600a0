/** CoAP (contract section 7.4 and 7.6): publishing, reading and observing over real sockets. */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { promisify } from 'node:util'
import { randomBytes, randomInt } from 'node:crypto'
import { request as coapRequest } from 'coap'
import { generate, parse } from 'coap-packet'
import fc from 'fast-check'
import { WebSocket } from 'ws'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { TYPES, parseCode, formatCode, encodeMessage, parseMessage } from '#api/adapters/coap/message.ts'
import { COAP_METRICS, CoapServer } from '#api/adapters/coap/index.ts'
import type { CoapServerDeps } from '#api/adapters/coap/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { createMetrics, listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import type { Ask } from './coap-peer.ts'
import { openPeer, optionOf } from './coap-peer.ts'
import type { CoapPeer } from './coap-peer.ts'
import { DOMAIN_ROUTE, startPlant, untilAllFollow } from './support.ts'

const MAX_BODY_BYTES = 128 * 1024
const ACK_TIMEOUT_MS = 100
/** Answers come on the acknowledgement, however busy the machine is. */
const NEVER_MS = 3_600_000
const PACK = '[{"n":"temperature","u":"Cel","v":21.5}]'
const SENML_JSON = 110

const plant = useWorld(() => startPlant())
let server: CoapServer
let listeners: Listeners
/** Milliseconds that the server's clock is ahead. */
let aheadMs = 0
const metrics = createMetrics([COAP_METRICS.set])

const start = (measured = createMetrics([COAP_METRICS.set]), options: Partial<CoapServerDeps> = {}) =>
  CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: plant.api.api.devices.gate,
    topics: plant.api.api.devices.topics,
    messages: plant.api.api.messages,
    maxBodyBytes: MAX_BODY_BYTES,
    ackTimeoutMs: ACK_TIMEOUT_MS,
    acknowledgeAfterMs: NEVER_MS,
    nowMs: () => monotonicMs() + aheadMs,
    metrics: measured,
    logger,
    ...options,
  })

beforeAll(async () => {
  server = await start(metrics)
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
  await server.stop()
})

const uint = (name: string, value: number) => {
  const bytes = value === 0 ? 0 : Math.ceil((32 - Math.clz32(value)) / 8)
  const buffer = Buffer.alloc(bytes)
  if (bytes > 0) buffer.writeUIntBE(value, 0, bytes)
  return { name, value: buffer }
}

async function aDevice() {
  const device = await plant.newConnectedDevice()
  const base = `/m/${plant.domainId}/c/${device.channelId}`
  const at = (rest = '', path = base) => `${path}${rest}?auth=${device.secret}`
  const stored = async (query = '') =>
    (await plant.owner.call('GET', `${base}?limit=1000${query}`)).json<{ messages: Record<string, unknown>[] }>()
      .messages
  const publish = async (body: string | Buffer, type = 'application/senml+json', rest = '') => {
    const response = await fetch(`http://127.0.0.1:${listeners.ports[0]}${base}${rest}`, {
      method: 'POST',
      headers: { authorization: `Client ${device.secret}`, 'content-type': type },
      body,
    })
    expect(response.status).toBe(202)
  }
  return { ...device, base, at, stored, publish }
}

/** Holds every commit up until it is called. */
async function holdCommits(): Promise<() => Promise<void>> {
  let release = () => undefined as void
  const { promise: locked, resolve } = Promise.withResolvers<void>()
  const done = plant.api.database.transaction(async (tx) => {
    await sql`LOCK TABLE ingest_batches IN EXCLUSIVE MODE`.execute(tx)
    resolve()
    await new Promise<void>((free) => (release = free))
  })
  await locked
  return async () => {
    release()
    await done
  }
}

describe('POST', () => {
  test('is answered with 2.04 on its acknowledgement, after which the message is stored', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const { token, messageId } = peer.ask({
      code: 'POST',
      path: device.at('/a/b'),
      options: [uint('Content-Format', SENML_JSON)],
      payload: PACK,
    })
    const [answer] = await peer.answers(token, 1)
    expect(answer).toMatchObject({ code: '2.04', ack: true, messageId })
    expect(answer?.payload).toHaveLength(0)
    expect(await device.stored()).toMatchObject([
      { name: 'temperature', value: 21.5, protocol: 'coap', publisher: device.id, subtopic: 'a.b' },
    ])
  })

  test('publishes to the same channel under the legacy path and the route of the domain', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    for (const path of [`/channels/${device.channelId}/messages`, `/m/${DOMAIN_ROUTE}/c/${device.channelId}`])
      expect(await peer.request({ code: 'POST', path: device.at('/x', path), payload: PACK })).toMatchObject({
        code: '2.04',
      })
    expect(await device.stored('&subtopic=x')).toHaveLength(2)
  })

  test('without confirmation is answered without confirmation', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const answer = await peer.request({ code: 'POST', path: device.at(), payload: PACK, confirmable: false })
    expect(answer).toMatchObject({ code: '2.04', ack: false, confirmable: false, reset: false })
    expect(await device.stored()).toHaveLength(1)
  })

  test('with an invalid message is refused, and counted in the telemetry of its client like one over HTTP', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const shown = async () =>
      (await plant.owner.call('GET', `/${plant.domainId}/journal/client/${device.id}/telemetry`)).json<{
        unparsed_messages: number
        last_error: string
      }>()
    const options = [uint('Content-Format', 110)]
    const answer = await peer.request({ code: 'POST', path: device.at(), options, payload: 'no pack' })
    expect(answer.code).toBe('4.00')
    await until(async () => (await shown()).unparsed_messages === 1, 'the count of CoAP')
    expect((await shown()).last_error).toMatch(/JSON/)
    const { status } = await fetch(`http://127.0.0.1:${listeners.ports[0]}${device.base}`, {
      method: 'POST',
      headers: { authorization: `Client ${device.secret}`, 'content-type': 'application/senml+json' },
      body: '[{"n":"a","v":"text"}]',
    })
    expect(status).toBe(400)
    await until(async () => (await shown()).unparsed_messages === 2, 'the count of HTTP')
  })

  test.each([
    [110, PACK, 'messages', '2.04'],
    [112, Buffer.from('81a200617602182a', 'hex').toString('latin1'), 'messages', '2.04'],
    [50, '{"any":"json"}', 'json', '2.04'],
    [50, PACK, 'messages', '2.04'],
    [42, 'anything', 'raw', '2.04'],
    [0, 'a text', 'raw', '2.04'],
    [undefined, PACK, 'messages', '2.04'],
    [undefined, '{"any":"json"}', 'json', '2.04'],
    [undefined, 'neither', 'raw', '2.04'],
    [110, 'no pack', 'messages', '4.00'],
    [50, 'no json', 'json', '4.00'],
    [41, '<xml/>', 'raw', '4.15'],
    [60, 'x', 'raw', '4.15'],
  ])('content format %s with %s is stored as %s: %s', async (format, payload, storedAs, code) => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const options = format === undefined ? [] : [uint('Content-Format', format)]
    const body = format === 112 ? Buffer.from('81a20061780102182a', 'hex') : payload
    const cbor = Buffer.from('81a20061760218 2a'.replaceAll(' ', ''), 'hex')
    const answer = await peer.request({
      code: 'POST',
      path: device.at(),
      options,
      payload: format === 112 ? cbor : body,
    })
    expect(answer.code).toBe(code)
    expect(await device.stored(`&format=${storedAs}`)).toHaveLength(code === '2.04' ? 1 : 0)
  })

  test('that is repeated is stored once and answered alike: at once, later, and while it waits', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const ask = { code: 'POST', path: device.at(), payload: PACK, messageId: 4711, token: Buffer.from('abc') } as const
    for (let copy = 0; copy < 5; copy++) peer.ask(ask)
    await peer.answers(ask.token, 1)
    peer.ask(ask)
    const answers = await peer.answers(ask.token, 2)
    expect(answers.map(({ code, messageId, ack }) => ({ code, messageId, ack }))).toEqual(
      answers.map(() => ({ code: '2.04', messageId: 4711, ack: true })),
    )
    peer.ask({ ...ask, messageId: 4712 })
    await until(() => peer.got.some(({ messageId }) => messageId === 4712), 'the next message')
    expect(await device.stored()).toHaveLength(2)
    using other = await openPeer(server.port)
    expect(await other.request(ask)).toMatchObject({ code: '2.04' })
    expect(await device.stored()).toHaveLength(3)
  })

  test('after 247 seconds a message identifier is a new message', async () => {
    let clockMs = 0
    const own = await start(createMetrics([COAP_METRICS.set]), { nowMs: () => clockMs })
    using peer = await openPeer(own.port)
    const device = await aDevice()
    const ask = { code: 'POST', path: device.at(), payload: PACK, messageId: 1 } as const
    await peer.request(ask)
    clockMs += 246_000
    await peer.request(ask)
    expect(await device.stored()).toHaveLength(1)
    clockMs += 3_000
    await peer.request(ask)
    expect(await device.stored()).toHaveLength(2)
    await own.stop()
  })

  test('with a late commit is acknowledged first, and its response is repeated until it is acknowledged', async () => {
    const own = await start(createMetrics([COAP_METRICS.set]), { acknowledgeAfterMs: 1000 })
    using peer = await openPeer(own.port)
    const device = await aDevice()
    // Known to the gate, so that only the commit is late.
    await peer.request({ code: 'POST', path: device.at(), payload: PACK })
    const release = await holdCommits()
    const { token, messageId } = peer.ask({ code: 'POST', path: device.at(), payload: PACK })
    const acknowledgements = () => peer.got.filter((packet) => packet.code === '0.00' && packet.messageId === messageId)
    await until(() => acknowledgements().length === 1, 'an empty acknowledgement')
    expect(acknowledgements()[0]).toMatchObject({ ack: true, code: '0.00' })
    peer.ask({ code: 'POST', path: device.at(), payload: PACK, messageId, token })
    await until(() => acknowledgements().length === 2, 'another acknowledgement')
    await release()
    const [first, second] = await peer.answers(token, 2)
    expect(first).toMatchObject({ code: '2.04', confirmable: true, ack: false })
    expect(second?.messageId).toBe(first?.messageId)
    peer.acknowledge(first as never)
    // A repetition of the request finds its answer remembered.
    peer.ask({ code: 'POST', path: device.at(), payload: PACK, messageId, token })
    const remembered = await until(
      () => peer.got.find((packet) => packet.code !== '0.00' && packet.ack && packet.token.equals(token)),
      'the answer once more',
    )
    expect(remembered).toMatchObject({ code: '2.04', messageId })
    expect(await device.stored()).toHaveLength(2)
    await own.stop()
  })

  test('beyond 1,000 waiting requests is refused with a retry time, or dropped if it requires no confirmation', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await peer.request({ code: 'POST', path: device.at(), payload: PACK })
    const release = await holdCommits()
    try {
      const path = device.at()
      for (let sent = 0; sent < 1000; sent++) {
        peer.ask({ code: 'POST', path, payload: 'x', confirmable: false })
        // A burst beyond the socket's buffer would be lost on the way.
        if (sent % 50 === 49) await new Promise((resolve) => setImmediate(resolve))
      }
      const refused = await until(async () => {
        const answer = await Promise.race([
          peer.request({ code: 'POST', path, payload: 'x' }),
          new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 100)),
        ])
        return answer?.code === '5.03' ? answer : undefined
      }, 'a refusal')
      expect(optionOf(refused, 'Max-Age')).toBeGreaterThan(0)
    } finally {
      await release()
    }
    await until(async () => (await device.stored('&format=raw')).length >= 1000, 'everything taken is stored')
  })
})

describe('refusals', () => {
  test.each([
    ['no query', (base: string) => base, '4.01'],
    ['another query', (base: string, secret: string) => `${base}?authorization=${secret}`, '4.01'],
    ['a second query', (base: string, secret: string) => `${base}?auth=${secret}&x=1`, '4.01'],
    ['the same twice', (base: string, secret: string) => `${base}?auth=${secret}&auth=${secret}`, '4.01'],
    ['an empty secret', (base: string) => `${base}?auth=`, '4.01'],
    ['a wrong secret', (base: string) => `${base}?auth=nobody-has-this-secret`, '4.01'],
    ['a wrong secret and a wrong subtopic', (base: string) => `${base}/a%20b?auth=nobody-has-this-secret`, '4.01'],
    ['white space in the subtopic', (base: string, secret: string) => `${base}/a%20b?auth=${secret}`, '4.00'],
    ['another path', (_base: string, secret: string) => `/somewhere?auth=${secret}`, '4.00'],
    ['a slash in an element', (base: string, secret: string) => `${base}/a%2Fb?auth=${secret}`, '4.00'],
    ['an unknown channel', (_base: string, secret: string) => `/m/${plant.domainId}/c/none?auth=${secret}`, '4.03'],
    ['an unknown domain', (_base: string, secret: string) => `/m/none/c/none?auth=${secret}`, '4.01'],
  ])('%s', async (_name, pathOf, code) => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const path = pathOf(device.base, device.secret)
    for (const method of ['POST', 'GET'] as const)
      expect((await peer.request({ code: method, path, payload: method === 'POST' ? PACK : '' })).code, method).toBe(
        code,
      )
    expect(await device.stored()).toEqual([])
  })

  test('a wildcard is no subtopic to publish to', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    expect((await peer.request({ code: 'POST', path: device.at('/a/%2B'), payload: PACK })).code).toBe('4.00')
  })

  test('a client that is not connected, or for the other direction only, gets 4.03', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const [stranger, writer] = [await plant.newDevice(), await plant.newDevice()]
    await plant.connect(writer, device.channelId, ['publish'])
    expect(
      (await peer.request({ code: 'POST', path: `${device.base}?auth=${stranger.secret}`, payload: PACK })).code,
    ).toBe('4.03')
    expect(
      (await peer.request({ code: 'POST', path: `${device.base}?auth=${writer.secret}`, payload: PACK })).code,
    ).toBe('2.04')
    expect((await peer.request({ path: `${device.base}?auth=${writer.secret}` })).code).toBe('4.03')
  })

  test.each(['PUT', 'DELETE', 'FETCH', 'PATCH', 'iPATCH', '0.31'] as const)('%s is 4.05', async (code) => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    expect((await peer.request({ code, path: device.at() })).code).toBe('4.05')
  })

  test.each([
    ['an unknown critical option', { name: 65_001, value: Buffer.from('x') }, '4.02'],
    ['If-None-Match, which is critical and not understood', { name: 5, value: Buffer.alloc(0) }, '4.02'],
    ['a second Accept', { name: 17, value: Buffer.from([50]) }, '4.02'],
    ['Proxy-Uri', { name: 35, value: Buffer.from('coap://elsewhere') }, '5.05'],
    ['a path that is no UTF-8', { name: 11, value: Buffer.from([0xff, 0xfe]) }, '4.00'],
    ['the reserved size of blocks', { name: 27, value: Buffer.from([7]) }, '4.00'],
    ['an unknown elective option', { name: 65_000, value: Buffer.from('x') }, '2.04'],
  ])('%s', async (_name, option, code) => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const options = [option, ...(option.name === 17 ? [option] : [])]
    expect((await peer.request({ code: 'POST', path: device.at(), options, payload: PACK })).code).toBe(code)
  })

  test('a critical option that is not understood in a NON request is rejected, and nothing is done (sections 4.3 and 5.4.1)', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const options = [{ name: 65_001, value: Buffer.from('x') }]
    const asked = { confirmable: false, options, path: device.at() }
    const rejected = [
      peer.ask({ ...asked, code: 'POST', payload: PACK }),
      peer.ask({ ...asked, code: 'GET' }),
      peer.ask({ ...asked, code: 'PUT' }),
      peer.ask({ ...asked, options: [uint('Accept', 50), uint('Accept', 50)] }),
    ]
    await peer.request({ code: 'POST', path: device.at('/after'), payload: PACK })
    expect(peer.got.slice(0, -1).map(({ code, reset, messageId }) => [code, reset, messageId])).toEqual(
      rejected.map(({ messageId }) => ['0.00', true, messageId]),
    )
    expect((await device.stored()).map(({ subtopic }) => subtopic)).toEqual(['after'])
  })

  test('a ping is answered with a reset, and so is an unreadable confirmable message', async () => {
    using peer = await openPeer(server.port)
    peer.send(Buffer.from([0x40, 0, 0x12, 0x34]))
    peer.send(Buffer.from([0x40, 1, 0x12, 0x35, 0xff]))
    peer.send(Buffer.from([0x50, 1, 0x12, 0x36, 0xff]))
    peer.send(Buffer.from([0x40, 0x45, 0x12, 0x37]))
    peer.send(Buffer.from([0x40, 0, 0x12, 0x38]))
    await until(() => peer.got.some(({ messageId }) => messageId === 0x1238), 'the last reset')
    expect(peer.got.map(({ code, reset, messageId }) => [code, reset, messageId])).toEqual([
      ['0.00', true, 0x1234],
      ['0.00', true, 0x1235],
      ['0.00', true, 0x1237],
      ['0.00', true, 0x1238],
    ])
  })

  test('a stranger receives at most as many bytes as they sent, for any input, and the server continues', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const token = Buffer.from('12345678')
    const path = fc.constantFrom('', '/m', device.base, `${device.base}?auth=wrong`, `/channels/x/messages?auth=y`)
    const options = fc.array(
      fc.record({
        name: fc.integer({ min: 0, max: 2048 }),
        value: fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
      }),
      { maxLength: 4 },
    )
    const requests = fc.record({
      code: fc.constantFrom('GET', 'POST', 'PUT', '0.09'),
      path,
      options,
      payload: fc.string({ maxLength: 40 }),
      confirmable: fc.boolean(),
    })
    let messageId = 0
    let sentBytes = 0
    const seed = randomInt(2 ** 31)
    for (const request of fc.sample(requests, { numRuns: 500, seed })) {
      sentBytes = peer.ask({ ...request, code: request.code as 'GET', messageId: messageId++, token }).bytes
      if (!request.confirmable) continue
      const count = peer.got.length
      await until(
        () => peer.got.length > count || peer.got.some((packet) => packet.messageId === messageId - 1 && packet.ack),
        `an answer, seed ${seed}`,
      )
      const at = peer.got.findIndex((packet) => packet.messageId === messageId - 1 && (packet.ack || packet.reset))
      // A refusal at the bound says how long to wait, in two bytes.
      if (at >= 0) expect(peer.gotBytes[at], `seed ${seed}`).toBeLessThanOrEqual(sentBytes)
    }
    for (const bytes of fc.sample(fc.uint8Array({ maxLength: 200 }), { numRuns: 2000, seed }))
      peer.send(Buffer.from(bytes))
    const valid = generate({
      code: 'POST',
      messageId: 9,
      token,
      payload: Buffer.from(PACK),
      options: [{ name: 'Uri-Path', value: Buffer.from('m') }],
    })
    for (let round = 0; round < 2000; round++) {
      const broken = Buffer.from(valid)
      broken[round % broken.length] = randomBytes(1)[0] as number
      peer.send(broken)
    }
    expect(await peer.request({ code: 'POST', path: device.at(), payload: PACK })).toMatchObject({ code: '2.04' })
  })
})

describe('GET', () => {
  test('returns the newest message with its content format, and 4.04 without a message', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    expect((await peer.request({ path: device.at() })).code).toBe('4.04')
    await peer.request({ code: 'POST', path: device.at(), payload: PACK })
    const pack = await peer.request({ path: device.at() })
    expect(pack.code).toBe('2.05')
    expect(optionOf(pack, 'Content-Format')).toBe(110)
    expect(JSON.parse(pack.payload.toString())).toMatchObject([{ n: 'temperature', u: 'Cel', v: 21.5 }])
    await device.publish('just text', 'text/plain')
    const text = await peer.request({ path: device.at() })
    expect([optionOf(text, 'Content-Format'), text.payload.toString()]).toEqual([0, 'just text'])
    await device.publish('{"precise":12345678901234567890}', 'application/json')
    const json = await peer.request({ path: device.at() })
    expect([optionOf(json, 'Content-Format'), json.payload.toString()]).toEqual([
      50,
      '{"precise":12345678901234567890}',
    ])
    expect(await peer.request({ path: device.at(), confirmable: false })).toMatchObject({
      code: '2.05',
      confirmable: false,
      ack: false,
    })
    // What arrived last is newest, whatever time it speaks of.
    await device.publish('[{"n":"old","t":1276020076,"v":1}]')
    expect((await peer.request({ path: device.at() })).payload.toString()).toContain('"old"')
  })

  test('selects the subtopic of the path, in which wildcards match elements', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish('[{"n":"v","v":1}]', 'application/senml+json', '/a/b')
    await device.publish('{"n":2}', 'application/json', '/a/c')
    await device.publish('raw', 'text/plain', '/a.b/c')
    const got = async (rest: string) => {
      const { code, payload } = await peer.request({ path: device.at(rest) })
      return code === '2.05' ? payload.toString() : code
    }
    expect(await got('')).toBe('4.04')
    expect(await got('/a/b')).toContain('"v":1')
    expect(await got('/a/c')).toBe('{"n":2}')
    expect(await got('/a/%2B')).toBe('{"n":2}')
    expect(await got('/a/%23')).toBe('raw')
    expect(await got('/%23')).toBe('raw')
    expect(await got('/%2B/b')).toContain('"v":1')
    expect(await got('/a/b/c/%23')).toBe('raw')
    expect(await got('/x/%23')).toBe('4.04')
  })

  test('returns the accepted format, or 4.06', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish(PACK)
    const accepting = async (format: number) => {
      const answer = await peer.request({ path: device.at(), options: [uint('Accept', format)] })
      return [answer.code, optionOf(answer, 'Content-Format')]
    }
    expect(await accepting(110)).toEqual(['2.05', 110])
    expect(await accepting(50)).toEqual(['2.05', 50])
    expect(await accepting(112)).toEqual(['2.05', 112])
    expect(await accepting(42)).toEqual(['4.06', undefined])
  })

  test('returns a pack in the requested notation, independent of the one it was sent in', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const cbor = Buffer.from('81a300617601636162630218 2a'.replaceAll(' ', ''), 'hex')
    await device.publish(cbor, 'application/senml+cbor')
    const [json, back] = [
      await peer.request({ path: device.at() }),
      await peer.request({ path: device.at(), options: [uint('Accept', 112)] }),
    ]
    expect(JSON.parse(json.payload.toString())).toMatchObject([{ n: 'v', u: 'abc', v: 42 }])
    expect(optionOf(back, 'Content-Format')).toBe(112)
    expect(back.payload.subarray(0, 4).toString('hex')).toBe('81a40061')
  })

  test('/.well-known/core lists the paths, for any caller', async () => {
    using peer = await openPeer(server.port)
    const answer = await peer.request({ path: '/.well-known/core' })
    expect([answer.code, optionOf(answer, 'Content-Format')]).toEqual(['2.05', 40])
    expect(answer.payload.toString()).toMatch(/^<\/m>;obs,/)
    expect(answer.payload.length).toBeLessThan(64)
  })

  test.each([
    ['href=/m', '</m>;obs'],
    ['href=/ch*', '</channels>;obs'],
    ['href=*', '</m>;obs,</channels>;obs'],
    ['obs', '</m>;obs,</channels>;obs'],
    ['obs=*', '</m>;obs,</channels>;obs'],
    ['href=/nothing', ''],
    ['rt=temperature', ''],
    ['rt=*', ''],
    ['__proto__=*', ''],
    ['href=/m*&rt=x', ''],
  ])('/.well-known/core?%s (RFC 6690 section 4.1) is %j', async (query, links) => {
    using peer = await openPeer(server.port)
    const options = query.split('&').map((one) => ({ name: 'Uri-Query', value: Buffer.from(one) }))
    const answer = await peer.request({ path: '/.well-known/core', options })
    expect([answer.code, answer.payload.toString()]).toEqual(['2.05', links])
  })
})

/** Observes from an address that has proved itself; others are sent one notification until they acknowledge it. */
async function observe(peer: CoapPeer, path: string, options: { name: string; value: Buffer }[] = []) {
  await peer.prove(path)
  const { token } = peer.ask({ path, options: [uint('Observe', 0), ...options] })
  const [first] = await peer.answers(token, 1)
  return { token, first }
}

describe('Observe', () => {
  test('begins with the newest message or an empty payload, and every later message follows with a growing value', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const { token, first } = await observe(peer, device.at())
    expect([first?.code, first?.ack, first?.payload.length]).toEqual(['2.05', true, 0])
    for (let value = 0; value < 5; value++) await device.publish(`[{"n":"v","v":${value}}]`)
    const answers = await peer.answers(token, 6)
    expect(answers.slice(1).map(({ payload }) => payload.toString())).toEqual(
      [0, 1, 2, 3, 4].map((value) => `[{"n":"v","v":${value}}]`),
    )
    expect(answers.slice(1).every(({ confirmable, ack, code }) => !confirmable && !ack && code === '2.05')).toBe(true)
    expect(answers.slice(1).every((answer) => optionOf(answer, 'Content-Format') === 110)).toBe(true)
    const values = answers.map((answer) => optionOf(answer, 'Observe') as number)
    values.forEach((value, index) => expect(value).toBe(((values[0] as number) + index) % 2 ** 24))
    using late = await openPeer(server.port)
    const again = await observe(late, device.at())
    expect(again.first?.payload.toString()).toContain('"v":4')
  })

  test('keeps one format: a message of another ends it with 4.06 (RFC 7641 section 4.2)', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish(PACK)
    const { token, first } = await observe(peer, device.at())
    expect(optionOf(first, 'Content-Format')).toBe(110)
    const cbor = Buffer.from('81a20061760218 2a'.replaceAll(' ', ''), 'hex')
    await device.publish(cbor, 'application/senml+cbor')
    await device.publish('{"on":true}', 'application/json')
    const answers = await peer.answers(token, 3)
    expect(answers.map((answer) => [answer.code, optionOf(answer, 'Content-Format')])).toEqual([
      ['2.05', 110],
      ['2.05', 110],
      ['4.06', undefined],
    ])
    expect(optionOf(answers[2], 'Observe')).toBeUndefined()
    peer.acknowledge(answers[2] as never)
    const again = await observe(peer, device.at())
    expect([again.first?.code, optionOf(again.first, 'Content-Format')]).toEqual(['2.05', 50])
    // A pack in JSON is JSON.
    await device.publish(PACK)
    const [, next] = await peer.answers(again.token, 2)
    expect([next?.code, optionOf(next, 'Content-Format')]).toEqual(['2.05', 50])
    expect(await peer.answers(token, 3)).toHaveLength(3)
  })

  test('fails with 4.06 if the newest message has a format that the observer does not accept', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish('text', 'text/plain')
    const { token, first } = await observe(peer, device.at(), [uint('Accept', 110)])
    expect([first?.code, optionOf(first, 'Observe')]).toEqual(['4.06', undefined])
    await device.publish(PACK)
    const { first: later } = await observe(peer, device.at(), [uint('Accept', 110)])
    expect(later?.code).toBe('2.05')
    expect(await peer.answers(token, 1)).toHaveLength(1)
  })

  test('every twentieth notification is confirmable, and one a minute; an acknowledged one is not sent again', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const { token } = await observe(peer, device.at())
    // What is not acknowledged at once comes again, and counts once.
    const notifications = async (count: number) => {
      const found = () => {
        const all = peer.got.filter((packet) => !packet.ack && packet.token.equals(token))
        return [...new Map(all.map((packet) => [packet.messageId, packet])).values()]
      }
      return await until(() => found().length >= count && found(), `${count} notifications`)
    }
    for (let value = 0; value < 20; value++) await device.publish(`[{"n":"v","v":${value}}]`)
    const first = await notifications(20)
    expect(first.map(({ confirmable }) => confirmable)).toEqual(Array.from({ length: 20 }, (_, index) => index === 19))
    peer.acknowledge(first[19] as never)
    await device.publish('[{"n":"v","v":20}]')
    await notifications(21)
    // The acknowledgement has come when a later datagram is answered.
    await peer.request({ path: device.at() })
    aheadMs += 61_000
    await device.publish('[{"n":"v","v":21}]')
    const after = await notifications(22)
    expect(after[21]).toMatchObject({ confirmable: true })
    peer.acknowledge(after[21] as never)
    const copies = () => peer.got.filter(({ messageId }) => messageId === after[21]?.messageId).length
    await peer.request({ path: device.at() })
    const before = copies()
    aheadMs += 61_000
    await device.publish('[{"n":"v","v":22}]')
    await notifications(23)
    expect(copies()).toBe(before)
  })

  test('requests a sign of life from the observer after a day of silence', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish(PACK)
    const { token } = await observe(peer, device.at())
    aheadMs += 24 * 3_600_000 + 1000
    const [, sign] = await peer.answers(token, 2)
    expect(sign).toMatchObject({ code: '2.05', confirmable: true })
    expect(sign?.payload.toString()).toContain('temperature')
    peer.acknowledge(sign as never)
  })

  test('ends on a reset of a notification, on Observe 1 and on the loss of the peer', async () => {
    const counted = createMetrics([COAP_METRICS.set])
    const own = await start(counted)
    using peer = await openPeer(own.port)
    const device = await aDevice()
    const all = async () => Number(/skein_coap_observations (\d+)/.exec(await counted.registry.metrics())?.[1])
    // Metrics are those of the process: other tests have left observations at the server that they share, which can end meanwhile.
    const others = await all()
    const open = async () => Math.max(0, (await all()) - others)
    const { token } = await observe(peer, device.at())
    expect(await open()).toBe(1)
    await device.publish(PACK)
    const [, notification] = await peer.answers(token, 2)
    peer.reset(notification as never)
    await until(async () => (await open()) === 0, 'the end after a reset')

    const second = await observe(peer, device.at())
    const answer = await peer.answers(
      peer.ask({ path: device.at(), token: second.token, options: [uint('Observe', 1)] }).token,
      2,
    )
    expect(answer.at(-1)).toMatchObject({ code: '2.05', ack: true })
    expect(optionOf(answer.at(-1), 'Observe')).toBeUndefined()
    expect(await open()).toBe(0)

    const third = await observe(peer, device.at())
    aheadMs += 61_000
    await device.publish(PACK)
    const [, confirmable] = await peer.answers(third.token, 2)
    expect(confirmable).toMatchObject({ confirmable: true })
    const copies = () => peer.got.filter(({ messageId }) => messageId === confirmable?.messageId).length
    await until(async () => copies() === 5 && (await open()) === 0, 'the end of a lost peer', 20_000)
    await own.stop()
  })

  test('ends on Observe 1 without credentials too, by endpoint and token (RFC 7641 section 4.1)', async () => {
    using peer = await openPeer(server.port)
    using other = await openPeer(server.port)
    const device = await aDevice()
    const { token } = await observe(peer, device.at())
    const cancel = { path: device.base, options: [uint('Observe', 1)] }
    // Neither another endpoint nor another token ends it.
    expect((await other.request({ ...cancel, token })).code).toBe('4.01')
    expect((await peer.request(cancel)).code).toBe('4.01')
    await device.publish(PACK)
    expect((await peer.answers(token, 2)).at(-1)?.code).toBe('2.05')
    peer.ask({ ...cancel, token })
    const ended = (await peer.answers(token, 3)).at(-1)
    expect([ended?.code, ended?.payload.length, optionOf(ended, 'Observe')]).toEqual(['2.05', 0, undefined])
    // A wrong secret is refused, and ends the observation as well.
    const second = await observe(peer, device.at())
    peer.ask({ ...cancel, path: `${device.base}?auth=nobody-has-this-secret`, token: second.token })
    expect((await peer.answers(second.token, 2)).at(-1)?.code).toBe('4.01')
    const last = await observe(peer, device.at())
    await device.publish(PACK)
    await peer.answers(last.token, 2)
    expect(await peer.answers(token, 3)).toHaveLength(3)
    expect(await peer.answers(second.token, 2)).toHaveLength(2)
  })

  test('with value 1 on an empty channel is 2.05 too', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    expect((await peer.request({ path: device.at(), options: [uint('Observe', 1)] })).code).toBe('2.05')
  })

  test('with the same token replaces the observation, and its value continues', async () => {
    // Who follows here alone: peers of other tests may be found lost meanwhile.
    let following = 0
    const { messages } = plant.api.api
    const follow: Messages['follow'] = async (...asked) => {
      const follower = await messages.follow(...asked)
      following++
      const close = () => {
        following--
        follower.close()
      }
      return { close }
    }
    const own = await start(createMetrics([COAP_METRICS.set]), {
      messages: Object.assign(Object.create(messages) as Messages, { follow }),
    })
    using peer = await openPeer(own.port)
    const device = await aDevice()
    const { token, first } = await observe(peer, device.at())
    peer.ask({ path: device.at(), token, options: [uint('Observe', 0)] })
    const [, again] = await peer.answers(token, 2)
    expect(optionOf(again, 'Observe')).toBe(((optionOf(first, 'Observe') as number) + 1) % 2 ** 24)
    expect(following).toBe(1)
    await device.publish(PACK)
    expect(await peer.answers(token, 3)).toHaveLength(3)
    await own.stop()
  })

  test('is limited to 100 per peer; a further one is answered like a single request', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    for (let count = 0; count < 100; count++)
      expect(optionOf((await observe(peer, device.at())).first, 'Observe')).toBeDefined()
    const { first } = await observe(peer, device.at())
    expect([first?.code, optionOf(first, 'Observe')]).toEqual(['2.05', undefined])
  })

  test('ends with 4.03 within a second when the client loses the channel, and sends nothing more', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const reader = await plant.newDevice()
    await plant.connect(reader, device.channelId, ['subscribe'])
    const { token } = await observe(peer, `${device.base}?auth=${reader.secret}`)
    const body = { client_ids: [reader.id], channel_ids: [device.channelId], types: ['subscribe'] }
    expect((await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, body)).status).toBe(204)
    // The promise is a second; here it must not hang on what else the machine does.
    const [, end] = await peer.answers(token, 2)
    expect(end?.code).toBe('4.03')
    expect(optionOf(end, 'Observe')).toBeUndefined()
    peer.acknowledge(end as never)
    await device.publish(PACK)
    const other = await observe(peer, device.at())
    expect(other.first?.payload.toString()).toContain('temperature')
    expect((await peer.answers(token, 2)).every(({ code }, index) => index === 0 || code === '4.03')).toBe(true)
  })
})

describe('blocks (RFC 7959)', () => {
  const send = (path: string, method: 'POST' | 'GET', body?: Buffer, options: Record<string, string> = {}) =>
    new Promise<{ code: string; payload: Buffer }>((resolve, reject) => {
      const url = new URL(path, 'coap://host')
      const request = coapRequest({
        hostname: '127.0.0.1',
        port: server.port,
        pathname: url.pathname,
        query: url.search.slice(1),
        method,
      })
      for (const [name, value] of Object.entries(options)) request.setOption(name as 'Block1', value as never)
      if (body !== undefined) request.setOption('Block1', Buffer.from([6]))
      request.on('error', reject)
      request.on('response', (response) => resolve({ code: response.code, payload: response.payload }))
      request.end(body)
    })

  test('carry a large body, which is stored whole and returned in blocks', async () => {
    const device = await aDevice()
    const body = Buffer.from(JSON.stringify({ text: 'x'.repeat(100_000) }))
    expect((await send(device.at(), 'POST', body)).code).toBe('2.04')
    const back = await send(device.at(), 'GET')
    expect(back.code).toBe('2.05')
    expect(back.payload.equals(body)).toBe(true)
  })

  test('are each answered with 2.31 until the last, repeated ones too; the blocks belong to the first request', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const part = (number: number, hasMore: boolean, length = 16) => ({
      code: 'POST' as const,
      path: device.at(),
      options: [uint('Block1', (number << 4) | (hasMore ? 8 : 0))],
      payload: Buffer.alloc(length, 65 + number),
    })
    const first = { ...part(0, true), messageId: 100 }
    for (let copy = 0; copy < 2; copy++) {
      const answer = await peer.request(first)
      expect([answer.code, optionOf(answer, 'Block1')]).toEqual(['2.31', 8])
    }
    expect((await peer.request(part(1, true))).code).toBe('2.31')
    const last = { ...part(2, false, 3), messageId: 200 }
    for (let copy = 0; copy < 2; copy++) {
      const answer = await peer.request(last)
      expect([answer.code, optionOf(answer, 'Block1')]).toEqual(['2.04', 2 << 4])
    }
    const [stored, ...more] = await device.stored('&format=raw')
    expect(more).toEqual([])
    const payload = Buffer.from((stored as { payload: string }).payload, 'base64')
    expect(payload.toString()).toBe(`${'A'.repeat(16)}${'B'.repeat(16)}CCC`)
  })

  test('are refused: a missing block with 4.08, a body above the limit with 4.13, another format with 4.15 at the first block', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const path = device.at()
    const payload = Buffer.alloc(1024)
    expect(
      (await peer.request({ code: 'POST', path, options: [uint('Block1', (1 << 4) | 8 | 6)], payload })).code,
    ).toBe('4.08')
    const announced = [uint('Block1', 8 | 6), uint('Size1', MAX_BODY_BYTES + 1)]
    const tooLarge = await peer.request({ code: 'POST', path, options: announced, payload })
    expect([tooLarge.code, optionOf(tooLarge, 'Size1')]).toEqual(['4.13', MAX_BODY_BYTES])
    expect((await send(path, 'POST', Buffer.alloc(MAX_BODY_BYTES + 1))).code).toBe('4.13')
    const format = [uint('Content-Format', 41), uint('Block1', 8 | 6)]
    expect((await peer.request({ code: 'POST', path, options: format, payload })).code).toBe('4.15')
    const stranger = `${device.base}?auth=nobody-has-this-secret`
    expect((await peer.request({ code: 'POST', path: stranger, options: [uint('Block1', 8 | 6)], payload })).code).toBe(
      '4.01',
    )
  })

  describe('of two uploads of one client to one channel at the same time', () => {
    const part = (path: string, number: number, hasMore: boolean, letter: string, more: Ask['options'] = []) => ({
      code: 'POST' as const,
      path,
      options: [uint('Block1', (number << 4) | (hasMore ? 8 : 0)), ...more],
      payload: letter.repeat(16),
    })
    const texts = async (device: Awaited<ReturnType<typeof aDevice>>) =>
      (await device.stored('&format=raw'))
        .map((message) => Buffer.from((message as { payload: string }).payload, 'base64').toString())
        .toSorted()

    test.each([
      ['Request-Tag', [{ name: '292', value: Buffer.from([1]) }], [{ name: '292', value: Buffer.from([2]) }]],
      ['Request-Tag, which may be absent or empty', [], [{ name: '292', value: Buffer.alloc(0) }]],
      ['Content-Format', [uint('Content-Format', 0)], [uint('Content-Format', 42)]],
      ['Accept', [uint('Accept', 0)], [uint('Accept', 50)]],
    ])('are distinguished by %s (RFC 9175 section 3.3)', async (_name, one, other) => {
      using peer = await openPeer(server.port)
      const device = await aDevice()
      const codes: string[] = []
      for (const number of [0, 1, 2]) {
        for (const [letter, options] of [
          ['A', one],
          ['B', other],
        ] as const)
          codes.push((await peer.request(part(device.at(), number, number < 2, letter, options))).code)
      }
      expect(codes).toEqual(['2.31', '2.31', '2.31', '2.31', '2.04', '2.04'])
      await until(async () => (await texts(device)).length === 2, 'both messages')
      expect(await texts(device)).toEqual(['A'.repeat(48), 'B'.repeat(48)])
    })

    test('are refused with 4.08 when nothing distinguishes them: nothing mixed is stored, and either can be sent again', async () => {
      using peer = await openPeer(server.port)
      const device = await aDevice()
      const codes: string[] = []
      for (const number of [0, 1]) {
        for (const letter of ['A', 'B'])
          codes.push((await peer.request(part(device.at(), number, number < 1, letter))).code)
      }
      expect(codes).toEqual(['2.31', '2.31', '4.08', '4.08'])
      expect(await texts(device)).toEqual([])
      for (const letter of ['A', 'B']) {
        expect((await peer.request(part(device.at(), 0, true, letter))).code).toBe('2.31')
        expect((await peer.request(part(device.at(), 1, false, letter))).code).toBe('2.04')
      }
      expect(await texts(device)).toEqual(['A'.repeat(32), 'B'.repeat(32)])
    })

    test('a copy of a refused block is refused again, and is no block of the upload that has begun since', async () => {
      using peer = await openPeer(server.port)
      const device = await aDevice()
      const stray = { ...part(device.at(), 1, false, 'A'), messageId: 300 }
      expect((await peer.request(stray)).code).toBe('4.08')
      expect((await peer.request(part(device.at(), 0, true, 'B'))).code).toBe('2.31')
      expect((await peer.request(stray)).code).toBe('4.08')
      expect((await peer.request(part(device.at(), 1, false, 'B'))).code).toBe('2.04')
      expect(await texts(device)).toEqual(['B'.repeat(32)])
    })
  })

  test('of two reads with different Accept at the same time are of the representation of each', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const records = Array.from({ length: 20 }, (_, index) => ({ n: `sensor-${index}`, v: index }))
    await device.publish(JSON.stringify(records))
    const read = async (format: number, number: number) =>
      await peer.request({
        path: device.at(),
        options: [uint('Accept', format), uint('Block2', (number << 4) | 2)],
      })
    const json: Buffer[] = []
    const cbor: Buffer[] = []
    const etags = new Set<number | undefined>()
    for (let number = 0, isLast = false; !isLast; number++) {
      const [one, other] = [await read(110, number), await read(112, number)]
      json.push(one.payload)
      // CBOR is shorter.
      if (other.code === '2.05') cbor.push(other.payload)
      etags.add(optionOf(one, 'ETag'))
      isLast = ((optionOf(one, 'Block2') ?? 0) & 8) === 0
    }
    expect(JSON.parse(Buffer.concat(json).toString())).toHaveLength(20)
    expect(Buffer.concat(cbor)[0]).toBe(0x94)
    expect(etags.size).toBe(1)
  })

  test('of a large message are all of the same message, although a newer one arrived', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    await device.publish('A'.repeat(100), 'text/plain')
    const first = await peer.request({ path: device.at(), options: [uint('Block2', 2)] })
    expect([first.payload.length, optionOf(first, 'Block2')]).toEqual([64, 8 | 2])
    await device.publish('B'.repeat(100), 'text/plain')
    const rest = await peer.request({ path: device.at(), options: [uint('Block2', (1 << 4) | 2)] })
    expect([rest.payload.toString(), optionOf(rest, 'Block2')]).toEqual(['A'.repeat(36), (1 << 4) | 2])
    expect(optionOf(rest, 'ETag')).toBe(optionOf(first, 'ETag'))
    expect((await peer.request({ path: device.at(), options: [uint('Block2', (9 << 4) | 2)] })).code).toBe('4.00')
  })

  test('of a notification begin with the first one, and the client requests the rest', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const { token } = await observe(peer, device.at())
    await device.publish('C'.repeat(3000), 'text/plain')
    const [, notification] = await peer.answers(token, 2)
    expect([notification?.payload.length, optionOf(notification, 'Block2')]).toEqual([1024, 8 | 6])
    const parts = [notification?.payload.toString()]
    for (const number of [1, 2]) {
      const part = await peer.request({ path: device.at(), options: [uint('Block2', (number << 4) | 6)] })
      expect(optionOf(part, 'ETag')).toBe(optionOf(notification, 'ETag'))
      parts.push(part.payload.toString())
    }
    expect(parts.join('')).toBe('C'.repeat(3000))
  })
})

describe('with the other protocols', () => {
  test('messages over CoAP reach WebSocket, server-sent events and HTTP, and messages over those reach observers', async () => {
    using peer = await openPeer(server.port)
    const device = await aDevice()
    const other = await plant.newDevice()
    await plant.connect(other, device.channelId)
    const host = `127.0.0.1:${listeners.ports[0]}`
    const socket = new WebSocket(`ws://${host}${device.base}`, { headers: { authorization: `Client ${other.secret}` } })
    const frames: string[] = []
    socket.on('message', (data: Buffer) => frames.push(data.toString()))
    await new Promise((resolve) => socket.once('open', resolve))
    const abort = new AbortController()
    const live = await fetch(`http://${host}${device.base}/live`, {
      headers: { authorization: `Client ${other.secret}` },
      signal: abort.signal,
    })
    let events = ''
    void (async () => {
      for await (const chunk of live.body ?? []) events += Buffer.from(chunk).toString()
    })().catch(() => undefined)
    const { token } = await observe(peer, device.at())
    await untilAllFollow(plant.api.api)
    expect((await peer.request({ code: 'POST', path: device.at(), payload: PACK })).code).toBe('2.04')
    await until(() => frames.length === 1 && events.includes('"protocol":"coap"'), 'both to be told')
    expect(frames).toEqual([PACK])
    expect(await device.stored()).toMatchObject([{ protocol: 'coap' }])
    socket.send('[{"n":"from","vs":"socket"}]')
    await device.publish('[{"n":"from","vs":"http"}]')
    const answers = await peer.answers(token, 4)
    expect(
      answers
        .slice(1)
        .map(({ payload }) => payload.toString())
        .toSorted(),
    ).toEqual([PACK, '[{"n":"from","vs":"http"}]', '[{"n":"from","vs":"socket"}]'].toSorted())
    socket.close()
    abort.abort()
  })
})

test('requests are counted as requests of coap', async () => {
  const text = await metrics.registry.metrics()
  expect(text).toMatch(/skein_requests_total\{protocol="coap",route="POST message",outcome="2\.04"\} \d+/)
  expect(text).toMatch(/skein_coap_observations \d+/)
  expect(text).toMatch(/skein_coap_remembered_requests \d+/)
})

test('a server that stops answers the received requests, and closes its socket', async () => {
  const stopping = await start()
  using peer = await openPeer(stopping.port)
  const device = await aDevice()
  await peer.request({ code: 'POST', path: device.at(), payload: PACK })
  const release = await holdCommits()
  const { token } = peer.ask({ code: 'POST', path: device.at(), payload: PACK })
  await until(() => plant.api.api.messages.pending > 0, 'a message that waits')
  const stopped = stopping.stop()
  await release()
  expect((await peer.answers(token, 1))[0]).toMatchObject({ code: '2.04' })
  await stopped
  expect(await device.stored()).toHaveLength(2)
})

test('another implementation reads what Skein writes, and writes what Skein reads', () => {
  const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array))
  const messages = fc.record({
    type: fc.constantFrom(...Object.values(TYPES)),
    code: fc.constantFrom(1, 2, 3, 4, parseCode('2.04'), parseCode('2.05'), parseCode('4.04'), parseCode('5.03')),
    messageId: fc.integer({ min: 0, max: 0xffff }),
    token: bytes(8),
    options: fc
      .array(fc.record({ number: fc.integer({ min: 0, max: 0xffff }), value: bytes(400) }), { maxLength: 6 })
      .map((options) => options.toSorted((left, right) => left.number - right.number)),
    payload: bytes(2000),
  })
  fc.assert(
    fc.property(messages, (message) => {
      const read = parse(encodeMessage(message))
      expect(read.token).toEqual(message.token)
      expect(read.payload).toEqual(message.payload)
      expect(read.options.map(({ value }) => value)).toEqual(message.options.map(({ value }) => value))
      expect(parseMessage(generate({ ...read, code: formatCode(message.code) }, 65_535))).toEqual(message)
    }),
  )
})

const CLIENT_DEADLINE_MS = 60_000
const CLIENTS = ['coap-client-notls', 'coap-client-openssl', 'coap-client']
const client = CLIENTS.find((name) => spawnSync(name, ['-h']).error === undefined)

test.runIf(process.env['CI'] === 'true')("libcoap's coap-client is installed where tests decide", () => {
  expect(client).toBeDefined()
})

describe.skipIf(client === undefined)('coap-client (needs libcoap3-bin)', () => {
  const run = async (...options: string[]) => {
    const { stdout, stderr } = await promisify(execFile)(client as string, options, { timeout: CLIENT_DEADLINE_MS })
    return stdout + stderr
  }

  /** Observes until it is stopped; returns the output so far. */
  function observing(address: string) {
    const seconds = String(CLIENT_DEADLINE_MS / 1000)
    const child = spawn(client as string, ['-m', 'get', '-s', seconds, '-B', seconds, address])
    let text = ''
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    return { text: () => text, [Symbol.dispose]: () => void child.kill('SIGKILL') }
  }

  test('publishes, reads, observes and sends and fetches in blocks', async () => {
    const device = await aDevice()
    const address = `coap://127.0.0.1:${server.port}${device.at()}`
    using observed = observing(address)
    const telemetry = `/${plant.domainId}/journal/client/${device.id}/telemetry`
    const subscriptions = async () =>
      (await plant.owner.call('GET', telemetry)).json<{ subscriptions: number }>().subscriptions
    await until(async () => (await subscriptions()) === 1, 'the observation')
    await run('-m', 'post', '-t', '110', '-e', PACK, address)
    expect(await run('-m', 'get', address)).toContain('"temperature"')
    await until(() => observed.text().includes('"temperature"'), 'the notification')
    expect(
      await run('-m', 'get', `coap://127.0.0.1:${server.port}${device.base}?auth=wrong-secret-of-nobody`),
    ).toContain('4.01')
    const text = `begin ${'0123456789'.repeat(500)} end`
    await run('-m', 'post', '-t', '0', '-b', '256', '-e', text, address)
    expect(await run('-m', 'get', address)).toContain(text)
    expect(await run('-m', 'get', '-b', '64', address)).toContain('end')
    expect(await device.stored('&format=raw')).toHaveLength(1)
    expect(await run('-m', 'put', '-e', 'x', address)).toContain('4.05')
  }, 120_000)
})
