/** Bytes of each protocol as somebody writes them who means harm: nothing here keeps to what an honest library would send. */
import { createSocket } from 'node:dgram'
import type { Socket as UdpSocket } from 'node:dgram'
import { connect } from 'node:net'
import { Client, Metadata, credentials } from '@grpc/grpc-js'

const DEADLINE_MS = 20_000
const UDP_ASK_AGAIN_MS = 200

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
  /** Sends the messages, each when there is room, and waits for the end of the stream; gives what it said. */
  stream(path: string, messages: Iterable<Buffer>): Promise<{ code: number; answers: Buffer[] }>
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
    stream: (path, messages) =>
      new Promise((resolve) => {
        const call = client.makeBidiStreamRequest(path, same, same, new Metadata(), options())
        const answers: Buffer[] = []
        const rest = messages[Symbol.iterator]()
        const write = () => {
          for (let next = rest.next(); ; next = rest.next()) {
            if (next.done === true) return call.end()
            if (!call.write(next.value)) return call.once('drain', write)
          }
        }
        call.on('data', (answer: Buffer) => answers.push(answer))
        call.on('error', () => undefined)
        call.on('status', ({ code }) => resolve({ code, answers }))
        write()
      }),
    [Symbol.dispose]: () => client.close(),
  }
}

export const coap = {
  option: (delta: number, value: Buffer): Buffer => {
    const nibble = (of: number) => (of < 13 ? of : of < 269 ? 13 : 14)
    const rest = (of: number) => (of < 13 ? Buffer.alloc(0) : of < 269 ? Buffer.from([of - 13]) : mqtt.uint16(of - 269))
    return Buffer.concat([
      Buffer.from([(nibble(delta) << 4) | nibble(value.length)]),
      rest(delta),
      rest(value.length),
      value,
    ])
  },
  /** Confirmable; method 1 is GET, 2 is POST. */
  request: (method: number, messageId: number, options: Buffer, payload: Buffer = NOTHING): Buffer =>
    Buffer.concat([
      Buffer.from([0x41, method]),
      mqtt.uint16(messageId),
      Buffer.from([1]),
      options,
      payload.length === 0 ? payload : Buffer.from([0xff]),
      payload,
    ]),
}

export type CoapPeer = Disposable & {
  /** Sends them all at once. */
  flood(datagrams: readonly Buffer[]): Promise<void>
  /** Sends one, again and again until its answer comes. */
  ask(datagram: Buffer): Promise<Buffer>
}

export async function openCoap(port: number): Promise<CoapPeer> {
  const socket: UdpSocket = createSocket('udp4')
  await new Promise<void>((resolve) => socket.connect(port, '127.0.0.1', resolve))
  socket.on('error', () => undefined)
  const send = (bytes: Buffer) => new Promise<void>((resolve) => socket.send(bytes, () => resolve()))
  async function ask(datagram: Buffer): Promise<Buffer> {
    const messageId = datagram.readUInt16BE(2)
    return await new Promise<Buffer>((resolve, reject) => {
      const again = setInterval(() => void send(datagram), UDP_ASK_AGAIN_MS)
      const finish = () => {
        clearInterval(again)
        clearTimeout(late)
        socket.removeListener('message', take)
      }
      const late = setTimeout(() => {
        finish()
        reject(new Error('no answer came'))
      }, DEADLINE_MS)
      const take = (answer: Buffer) => {
        if (answer.length < 4 || answer.readUInt16BE(2) !== messageId) return
        finish()
        resolve(answer)
      }
      socket.on('message', take)
      void send(datagram)
    })
  }
  let pings = 0xf000
  return {
    ask,
    async flood(datagrams) {
      await Promise.all(datagrams.map(send))
      // What was sent before it is done when it is answered.
      await ask(Buffer.concat([Buffer.from([0x40, 0]), mqtt.uint16(pings++)]))
    },
    [Symbol.dispose]: () => socket.close(),
  }
}

/** A frame of WebSocket as clients send it. */
export function frame(opcode: number, payload: Buffer, isLast = true): Buffer {
  const { length } = payload
  const head = [(isLast ? 0x80 : 0) | opcode, 0x80 | (length < 126 ? length : length < 0x1_0000 ? 126 : 127)]
  const size = length < 126 ? Buffer.alloc(0) : Buffer.alloc(length < 0x1_0000 ? 2 : 8)
  if (size.length === 2) size.writeUInt16BE(length)
  else if (size.length === 8) size.writeBigUInt64BE(BigInt(length))
  // The mask is zeros: it changes nothing.
  return Buffer.concat([Buffer.from(head), size, Buffer.alloc(4), payload])
}

const MAGIC = Buffer.from('\0asm', 'latin1')

export const wasm = {
  section: (id: number, content: Buffer): Buffer => Buffer.concat([Buffer.from([id]), leb(content.length), content]),
  /** So many items, each made of its number. */
  vector: (count: number, item: (index: number) => Buffer | number[]): Buffer =>
    Buffer.concat([leb(count), ...Array.from({ length: count }, (_, index) => Buffer.from(item(index)))]),
  name: (text: string): Buffer => Buffer.concat([leb(Buffer.byteLength(text)), Buffer.from(text)]),
  core: (...sections: Buffer[]): Buffer => Buffer.concat([MAGIC, Buffer.from([1, 0, 0, 0]), ...sections]),
  component: (...sections: Buffer[]): Buffer => Buffer.concat([MAGIC, Buffer.from([13, 0, 1, 0]), ...sections]),
}
