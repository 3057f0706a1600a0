/** Bytes of each protocol as an attacker writes them: nothing here is limited to what an honest library sends. */
import { createSocket } from 'node:dgram'
import type { Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import http2 from 'node:http2'
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
  /**
   * Sends the messages, each when there is room, and ends. Waits for the end of the stream, or for an answer `until`, and gives the first answers,
   * of as many bytes as are kept.
   */
  stream(path: string, messages: Iterable<Buffer>, until?: (answer: Buffer) => boolean): Promise<Outcome>
}

/** `code` -1: the deadline passed. */
export type Outcome = { code: number; details: string; answers: Buffer[] }

const same = (bytes: Buffer): Buffer => bytes
const MAX_WRITE_BYTES = 64 * 1024
/** Long enough for a busy machine to take more, if it ever does. */
const UNTAKEN_MS = 3_000
/** What is kept of answers is looked at by its beginning alone. */
const MAX_KEPT_BYTES = 16 * 1024 * 1024

/** The frame of one message of gRPC. */
function grpcFrame(message: Buffer): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

function* inWrites(messages: Iterable<Buffer>): Generator<Buffer> {
  let frames: Buffer[] = []
  let bytes = 0
  for (const message of messages) {
    frames.push(grpcFrame(message))
    bytes += message.length
    if (bytes + frames.length < MAX_WRITE_BYTES) continue
    yield Buffer.concat(frames)
    frames = []
    bytes = 0
  }
  yield Buffer.concat(frames)
}

/** As many messages in each write as fit, which no library does. */
async function overHttp2(
  port: number,
  path: string,
  messages: Iterable<Buffer>,
  until: ((answer: Buffer) => boolean) | undefined,
): Promise<Outcome> {
  const connection = http2.connect(`http://127.0.0.1:${port}`)
  connection.on('error', () => undefined)
  const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' }
  const call = connection.request(headers)
  const closed = new Promise<void>((resolve) => call.once('close', resolve))
  const outcome: Outcome = { code: -1, details: '', answers: [] }
  const readStatus = (said: http2.IncomingHttpHeaders) => {
    if (said['grpc-status'] === undefined) return
    outcome.code = Number(said['grpc-status'])
    outcome.details = decodeURI(String(said['grpc-message'] ?? ''))
  }
  let isEnding = false
  const end = () => {
    if (!isEnding) call.end()
    isEnding = true
  }
  let keptBytes = 0
  let rest = NOTHING
  call.on('response', readStatus)
  call.on('trailers', readStatus)
  call.on('end', end)
  call.on('error', () => undefined)
  call.on('data', (bytes: Buffer) => {
    rest = rest.length === 0 ? bytes : Buffer.concat([rest, bytes])
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const answer = rest.subarray(5, 5 + rest.readUInt32BE(1))
      rest = rest.subarray(5 + answer.length)
      if (keptBytes < MAX_KEPT_BYTES) outcome.answers.push(answer)
      keptBytes += answer.length
      if (until?.(answer) === true) end()
    }
  })
  const late = setTimeout(() => connection.destroy(), DEADLINE_MS)
  for (const bytes of inWrites(messages)) {
    if (call.destroyed || isEnding) break
    if (!call.write(bytes)) await Promise.race([once(call, 'drain').catch(() => undefined), closed])
  }
  // An end that is waited for by its answer is made when that has come.
  if (until === undefined) end()
  await closed
  clearTimeout(late)
  connection.destroy()
  return outcome
}

/** Says all of it to one that it never reads from, until nothing more is taken for a while; gives how many bytes were taken. */
export async function talkWithoutReading(port: number, path: string, messages: Iterable<Buffer>): Promise<number> {
  const connection = http2.connect(`http://127.0.0.1:${port}`)
  connection.on('error', () => undefined)
  const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' }
  const call = connection.request(headers)
  call.on('error', () => undefined)
  let saidBytes = 0
  for (const bytes of inWrites(messages)) {
    saidBytes += bytes.length
    if (call.write(bytes)) continue
    const isTaken = await Promise.race([
      once(call, 'drain').then(() => true),
      new Promise<boolean>((resolve) => setTimeout(resolve, UNTAKEN_MS, false)),
    ])
    if (!isTaken) break
  }
  const takenBytes = saidBytes - call.writableLength
  connection.destroy()
  return takenBytes
}

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
    stream: (path, messages, until) => overHttp2(port, path, messages, until),
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
  /** Sends them as fast as none is lost: what a flood costs is compared with half of it. */
  flood(datagrams: readonly Buffer[]): Promise<void>
  /** Sends one, again and again until its answer comes. */
  ask(datagram: Buffer): Promise<Buffer>
}

/** Of datagrams that are sent at once; less than a half of the smallest buffer that systems have for a socket. */
const FLOOD_BYTES = 100 * 1024
/** Of a datagram in the buffer of a socket. */
const BUFFER_OVERHEAD_BYTES = 1024

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
  /** What was sent before it is done when it is answered. */
  const ping = () => ask(Buffer.concat([Buffer.from([0x40, 0]), mqtt.uint16(pings++)]))
  return {
    ask,
    async flood(datagrams) {
      let unanswered = 0
      for (const datagram of datagrams) {
        if (unanswered > 0 && unanswered + datagram.length > FLOOD_BYTES) {
          await ping()
          unanswered = 0
        }
        void send(datagram)
        unanswered += datagram.length + BUFFER_OVERHEAD_BYTES
      }
      await ping()
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
