/** Bytes of each protocol as somebody writes them who means harm: nothing here keeps to what an honest library would send. */
import { connect } from 'node:net'
import { Client, Metadata, credentials } from '@grpc/grpc-js'

const DEADLINE_MS = 20_000

/** As often as fits into so many bytes. */
export function repeated(bytes: number, piece: Buffer | number[]): Buffer {
  const one = Buffer.from(piece)
  return Buffer.alloc(Math.max(1, Math.floor(bytes / one.length)) * one.length, one)
}

/** Pieces, each made of its number, until they have so many bytes. */
export function filled(bytes: number, piece: (index: number) => Buffer): Buffer {
  const pieces: Buffer[] = []
  let length = 0
  for (let index = 0; length < bytes; index++) {
    const one = piece(index)
    pieces.push(one)
    length += one.length
  }
  return Buffer.concat(pieces)
}

/** Unsigned LEB128 of WebAssembly and varint of Protocol Buffers and MQTT; `minBytes`: not in its shortest form. */
export function leb(value: number, minBytes = 1): Buffer {
  const bytes: number[] = []
  let rest = value
  do {
    const low = rest % 0x80
    rest = Math.floor(rest / 0x80)
    bytes.push(rest > 0 || bytes.length + 1 < minBytes ? low | 0x80 : low)
  } while (rest > 0 || bytes.length < minBytes)
  return Buffer.from(bytes)
}

/** Sends the bytes and reads until the other end is done with them and closes; gives what it said. */
export async function overTcp(port: number, bytes: Buffer): Promise<Buffer> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  const received: Buffer[] = []
  let receivedBytes = 0
  socket.on('data', (chunk) => {
    // What is kept is looked at by its beginning alone.
    if (receivedBytes < 64 * 1024) received.push(Buffer.from(chunk as Buffer))
    receivedBytes += chunk.length
  })
  socket.on('error', () => undefined)
  socket.write(bytes)
  await new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => {
      socket.destroy()
      reject(new Error('the connection was not closed'))
    }, DEADLINE_MS)
    socket.once('close', () => {
      clearTimeout(late)
      resolve()
    })
  })
  return Buffer.concat(received)
}

const NOTHING: Buffer = Buffer.alloc(0)

export const mqtt = {
  text: (text: string): Buffer => {
    const bytes = Buffer.from(text)
    const length = Buffer.alloc(2)
    length.writeUInt16BE(bytes.length)
    return Buffer.concat([length, bytes])
  },
  uint16: (value: number): Buffer => Buffer.from([value >> 8, value & 0xff]),
  packet: (first: number, ...parts: Buffer[]): Buffer => {
    const body = Buffer.concat(parts)
    return Buffer.concat([Buffer.from([first]), leb(body.length), body])
  },
  /** Of 5.0. */
  connect: (
    name: string,
    secret: string,
    { id = '', properties = NOTHING }: { id?: string; properties?: Buffer } = {},
  ): Buffer =>
    mqtt.packet(
      0x10,
      mqtt.text('MQTT'),
      Buffer.from([5, 0xc2, 0, 0]),
      leb(properties.length),
      properties,
      mqtt.text(id),
      mqtt.text(name),
      mqtt.text(secret),
    ),
  publish: (qos: number, packetId: number, topic: string, properties: Buffer, payload: Buffer, retain = 0): Buffer =>
    mqtt.packet(
      0x30 | (qos << 1) | retain,
      mqtt.text(topic),
      qos === 0 ? Buffer.alloc(0) : mqtt.uint16(packetId),
      leb(properties.length),
      properties,
      payload,
    ),
  subscribe: (packetId: number, filters: Buffer): Buffer =>
    mqtt.packet(0x82, mqtt.uint16(packetId), Buffer.from([0]), filters),
  unsubscribe: (packetId: number, filters: Buffer): Buffer =>
    mqtt.packet(0xa2, mqtt.uint16(packetId), Buffer.from([0]), filters),
  disconnect: Buffer.from([0xe0, 0]),
}

export const protobuf = {
  /** A field of bytes, text or a message. */
  bytes: (field: number, value: Buffer | string): Buffer => {
    const bytes = Buffer.from(value as string)
    return Buffer.concat([leb(field * 8 + 2), leb(bytes.length), bytes])
  },
  number: (field: number, value: number): Buffer => Buffer.concat([leb(field * 8), leb(value)]),
}

export type Grpc = Disposable & {
  unary(path: string, message: Buffer): Promise<{ code: number; answer: Buffer }>
}

const same = (bytes: Buffer): Buffer => bytes

export function openGrpc(port: number, compression = 0): Grpc {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), {
    'grpc.default_compression_algorithm': compression as 0,
    'grpc.max_receive_message_length': -1,
  })
  const options = () => ({ deadline: Date.now() + DEADLINE_MS })
  return {
    unary: (path, message) =>
      new Promise((resolve) => {
        client.makeUnaryRequest(path, same, same, message, new Metadata(), options(), (error, answer) =>
          resolve({ code: error === null ? 0 : error.code, answer: answer ?? Buffer.alloc(0) }),
        )
      }),
    [Symbol.dispose]: () => client.close(),
  }
}

const MAGIC = Buffer.from('\0asm', 'latin1')

export const wasm = {
  section: (id: number, content: Buffer): Buffer => Buffer.concat([Buffer.from([id]), leb(content.length), content]),
  /** So many items, each made of its number. */
  vector: (count: number, item: (index: number) => Buffer | number[]): Buffer =>
    Buffer.concat([leb(count), ...Array.from({ length: count }, (_, index) => Buffer.from(item(index)))]),
  name: (text: string): Buffer => Buffer.concat([leb(Buffer.byteLength(text)), Buffer.from(text)]),
  core: (...sections: Buffer[]): Buffer => Buffer.concat([MAGIC, Buffer.from([1, 0, 0, 0]), ...sections]),
}
