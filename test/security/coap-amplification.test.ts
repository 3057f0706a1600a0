/**
 * Forged source addresses over CoAP (RFC 7252 section 11.3, RFC 7641 section 7): an attacker who writes the address of a victim
 * into a request must not make the server send it much. A peer that never answers represents the victim: it receives for its
 * own requests what a victim would receive for those of an attacker with a valid secret.
 */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { promisify } from 'node:util'
import type { ParsedPacket } from 'coap-packet'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CoapServer } from '#api/adapters/coap/index.ts'
import { monotonicMs } from '#core/time.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { echoOf, openPeer, optionOf } from '../messages/coap-peer.ts'
import type { Ask, CoapPeer } from '../messages/coap-peer.ts'
import type { Plant } from '../messages/support.ts'
import { startPlant } from '../messages/support.ts'

const MAX_AMPLIFICATION = 3
const FIVE_MINUTES_MS = 300_000
const ECHO = 252
const OBSERVE = { name: 'Observe', value: Buffer.alloc(0) }
const LARGE = 'x'.repeat(3000)

let plant: Plant
let server: CoapServer
/** Milliseconds that the server's clock is ahead. */
let aheadMs = 0

beforeAll(async () => {
  plant = await startPlant()
  server = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: plant.api.api.devices.gate,
    topics: plant.api.api.devices.topics,
    messages: plant.api.api.messages,
    maxBodyBytes: 128 * 1024,
    // Answers come on the acknowledgement, however busy the machine is.
    acknowledgeAfterMs: 3_600_000,
    nowMs: () => monotonicMs() + aheadMs,
    logger,
  })
}, 60_000)
afterAll(async () => {
  await server?.stop()
  await plant?.[Symbol.asyncDispose]()
})

async function aDevice() {
  const device = await plant.newConnectedDevice()
  const path = `/m/${plant.domainId}/c/${device.channelId}?auth=${device.secret}`
  /** Publishes from an address of its own. */
  const publish = async (payload: string) => {
    using publisher = await openPeer(server.port)
    const options = [{ name: 'Content-Format', value: Buffer.alloc(0) }]
    const blocks = payload.match(/.{1,1024}/gs) ?? ['']
    for (const [number, part] of blocks.entries()) {
      const hasMore = number < blocks.length - 1
      const block = { name: 'Block1', value: Buffer.from([(number << 4) | (hasMore ? 8 : 0) | 6]) }
      const all = blocks.length === 1 ? options : [...options, block]
      const { code } = await publisher.request({ code: 'POST', path, options: all, payload: part })
      expect(code).toBe(hasMore ? '2.31' : '2.04')
    }
  }
  return { ...device, path, publish }
}

const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0)
const withToken = (peer: CoapPeer, token: Buffer) =>
  peer.got.filter((packet) => packet.code !== '0.00' && packet.token.equals(token))
/** Each message once, however often it was sent. */
const distinct = (packets: readonly ParsedPacket[]) => [
  ...new Map(packets.map((packet) => [packet.messageId, packet])).values(),
]
/** What was sent to this peer before has arrived when a later datagram is answered. */
const settle = async (peer: CoapPeer, path = '/.well-known/core') => await peer.request({ path })

/** Sends it, and gives how many bytes the request had with the answer. */
async function ask(peer: CoapPeer, request: Ask) {
  const { token, bytes } = peer.ask(request)
  const [answer] = await peer.answers(token, 1)
  return { answer: answer as ParsedPacket, bytes, token }
}

const echo = (value: Buffer) => ({ name: ECHO, value })
/** Of the answer to a GET: 1,024 bytes to an address that has proved itself. */
const isLimited = async (peer: CoapPeer, path: string, options: Ask['options'] = []) =>
  (await ask(peer, { path, options })).answer.payload.length < 1024

