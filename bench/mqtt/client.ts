/** A client that costs the loader little: packets put together once, answers read in place. MQTT 3.1.1. */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { Frames } from '#api/adapters/mqtt/packets/frames.ts'

export type BenchClient = {
  readonly socket: Socket
  onPublish: ((payload: Buffer, packetId: number) => void) | undefined
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

export async function openClient(
  port: number,
  clientId: string,
  credentials?: { id: string; secret: string },
): Promise<BenchClient> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const frames = new Frames(1024 * 1024)
  let onConnack: (() => void) | undefined
  let onSuback: (() => void) | undefined
  let acknowledgements: Buffer[] = []
  const client: BenchClient = {
    socket,
    onPublish: undefined,
    onPuback: undefined,
    async subscribe(filter, qos) {
      const answered = new Promise<void>((resolve) => (onSuback = resolve))
      socket.write(packet(0x82, Buffer.from([0, 1]), text(filter), Buffer.from([qos])))
      await answered
    },
    publish(bytes, packetIdAt, packetId) {
      const copy = Buffer.from(bytes)
      copy.writeUInt16BE(packetId, packetIdAt)
      socket.write(copy)
    },
    end: () => void socket.destroy(),
  }
  socket.on('data', (chunk: Buffer) => {
    // What a chunk brings about leaves in one write: the loader must not be what is measured.
    socket.cork()
    frames.push(chunk, (first, bytes, start, end) => {
      const type = first >> 4
      if (type === 3) {
        const topicLength = bytes.readUInt16BE(start)
        const isAcknowledged = (first & 0x06) !== 0
        const at = start + 2 + topicLength
        const packetId = isAcknowledged ? bytes.readUInt16BE(at) : 0
        if (isAcknowledged) acknowledgements.push(Buffer.from([0x40, 2, packetId >> 8, packetId & 0xff]))
        client.onPublish?.(bytes.subarray(isAcknowledged ? at + 2 : at, end), packetId)
      } else if (type === 4) client.onPuback?.()
      else if (type === 2) onConnack?.()
      else if (type === 9) onSuback?.()
    })
    if (acknowledgements.length > 0) {
      socket.write(acknowledgements.length === 1 ? (acknowledgements[0] as Buffer) : Buffer.concat(acknowledgements))
      acknowledgements = []
    }
    socket.uncork()
  })
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject)
    socket.once('connect', () => socket.write(connectPacket(clientId, credentials)))
    onConnack = resolve
  })
  socket.on('error', () => undefined)
  return client
}
