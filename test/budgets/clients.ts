/** Clients of every protocol that need neither a promise nor a timer for an operation: these are counted in this process. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { generate as generateCoap, parse as parseCoap } from 'coap-packet'
import { generate as generateMqtt } from 'mqtt-packet'
import { WebSocket } from 'ws'
import { connectPeer } from '../mqtt/peer.ts'

const HOST = '127.0.0.1'

/** Sends one request and calls back with its answer. */
export type Client<Request> = Disposable & { ask(request: Request, answered: (status: string) => void): void }

export type HttpRequest = { method: string; path: string; headers: Record<string, string>; body?: string }

const HEAD_END = '\r\n\r\n'

/** One connection that is kept. */
export async function httpClient(port: number): Promise<Client<HttpRequest>> {
  const socket = connect({ port, host: HOST, noDelay: true })
  await once(socket, 'connect')
  let received = ''
  let onAnswer: ((status: string) => void) | undefined
  socket.on('data', (chunk: Buffer) => {
    received += chunk.toString('latin1')
    const head = received.indexOf(HEAD_END)
    if (head === -1) return
    const length = /\r\ncontent-length: (\d+)/i.exec(received)?.[1]
    if (length === undefined && !/^HTTP\/1.1 204/.test(received)) throw new Error(`no length: ${received}`)
    if (received.length < head + HEAD_END.length + Number(length ?? 0)) return
    const [status, answered] = [received.slice(9), onAnswer]
    received = ''
    answered?.(status)
  })
  return {
    ask({ method, path, headers, body = '' }, answered) {
      onAnswer = answered
      const lines = Object.entries({ ...headers, 'content-length': Buffer.byteLength(body) })
      const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
      socket.write(`${method} ${path} HTTP/1.1\r\nhost: localhost\r\n${head}\r\n${body}`)
    },
    [Symbol.dispose]: () => void socket.destroy(),
  }
}

/** Publishes with QoS 1; the answer is the acknowledgement. */
export async function mqttClient(
  port: number,
  device: { id: string; secret: string },
): Promise<Client<{ topic: string; payload: string }>> {
  const { socket } = await connectPeer(port, { username: device.id, password: Buffer.from(device.secret) })
  let messageId = 0
  let onAnswer: ((status: string) => void) | undefined
  ;(socket as Socket).on('data', (chunk: Buffer) => onAnswer?.(`packet ${(chunk[0] as number) >> 4}`))
  return {
    ask({ topic, payload }, answered) {
      onAnswer = answered
      messageId = (messageId % 0xffff) + 1
      const packet = { cmd: 'publish', topic, payload, qos: 1, messageId, dup: false, retain: false } as const
      socket.write(generateMqtt(packet))
    },
    [Symbol.dispose]: () => void socket.destroy(),
  }
}

export async function coapClient(port: number): Promise<Client<{ path: string; auth: string; payload: string }>> {
  const socket = createSocket('udp4')
  socket.bind(0, HOST)
  await once(socket, 'listening')
  let messageId = 0
  let onAnswer: ((status: string) => void) | undefined
  socket.on('message', (datagram) => onAnswer?.(parseCoap(datagram).code))
  return {
    ask({ path, auth, payload }, answered) {
      onAnswer = answered
      messageId = (messageId % 0xffff) + 1
      const options = [
        ...path.split('/').map((part) => ({ name: 'Uri-Path' as const, value: Buffer.from(part) })),
        { name: 'Content-Format' as const, value: Buffer.from([110]) },
        { name: 'Uri-Query' as const, value: Buffer.from(`auth=${auth}`) },
      ]
      const token = Buffer.alloc(4)
      token.writeUInt32BE(messageId)
      const message = {
        code: 'POST',
        confirmable: true,
        messageId,
        token,
        options,
        payload: Buffer.from(payload),
      } as const
      socket.send(generateCoap(message), port, HOST)
    },
    [Symbol.dispose]: () => void socket.close(),
  }
}

/** A frame has no acknowledgement: the call returns when it is sent. */
export async function webSocketClient(port: number, path: string, secret: string): Promise<Client<string>> {
  const socket = new WebSocket(`ws://${HOST}:${port}${path}`, { headers: { authorization: `Client ${secret}` } })
  await once(socket, 'open')
  return {
    ask(payload, answered) {
      socket.send(payload)
      answered('sent')
    },
    [Symbol.dispose]: () => socket.terminate(),
  }
}