describe('to an unverified address', () => {
  test('the response to any request is at most three times its size', async () => {
    const device = await aDevice()
    await device.publish(LARGE)
    // Published elsewhere, so that the newest message stays large.
    const writer = await aDevice()
    const uint8 = (name: string | number, max: number) =>
      fc.integer({ min: 0, max }).map((value) => ({ name, value: Buffer.from([value]) }))
    const option = fc.oneof(
      fc.constant(OBSERVE),
      uint8('Observe', 1),
      uint8('Block2', 0x6f),
      uint8('Block1', 0x1f),
      uint8('Accept', 60),
      uint8('Content-Format', 112),
      fc.uint8Array({ minLength: 1, maxLength: 8 }).map((value) => ({ name: 'ETag', value: Buffer.from(value) })),
      fc.uint8Array({ minLength: 1, maxLength: 40 }).map((value) => echo(Buffer.from(value))),
    )
    const requests = fc.record({
      code: fc.constantFrom('GET', 'GET', 'POST', 'PUT'),
      path: fc.constantFrom(device.path, device.path, '/.well-known/core', '/m', `${device.path}x`),
      options: fc.uniqueArray(option, { maxLength: 3, selector: ({ name }) => name }),
      payload: fc.string({ maxLength: 20 }),
      token: fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes)),
    })
    let worst = 0
    const seed = Math.trunc(Math.random() * 2 ** 31)
    for (const request of fc.sample(requests, { numRuns: 300, seed })) {
      // Of each request a new address, so that no answer to another one is counted.
      using victim = await openPeer(server.port)
      const path = request.code === 'POST' ? request.path.replace(device.path, writer.path) : request.path
      const { bytes } = victim.ask({ ...request, path, code: request.code as 'GET' })
      await until(() => victim.gotBytes.length > 0, `an answer, seed ${seed}`)
      worst = Math.max(worst, sum(victim.gotBytes) / bytes)
      expect(sum(victim.gotBytes), `seed ${seed}`).toBeLessThanOrEqual(MAX_AMPLIFICATION * bytes)
    }
    console.log(`the largest answer had ${worst.toFixed(2)} times the bytes of its request`)
    // The test sees blocks of the large message.
    expect(worst).toBeGreaterThan(2)
  })

  test('an observation sends one notification until it is acknowledged, within the same limit, and then ends', async () => {
    const device = await aDevice()
    await device.publish(LARGE)
    using victim = await openPeer(server.port)
    const askedBytes = victim.ask({ path: device.path, options: [OBSERVE], token: Buffer.from('victim') }).bytes
    await victim.answers(Buffer.from('victim'), 1)
    for (let message = 0; message < 30; message++) await device.publish(`${message}${LARGE}`)
    await victim.answers(Buffer.from('victim'), 2)
    await untilEnded(device.id)
    await device.publish(LARGE)
    const victimBytes = sum(victim.gotBytes)
    console.log(`unacknowledged observation: ${victimBytes} bytes for ${askedBytes}`)
    expect(victimBytes).toBeLessThanOrEqual(MAX_AMPLIFICATION * askedBytes)
    expect(distinct(withToken(victim, Buffer.from('victim')))).toHaveLength(2)
  })

  test('a hundred observations of one address send no more than their requests allow', async () => {
    const device = await aDevice()
    using victim = await openPeer(server.port)
    let askedBytes = 0
    const tokens = Array.from({ length: 100 }, (_, index) => Buffer.from(`token${index}`))
    for (const token of tokens) {
      askedBytes += victim.ask({ path: device.path, options: [OBSERVE], token }).bytes
      await victim.answers(token, 1)
    }
    for (let message = 0; message < 5; message++) await device.publish(LARGE)
    await until(() => victim.got.some(({ ack, code }) => !ack && code === '2.05'), 'a notification')
    await settle(victim)
    const notifications = distinct(victim.got.filter(({ ack, code }) => !ack && code === '2.05'))
    // One that asks for an acknowledgement; the others wait for it.
    expect(notifications).toHaveLength(1)
    expect(notifications[0]?.confirmable).toBe(true)
    expect(sum(victim.gotBytes)).toBeLessThanOrEqual(MAX_AMPLIFICATION * askedBytes)
  })

  test('a large message arrives whole in smaller blocks, at a client without Echo and ETag', async () => {
    const device = await aDevice()
    const text = Array.from({ length: 400 }, (_, index) => `line ${index};`).join('')
    await device.publish(text)
    using peer = await openPeer(server.port)
    const { answer, bytes } = await ask(peer, { path: device.path })
    expect(answer.code).toBe('2.05')
    expect(sum(peer.gotBytes)).toBeLessThanOrEqual(MAX_AMPLIFICATION * bytes)
    const parts = [answer.payload.toString()]
    const exponent = (optionOf(answer, 'Block2') as number) & 7
    for (let number = 1, hasMore = true; hasMore; number++) {
      const value = Buffer.alloc(2)
      value.writeUInt16BE((number << 4) | exponent)
      const before = sum(peer.gotBytes)
      const next = await ask(peer, { path: device.path, options: [{ name: 'Block2', value }] })
      expect(sum(peer.gotBytes) - before).toBeLessThanOrEqual(MAX_AMPLIFICATION * next.bytes)
      expect(next.answer.code).toBe('2.05')
      parts.push(next.answer.payload.toString())
      hasMore = ((optionOf(next.answer, 'Block2') as number) & 8) !== 0
    }
    expect(parts.join('')).toBe(text)
  })
})

