/** A cheap MQTT 3.1.1 client: packets are built once, answers are read in place. */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { Frames } from '#api/adapters/mqtt/packets/frames.ts'

export type BenchClient = {
  onPublish: ((payload: Buffer) => void) | undefined
  onPuback: (() => void) | undefined
  subscribe(filter: string, qos: number): Promise<void>
  publish(packet: Buffer, packetIdAt: number, packetId: number): void
  end(): void
}

const text = (value: string) => {
  const bytes = Buffer.from(value)
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 0xff]), bytes])
}

function packet(first: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts)
  const length = body.length < 128 ? [body.length] : [(body.length & 0x7f) | 0x80, body.length >> 7]
  return Buffer.concat([Buffer.from([first, ...length]), body])
}

export function connectPacket(clientId: string, credentials?: { id: string; secret: string }): Buffer {
  const flags = credentials === undefined ? 0x02 : 0xc2
  return packet(
    0x10,
    text('MQTT'),
    Buffer.from([4, flags, 0, 0]),
    text(clientId),
    ...(credentials === undefined ? [] : [text(credentials.id), text(credentials.secret)]),
  )
}

export function publishPacket(topic: string, payload: Buffer, qos: 0 | 1): { bytes: Buffer; packetIdAt: number } {
  const name = text(topic)
  const bytes = packet(0x30 | (qos << 1), name, Buffer.alloc(qos === 0 ? 0 : 2), payload)
  return { bytes, packetIdAt: bytes.length - payload.length - 2 }
}

/** One large buffer receives the data of every socket, which is copied out: a buffer per read would cost more. */
const READ_BUFFER = Buffer.allocUnsafe(64 * 1024)
/**
 * Sockets that are written before the loader reads again: the arrival time of a message must not depend on answers to
 * others.
 */
const WRITTEN_AT_ONCE = 32
const unsent: { socket: Socket; parts: Buffer[] }[] = []

function flush(): void {
  const ready = unsent.splice(0, WRITTEN_AT_ONCE)
  for (const { socket, parts } of ready) {
    const [only] = parts
    socket.write(parts.length === 1 && only !== undefined ? only : Buffer.concat(parts))
    parts.length = 0
  }
  if (unsent.length > 0) setImmediate(flush)
}

export async function openClient(
  port: number,
  clientId: string,
  credentials?: { id: string; secret: string },
): Promise<BenchClient> {
  const frames = new Frames(1024 * 1024)
  let onConnack: ((returnCode: number) => void) | undefined
  let onSuback: (() => void) | undefined
  const out: { socket: Socket; parts: Buffer[] } = { socket: undefined as unknown as Socket, parts: [] }
  const send = (bytes: Buffer) => {
    if (out.parts.length === 0) {
      if (unsent.length === 0) setImmediate(flush)
      unsent.push(out)
    }
    out.parts.push(bytes)
  }
  const take = (first: number, bytes: Buffer, start: number, end: number) => {
    const type = first >> 4
    if (type === 3) {
      const at = start + 2 + bytes.readUInt16BE(start)
      const isAcknowledged = (first & 0x06) !== 0
      client.onPublish?.(bytes.subarray(isAcknowledged ? at + 2 : at, end))
      if (isAcknowledged) send(Buffer.from([0x40, 2, bytes[at] as number, bytes[at + 1] as number]))
    } else if (type === 4) client.onPuback?.()
    else if (type === 2) onConnack?.(bytes[start + 1] as number)
    else if (type === 9) onSuback?.()
  }
  const socket = connect({
    port,
    host: '127.0.0.1',
    noDelay: true,
    onread: {
      buffer: READ_BUFFER,
      callback(length) {
        frames.push(Buffer.from(READ_BUFFER.subarray(0, length)), take)
        return true
      },
    },
  })
  out.socket = socket
  const client: BenchClient = {
    onPublish: undefined,
    onPuback: undefined,
    async subscribe(filter, qos) {
      const answered = new Promise<void>((resolve) => (onSuback = resolve))
      send(packet(0x82, Buffer.from([0, 1]), text(filter), Buffer.from([qos])))
      await answered
    },
    publish(bytes, packetIdAt, packetId) {
      const copy = Buffer.from(bytes)
      copy.writeUInt16BE(packetId, packetIdAt)
      send(copy)
    },
    end: () => void socket.destroy(),
  }
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject)
    socket.once('connect', () => send(connectPacket(clientId, credentials)))
    onConnack = (code) => (code === 0 ? resolve() : reject(new Error(`CONNECT was answered by ${code}`)))
  })
  socket.on('error', () => undefined)
  return client
}

/** Keeps a window of QoS 1 messages in flight until `stop`, which returns how many were acknowledged. */
export function publishOn(client: BenchClient, topic: string, payload: Buffer, window: number): { stop(): number } {
  const { bytes, packetIdAt } = publishPacket(topic, payload, 1)
  let packetId = 0
  let acknowledged = 0
  let isOver = false
  const send = () => client.publish(bytes, packetIdAt, (packetId = (packetId % 65_535) + 1))
  client.onPuback = () => {
    acknowledged++
    if (!isOver) send()
  }
  for (let index = 0; index < window; index++) send()
  return {
    stop() {
      isOver = true
      return acknowledged
    },
  }
}
