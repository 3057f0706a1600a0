/**
 * Where a new subscription begins (decision 0070; MQTT 5.0 sections 3.8.4 and 3.3.1.3): what was acknowledged before SUBSCRIBE is not sent
 * as a live message, what is acknowledged after SUBACK is.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Peer } from './peer.ts'
import { publish, receive, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, leave, startNode } from './support.ts'

/** The fault that these tests show came in a third of the tries. */
const TRIES = 100
/** More than a session takes up at once when it comes back. */
const MISSED = 2_500

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

/** What came of each of these subtopics until a last message: whether it was the retained copy. */
async function copiesUntilEnd(peer: Peer, topic: string): Promise<Map<string, boolean[]>> {
  const copies = new Map<string, boolean[]>()
  for (;;) {
    const message = await peer.next('publish')
    if (message.topic === `${topic}/end`) return copies
    copies.set(message.topic, [...(copies.get(message.topic) ?? []), message.retain])
  }
}

test.each([
  ['with another subscription on the channel', 'own'],
  ['whose channel another client follows', 'foreign'],
])(
  'a client %s gets a message that was acknowledged before once, as the retained one',
  async (_, whose) => {
    const device = await aDevice(plant, node.port)
    using publisher = await device.connect({ clientId: 'publisher' })
    using subscriber = await device.connect({ clientId: 'subscriber' })
    using other = await device.connect({ clientId: 'other' })
    await subscribe(whose === 'own' ? subscriber : other, `${device.topic}/first`, 0)
    await subscribe(subscriber, `${device.topic}/end`, 0)
    for (let tried = 0; tried < TRIES; tried++) {
      await publish(publisher, `${device.topic}/${tried}`, 'x', { retain: true })
      await subscribe(subscriber, `${device.topic}/${tried}`, 0)
    }
    await publish(publisher, `${device.topic}/end`, 'end')
    const copies = await copiesUntilEnd(subscriber, device.topic)
    expect(copies.size).toBe(TRIES)
    expect([...copies.values()].filter((retained) => retained.length !== 1 || retained[0] !== true)).toEqual([])
  },
  60_000,
)

test('a message that is acknowledged after SUBACK is sent, also to clients that repeat the subscription', async () => {
  const device = await aDevice(plant, node.port)
  using publisher = await device.connect({ clientId: 'publisher' })
  using subscriber = await device.connect({ clientId: 'subscriber' })
  await subscribe(subscriber, `${device.topic}/#`, 1)
  const sent: string[] = []
  const got: string[] = []
  for (let tried = 0; tried < TRIES; tried++) {
    // One is on its way while the subscription is replaced [MQTT-3.8.4-3].
    await publish(publisher, `${device.topic}/${tried}`, `before ${tried}`)
    await subscribe(subscriber, `${device.topic}/#`, 1)
    await publish(publisher, `${device.topic}/${tried}`, `after ${tried}`)
    sent.push(`before ${tried}`, `after ${tried}`)
    got.push(await receive(subscriber), await receive(subscriber))
  }
  expect(got).toEqual(sent)
}, 60_000)

test('a session with missed messages gets none of them for a subscription that it adds meanwhile', async () => {
  const device = await aDevice(plant, node.port)
  const kept = { clientId: 'kept', clean: false }
  {
    using before = await device.connect(kept)
    await subscribe(before, `${device.topic}/a`, 1)
    await leave(before)
  }
  using publisher = await device.connect({ clientId: 'publisher' })
  for (let number = 0; number < MISSED; number++) {
    const more = { qos: 1, dup: false, retain: false } as const
    publisher.send({ cmd: 'publish', topic: `${device.topic}/a`, payload: `${number}`, messageId: 1, ...more })
    publisher.send({ cmd: 'publish', topic: `${device.topic}/b`, payload: `${number}`, messageId: 2, ...more })
    if (number % 100 === 99) for (let answer = 0; answer < 200; answer++) await publisher.next('puback')
  }
  using back = await device.connect(kept)
  back.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${device.topic}/b`, qos: 1 }] })
  await back.next('suback')
  await publish(publisher, `${device.topic}/b`, 'later')
  const got: string[] = []
  for (;;) {
    const { topic, payload, messageId = 0 } = await back.next('publish')
    back.send({ cmd: 'puback', messageId })
    got.push(`${topic.slice(-1)} ${payload.toString()}`)
    if (payload.toString() === 'later') break
  }
  expect(got).toEqual([...Array.from({ length: MISSED }, (_, number) => `a ${number}`), 'b later'])
}, 120_000)
