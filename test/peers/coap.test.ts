/**
 * Observers of other implementations (contract section 7.4, RFC 7641 and 7959): messages of several blocks that change while they are
 * read are received whole, and each implementation ends its observation in its own way.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COAP_METRICS, CoapServer } from '#api/adapters/coap/index.ts'
import { createMetrics, listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Observer } from './installed.ts'
import { PEER_NAMES, isInstalled, startObserver } from './installed.ts'

const MAX_BODY_BYTES = 128 * 1024
/** Several blocks of 1,024 bytes, and no whole number of them. */
const MESSAGE_CHARACTERS = 5000

const plant = useWorld(() => startPlant())
const metrics = createMetrics([COAP_METRICS.set])
let server: CoapServer
let listeners: Listeners

beforeAll(async () => {
  server = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: plant.api.api.devices.gate,
    topics: plant.api.api.devices.topics,
    messages: plant.api.api.messages,
    maxBodyBytes: MAX_BODY_BYTES,
    metrics,
    logger,
  })
  const ports = [{ port: 0, isOptional: false, setting: 'TEST' }]
  listeners = await listen(plant.api.app, { host: '127.0.0.1', ports, logger })
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
  await server.stop()
})

/** Of one letter, so that blocks of two messages in one are seen. */
const text = (letter: string) => letter.repeat(MESSAGE_CHARACTERS)

async function aDevice() {
  const device = await plant.newConnectedDevice()
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  return {
    address: { port: server.port, path, query: `auth=${device.secret}` },
    async publish(body: string) {
      const response = await fetch(`http://127.0.0.1:${listeners.ports[0]}${path}`, {
        method: 'POST',
        headers: { authorization: `Client ${device.secret}`, 'content-type': 'text/plain' },
        body,
      })
      expect(response.status).toBe(202)
    },
  }
}

async function observations(): Promise<number> {
  const [, count] = /^skein_coap_observations (\d+)$/m.exec(await metrics.registry.metrics()) ?? []
  return Number(count)
}

const received = ({ events }: Observer) => events.flatMap(({ text: body }) => (body === undefined ? [] : [body]))

test.runIf(process.env['CI'] === 'true').each(PEER_NAMES)('%s is installed where tests decide', (name) => {
  expect(isInstalled(name)).toBe(true)
})

describe.each(PEER_NAMES)('%s', (name) => {
  /** It requests the second block of a confirmable notification in an acknowledgement, which RFC 7252 section 4.2 forbids, and gets none. */
  const losesConfirmable = name === 'go-coap'
  /** It tells the server nothing, and resets the next notification (RFC 7641 section 3.6). */
  const endsByReset = name === 'aiocoap'
  /** It ends the observation instead of reading the changed message from its first block. */
  const endsOnChange = name === 'aiocoap'

  test.skipIf(!isInstalled(name))('receives messages of several blocks whole, and ends its observation', async () => {
    const device = await aDevice()
    await device.publish(text('a'))
    using observer = await startObserver(name, device.address)
    expect(await observations()).toBe(1)
    // The first notification is confirmable.
    await device.publish(text('b'))
    if (!losesConfirmable) await until(() => received(observer).at(-1) === text('b'), 'the message b')
    for (const letter of ['c', 'd']) {
      await device.publish(text(letter))
      await until(() => received(observer).at(-1) === text(letter), `the message ${letter}`)
    }
    expect(received(observer)).toEqual((losesConfirmable ? ['a', 'c', 'd'] : ['a', 'b', 'c', 'd']).map(text))
    await observer.cancel()
    await until(async () => {
      if (endsByReset) await device.publish('the next')
      return (await observations()) === 0
    }, 'the end of the observation')
    expect(observer.events.filter(({ event }) => event === 'error')).toEqual([])
  })

  test.skipIf(!isInstalled(name))('never takes blocks of two messages for one while messages arrive', async () => {
    const device = await aDevice()
    await device.publish(text('a'))
    using observer = await startObserver(name, device.address)
    const letters = 'bcdefghijklmnopqrstuvwxyz'.split('')
    await Promise.all(letters.map((letter) => device.publish(text(letter))))
    const hasEnded = () => observer.events.some((one) => one.event === 'error' && one.name === 'ResourceChanged')
    await device.publish(text('#'))
    await until(() => received(observer).at(-1) === text('#') || (endsOnChange && hasEnded()), 'the newest message')
    const whole = new Set(['a', ...letters, '#'].map(text))
    expect(received(observer).filter((body) => !whole.has(body))).toEqual([])
    await observer.cancel()
    await until(async () => {
      if (endsByReset) await device.publish('the next')
      return (await observations()) === 0
    }, 'the end of the observation')
  })
})
