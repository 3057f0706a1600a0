/**
 * Writers of the loss test, one table row for each protocol: each sends one value and says whether it was acknowledged
 * (contract section 7.6). What is not acknowledged may be stored or not; only a writer with keys sends it again.
 */
import { randomInt, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { ConnectionOptions } from 'node:tls'
import mqtt from 'mqtt'
import { WebSocket } from 'ws'
import { openPeer } from '../messages/coap-peer.ts'

export type Node = {
  readonly base: string
  readonly coapPort: number
  readonly mqttPort: number
  /** MQTT is spoken over TLS. */
  readonly mqttTls?: ConnectionOptions
}

export type Target = { readonly path: string; readonly clientId: string; readonly secret: string }

export type Writer = Disposable & {
  /** Resolves when it is acknowledged. Rejects when nobody knows. */
  write(value: number): Promise<void>
}

export type Kind = {
  readonly name: string
  /** Sends a value until it is acknowledged, under one key: it is stored exactly once. */
  readonly isKeyed: boolean
  /** `pick` gives another node each time. */
  open(target: Target, pick: () => Node): Writer
}

const ANSWER_DEADLINE_MS = 12_000
const RETRANSMIT_MS = 500
const TRANSMISSIONS = 4
const MQTT_RECONNECT_MS = 100

const packOf = (value: number) => JSON.stringify([{ n: 'v', v: value }])

const http = (isKeyed: boolean): Kind => ({
  name: isKeyed ? 'HTTP with a key' : 'HTTP',
  isKeyed,
  open: ({ path, secret }, pick) => ({
    async write(value) {
      const response = await fetch(`${pick().base}${path}`, {
        method: 'POST',
        headers: {
          authorization: `Client ${secret}`,
          'content-type': 'application/senml+json',
          ...(isKeyed ? { 'idempotency-key': `value-${value}` } : {}),
        },
        body: packOf(value),
        signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
      })
      const text = await response.text()
      if (response.status !== 202) throw new Error(`${response.status} ${text}`)
    },
    [Symbol.dispose]: () => undefined,
  }),
})

const webSocket: Kind = {
  name: 'WebSocket',
  isKeyed: false,
  open({ path, secret }, pick) {
    let socket: WebSocket | undefined
    let frames = 0
    async function connected(): Promise<WebSocket> {
      if (socket?.readyState === WebSocket.OPEN) return socket
      socket?.terminate()
      const url = `${pick().base.replace('http', 'ws')}${path}?ack=1`
      const fresh = new WebSocket(url, { headers: { authorization: `Client ${secret}` }, handshakeTimeout: 5000 })
      fresh.on('error', () => undefined)
      socket = fresh
      frames = 0
      await once(fresh, 'open', { signal: AbortSignal.timeout(ANSWER_DEADLINE_MS) })
      return fresh
    }
    return {
      async write(value) {
        const at = await connected()
        const frame = ++frames
        const answered = new Promise<void>((resolve, reject) => {
          const listen = (data: Buffer) => {
            // Other writers of the channel are other sockets: their messages arrive here too.
            if (data.toString() !== `{"ack":${frame}}`) return
            end()
            resolve()
          }
          const close = (code: number) => {
            end()
            reject(new Error(`closed with ${code}`))
          }
          const timer = setTimeout(() => at.terminate(), ANSWER_DEADLINE_MS)
          function end(): void {
            clearTimeout(timer)
            at.off('message', listen).off('close', close)
          }
          at.on('message', listen).on('close', close)
        })
        at.send(packOf(value))
        await answered
      },
      [Symbol.dispose]: () => socket?.terminate(),
    }
  },
}

const coap: Kind = {
  name: 'CoAP',
  isKeyed: false,
  open: ({ path, secret }, pick) => ({
    async write(value) {
      using peer = await openPeer(pick().coapPort)
      const token = Buffer.from(String(value))
      const messageId = randomInt(0x1_0000)
      for (let sent = 0; sent < TRANSMISSIONS; sent++) {
        // RFC 7252 section 4.2: the same message again, until it is answered.
        const options = [{ name: 'Content-Format', value: Buffer.from([110]) }]
        peer.ask({ code: 'POST', path: `${path}?auth=${secret}`, options, payload: packOf(value), messageId, token })
        const refused = peer.refused.then(() => {
          throw new Error('refused')
        })
        const [answer] = await Promise.race([peer.answers(token, 1, RETRANSMIT_MS).catch(() => []), refused])
        if (answer?.code === '2.04') return
        if (answer !== undefined) throw new Error(answer.code)
      }
      throw new Error('no answer')
    },
    [Symbol.dispose]: () => undefined,
  }),
}

/** A session that is kept, on whichever node: with QoS 2 its packet identifiers are the keys. */
const mqttKind = (qos: 1 | 2): Kind => ({
  name: `MQTT with QoS ${qos}`,
  isKeyed: qos === 2,
  open({ path, clientId, secret }, pick) {
    const dial = () => {
      const { mqttPort: port, mqttTls } = pick()
      return mqttTls === undefined
        ? connect(port, '127.0.0.1')
        : connectTls({ ...mqttTls, port, host: '127.0.0.1' }).on('error', () => undefined)
    }
    const client = new mqtt.MqttClient(dial, {
      clientId: randomUUID(),
      clean: false,
      username: clientId,
      password: secret,
      reconnectPeriod: MQTT_RECONNECT_MS,
      // "Server unavailable" is said while the database is away.
      reconnectOnConnackError: true,
      connectTimeout: ANSWER_DEADLINE_MS,
      keepalive: 5,
    })
    client.on('error', () => undefined)
    return {
      // mqtt.js sends it again, with the same identifier, until it is answered: there is no other end.
      async write(value) {
        await client.publishAsync(path.slice(1), packOf(value), { qos })
      },
      [Symbol.dispose]: () => void client.end(true),
    }
  },
})

export const KINDS: readonly Kind[] = [http(true), http(false), webSocket, coap, mqttKind(1), mqttKind(2)]
