/**
 * kill -9 under QoS 1 and 2 (contract section 7.6), with mqtt.js as the client on both ends: what was acknowledged is stored, what
 * came with QoS 2 is stored once and delivered once, whatever the moment at which the process died. PostgreSQL is left alone
 * here; the loss test of test/faults kills it too.
 */
import mqtt from 'mqtt'
import type { MqttClient } from 'mqtt'
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { DEADLINE_MS, prepare, startApi } from './kill-support.ts'
import type { Whole } from '../harness/whole.ts'

const KILLS = 2
/** Messages that must be acknowledged between two kills. */
const BETWEEN = 60

type Answered = { qos: 1 | 2; value: number }

async function setUp(whole: Whole) {
  const login = await whole.call('POST', '/users/tokens/issue', {
    body: { identity: 'admin', secret: 'the-first-admin' },
  })
  const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
  const create = async <T>(path: string, body: unknown): Promise<T> => {
    const answer = await whole.call('POST', path, { body, authorization })
    expect(answer.status, answer.text).toBe(201)
    return answer.text === '' ? (undefined as T) : answer.json<T>()
  }
  const { id: domainId } = await create<{ id: string }>('/domains', { name: 'kill' })
  const channel = await create<{ id: string }>(`/${domainId}/channels`, { name: 'kill' })
  const device = async () => {
    const client = await create<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, { name: 'c' })
    const body = { client_ids: [client.id], channel_ids: [channel.id], types: ['publish', 'subscribe'] }
    await create(`/${domainId}/channels/connect`, body)
    return { username: client.id, password: client.credentials.secret }
  }
  return { topic: `m/${domainId}/c/${channel.id}`, sender: await device(), receiver: await device() }
}

test(
  'kill -9 of the process loses no acknowledged message, and QoS 2 is stored once',
  { timeout: 400_000 },
  async () => {
    await using stack = new AsyncDisposableStack()
    const { installation, port } = await prepare(stack)
    let whole = await startApi(installation)
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const { topic, sender, receiver } = await setUp(whole)
    const open = (clientId: string, who: typeof sender): MqttClient => {
      const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
        ...who,
        clientId,
        clean: false,
        reconnectPeriod: 50,
        reconnectOnConnackError: true,
        connectTimeout: 5000,
      })
      client.on('error', () => undefined)
      stack.defer(async () => await client.endAsync(true))
      return client
    }

    const delivered: string[] = []
    const subscriber = open('subscriber', receiver)
    subscriber.on('message', (name) => delivered.push(name.slice(topic.length + 1)))
    await subscriber.subscribeAsync(`${topic}/#`, { qos: 2 })

    const answered: Answered[] = []
    const publisher = open('publisher', sender)
    let next = 0
    let isOver = false
    const publish = async (qos: 1 | 2) => {
      while (!isOver) {
        const value = next++
        const body = JSON.stringify([{ n: `q${qos}`, v: value }])
        // mqtt.js sends again, with the same identifier, until it is answered.
        await publisher.publishAsync(`${topic}/q${qos}.${value}`, body, { qos })
        answered.push({ qos, value })
      }
    }
    const writers = Promise.all([publish(1), publish(2), publish(1), publish(2), publish(1), publish(2)])
    for (let kill = 0; kill < KILLS; kill++) {
      const enough = answered.length + BETWEEN
      await until(() => answered.length >= enough, 'messages are acknowledged', DEADLINE_MS)
      whole.kill('SIGKILL')
      await whole.ended
      whole = await startApi(installation)
    }
    const enough = answered.length + BETWEEN
    await until(() => answered.length >= enough, 'messages are acknowledged', DEADLINE_MS)
    isOver = true
    await writers

    const stored = new Map<string, number>()
    for (let offset = 0; ; offset += 1000) {
      const page = await whole.call('GET', `/${topic}?limit=1000&offset=${offset}&dir=asc`, {
        authorization: `Client ${receiver.password}`,
      })
      const { messages } = page.json<{ messages: { name: string; value: number }[] }>()
      for (const { name, value } of messages) stored.set(`${name}.${value}`, (stored.get(`${name}.${value}`) ?? 0) + 1)
      if (messages.length < 1000) break
    }
    const names = answered.map(({ qos, value }) => `q${qos}.${value}`)
    expect(names.filter((name) => !stored.has(name))).toEqual([])
    const twice = ([name, count]: [string, number]) => name.startsWith('q2') && count > 1
    expect([...stored].filter(twice)).toEqual([])

    const asTopic = (name: string) => name.replace('.', '/')
    const missing = () => names.filter((name) => !delivered.includes(asTopic(name)))
    await until(() => missing().length === 0, 'everything is delivered', DEADLINE_MS).catch((error: Error) => {
      throw new Error(`${error.message}: not delivered of ${names.length} are ${missing().join(' ')}`)
    })
    const exactlyOnce = delivered.filter((name) => name.startsWith('q2'))
    expect(exactlyOnce.toSorted()).toEqual([...new Set(exactlyOnce)].toSorted())
  },
)