/** Observations of the client, as the platform counts them. */
async function observations(clientId: string): Promise<number> {
  const answer = await plant.owner.call('GET', `/${plant.domainId}/journal/client/${clientId}/telemetry`)
  return answer.json<{ subscriptions: number }>().subscriptions
}

/** It is counted a moment after it began. */
const untilCounted = (clientId: string) =>
  until(async () => (await observations(clientId)) === 1, 'the observation to be counted')

/** All repetitions, and the end of their time: no step is longer than the wait before one of them. */
async function untilEnded(clientId: string): Promise<void> {
  await untilCounted(clientId)
  await until(async () => {
    aheadMs += 1000
    return (await observations(clientId)) === 0
  }, 'the end of the observation')
}

describe('an address is verified', () => {
  test('by the Echo value of a response, for five minutes', async () => {
    const device = await aDevice()
    await device.publish(LARGE)
    using peer = await openPeer(server.port)
    const offered = echoOf((await ask(peer, { path: device.path })).answer) as Buffer
    expect(offered).toHaveLength(8)
    expect(await isLimited(peer, device.path)).toBe(true)
    expect(await isLimited(peer, device.path, [echo(offered)])).toBe(false)
    expect(await isLimited(peer, device.path)).toBe(false)
    aheadMs += FIVE_MINUTES_MS
    expect(await isLimited(peer, device.path)).toBe(true)
    // The value is as old.
    expect(await isLimited(peer, device.path, [echo(offered)])).toBe(true)
  })

  test('by no Echo value of another address, of another length or invented, and by none without a secret', async () => {
    const device = await aDevice()
    await device.publish(LARGE)
    using peer = await openPeer(server.port)
    using other = await openPeer(server.port)
    const foreign = echoOf((await ask(other, { path: device.path })).answer) as Buffer
    for (const value of [foreign, foreign.subarray(1), Buffer.alloc(8), Buffer.alloc(40)])
      expect(await isLimited(peer, device.path, [echo(value)])).toBe(true)
    using stranger = await openPeer(server.port)
    const own = echoOf((await ask(stranger, { path: '/.well-known/core' })).answer) as Buffer
    await ask(stranger, { path: '/.well-known/core', options: [echo(own)] })
    expect(await isLimited(stranger, device.path)).toBe(true)
  })

  test('by the ETag of a message in blocks, and by no other', async () => {
    const device = await aDevice()
    await device.publish(LARGE)
    using peer = await openPeer(server.port)
    const first = (await ask(peer, { path: device.path })).answer
    const etag = first.options.find(({ name }) => name === 'ETag')?.value as Buffer
    const second = { name: 'Block2', value: Buffer.from([(1 << 4) | ((optionOf(first, 'Block2') as number) & 7)]) }
    using other = await openPeer(server.port)
    const foreign = (await ask(other, { path: device.path })).answer.options.find(({ name }) => name === 'ETag')
    for (const value of [foreign?.value as Buffer, Buffer.alloc(6), etag.subarray(1)]) {
      await ask(peer, { path: device.path, options: [second, { name: 'ETag', value }] })
      expect(await isLimited(peer, device.path)).toBe(true)
    }
    await ask(peer, { path: device.path, options: [second, { name: 'ETag', value: etag }] })
    expect(await isLimited(peer, device.path)).toBe(false)
  })

  test('by acknowledging the first notification, after which the waiting ones follow in order', async () => {
    const device = await aDevice()
    using peer = await openPeer(server.port)
    const { token } = await ask(peer, { path: device.path, options: [OBSERVE] })
    for (let message = 0; message < 10; message++) await device.publish(`message ${message}`)
    const [, first] = await peer.answers(token, 2)
    expect(first?.confirmable).toBe(true)
    await settle(peer)
    expect(distinct(withToken(peer, token))).toHaveLength(2)
    peer.acknowledge(first as ParsedPacket)
    await until(() => distinct(withToken(peer, token)).length === 11, 'all of them')
    const [, ...notifications] = distinct(withToken(peer, token))
    expect(notifications.map(({ payload }) => payload.toString())).toEqual(
      Array.from({ length: 10 }, (_, index) => `message ${index}`),
    )
    expect(notifications.slice(1).every(({ confirmable }) => !confirmable)).toBe(true)
    await device.publish(LARGE)
    expect(await isLimited(peer, device.path)).toBe(false)
  })

  test('by no reset: a CoAP host resets what it did not request', async () => {
    const device = await aDevice()
    using victim = await openPeer(server.port)
    const { token } = await ask(victim, { path: device.path, options: [OBSERVE] })
    await device.publish(LARGE)
    const [, notification] = await victim.answers(token, 2)
    await untilCounted(device.id)
    victim.reset(notification as ParsedPacket)
    await until(async () => (await observations(device.id)) === 0, 'the end of the observation')
    expect(await isLimited(victim, device.path)).toBe(true)
  })

  test('by no guessed acknowledgement: after three wrong ones, none verifies anything for five minutes', async () => {
    using victim = await openPeer(server.port)
    const device = await aDevice()
    await device.publish(LARGE)
    const observe = async () => {
      const observed = await aDevice()
      const { token } = await ask(victim, { path: observed.path, options: [OBSERVE] })
      await observed.publish(LARGE)
      return (await victim.answers(token, 2))[1] as ParsedPacket
    }
    const first = await observe()
    for (let guess = 1; guess <= 3; guess++)
      victim.acknowledge({ ...first, messageId: (first.messageId + guess) % 0x1_0000 })
    victim.acknowledge(first)
    await settle(victim)
    expect(await isLimited(victim, device.path)).toBe(true)
    aheadMs += FIVE_MINUTES_MS + 1000
    victim.acknowledge(await observe())
    await settle(victim)
    expect(await isLimited(victim, device.path)).toBe(false)
  })
})

test('a verified peer that disappears receives 20 notifications, the last of them five times, and no more', async () => {
  const device = await aDevice()
  using peer = await openPeer(server.port)
  await peer.prove(device.path)
  const { token } = await ask(peer, { path: device.path, options: [OBSERVE] })
  for (let message = 0; message < 40; message++) await device.publish(`message ${message}`)
  await until(() => withToken(peer, token).at(-1)?.confirmable === true, 'a confirmable one')
  await untilEnded(device.id)
  const [, ...notifications] = withToken(peer, token)
  expect(distinct(notifications)).toHaveLength(20)
  expect(notifications).toHaveLength(24)
})

const CLIENT_DEADLINE_MS = 60_000
const client = ['coap-client-notls', 'coap-client-openssl', 'coap-client'].find(
  (name) => spawnSync(name, ['-h']).error === undefined,
)

describe.skipIf(client === undefined)("libcoap's coap-client (needs libcoap3-bin)", () => {
  const run = async (...options: string[]) => {
    const { stdout, stderr } = await promisify(execFile)(client as string, options, { timeout: CLIENT_DEADLINE_MS })
    return stdout + stderr
  }
  const addressOf = (path: string) => `coap://127.0.0.1:${server.port}${path}`

  test('discovers, and gets a message that is far larger than its request', async () => {
    const device = await aDevice()
    const text = `begin ${LARGE} end`
    await device.publish(text)
    expect(await run('-m', 'get', addressOf('/.well-known/core'))).toContain('</m>;obs')
    expect(await run('-m', 'get', addressOf(device.path))).toContain(text)
    expect(await run('-m', 'get', '-N', addressOf(device.path))).toContain('begin xxx')
  })

  test('observes everything: it acknowledges the first notification, and every twentieth', async () => {
    const device = await aDevice()
    const seconds = String(CLIENT_DEADLINE_MS / 1000)
    const child = spawn(client as string, ['-m', 'get', '-s', seconds, '-B', seconds, addressOf(device.path)])
    let text = ''
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    try {
      await until(async () => (await observations(device.id)) === 1, 'the observation')
      const messages = Array.from({ length: 50 }, (_, index) => `[${index}]`)
      for (const message of messages) await device.publish(message)
      await until(() => text.includes('[49]'), 'the last message')
      expect(text.match(/\[\d+\]/g)).toEqual(messages)
      await device.publish(`begin ${LARGE} end`)
      await until(() => text.includes(`begin ${LARGE} end`), 'a message in blocks')
    } finally {
      child.kill('SIGKILL')
    }
  })
})
