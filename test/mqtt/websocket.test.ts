/**
 * MQTT over WebSocket (MQTT 5.0 section 6, RFC 6455) in frames as browsers and proxies make them: packets and frames have different
 * borders [MQTT-6.0.0-2], and a browser offers compression that the server need not accept (RFC 7692).
 */
import { createHash, randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { deflateRawSync } from 'node:zlib'
import { generate, parser as createParser } from 'mqtt-packet'
import type { Packet } from 'mqtt-packet'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Node, WebSockets } from './support.ts'
import { MAX_FRAME_BYTES, aDevice, listenForWebSockets, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node
let webSockets: WebSockets

beforeAll(async () => {
  node = await startNode(plant.api)
  webSockets = await listenForWebSockets(plant.api, node)
}, 60_000)
afterAll(async () => {
  await webSockets.stop()
  await node.stop()
})

const PACK = '[{"n":"t","v":1}]'
/** RFC 6455 section 1.3. */
const ACCEPT_MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const OPCODE = { continuation: 0, binary: 2, close: 8, ping: 9, pong: 10 } as const
const FIN = 0x80
/** Of a compressed message (RFC 7692 section 6). */
const RSV1 = 0x40
/** The offer of Chromium and Firefox. */
const DEFLATE = 'permessage-deflate; client_max_window_bits'
const PROTOCOL_ERROR = 1002
const TOO_LARGE = 1009

/** A frame with a random mask, as browsers send it. */
function frame(first: number, payload: Buffer): Buffer {
  const mask = randomBytes(4)
  const head = [first, FIN | (payload.length < 126 ? payload.length : payload.length < 0x1_0000 ? 126 : 127)]
  const size = Buffer.alloc(payload.length < 126 ? 0 : payload.length < 0x1_0000 ? 2 : 8)
  if (size.length > 0) size.writeUIntBE(payload.length, size.length === 2 ? 0 : 2, size.length === 2 ? 2 : 6)
  return Buffer.concat([Buffer.from(head), size, mask, payload.map((byte, at) => byte ^ (mask[at % 4] as number))])
}

const binary = (payload: Buffer) => frame(FIN | OPCODE.binary, payload)

/** One message, in as many frames as there are pieces. */
const fragmented = (pieces: Buffer[]) =>
  pieces.map((piece, index) =>
    frame((index === pieces.length - 1 ? FIN : 0) | (index === 0 ? OPCODE.binary : OPCODE.continuation), piece),
  )

const pieces = (bytes: Buffer, size: number) =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) => bytes.subarray(index * size, (index + 1) * size))

type Received = { first: number; payload: Buffer }

/** Takes the first frame of a server, which is not masked, out of the bytes. */
function takeFrame(bytes: Buffer): { received: Received; rest: Buffer } | undefined {
  const [first, length] = bytes
  if (first === undefined || length === undefined) return undefined
  const sizeBytes = length < 126 ? 0 : length === 126 ? 2 : 8
  const start = 2 + sizeBytes
  if (bytes.length < start) return undefined
  const size = sizeBytes === 0 ? length : sizeBytes === 2 ? bytes.readUInt16BE(2) : bytes.readUIntBE(4, 6)
  if (bytes.length < start + size) return undefined
  return { received: { first, payload: bytes.subarray(start, start + size) }, rest: bytes.subarray(start + size) }
}

/** A WebSocket whose frames the test writes; packets are those of the binary frames that came. */
async function open({ protocol = 'mqtt', extensions = DEFLATE, path = '/mqtt' } = {}) {
  const socket = connect({ port: webSockets.port, host: '127.0.0.1', noDelay: true })
  const key = randomBytes(16).toString('base64')
  const fields = [
    'Host: localhost',
    'Connection: keep-alive, Upgrade',
    'Upgrade: websocket',
    'Origin: http://localhost',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${key}`,
    ...(protocol === '' ? [] : [`Sec-WebSocket-Protocol: ${protocol}`]),
    ...(extensions === '' ? [] : [`Sec-WebSocket-Extensions: ${extensions}`]),
  ]
  let bytes: Buffer = Buffer.alloc(0)
  let head: string | undefined
  let isClosed = false
  const packets: Packet[] = []
  const controls: Received[] = []
  const parser = createParser({ protocolVersion: 5 })
  parser.on('packet', (packet) => packets.push(packet))
  const take = (received: Received) => {
    if (received.first === (FIN | OPCODE.binary)) parser.parse(received.payload)
    else controls.push(received)
  }
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    if (head === undefined) {
      const end = bytes.indexOf('\r\n\r\n')
      if (end < 0) return
      head = bytes.toString('latin1', 0, end).toLowerCase()
      bytes = bytes.subarray(end + 4)
    }
    for (let one = takeFrame(bytes); one !== undefined; one = takeFrame(bytes)) {
      take(one.received)
      bytes = one.rest
    }
  })
  socket.on('error', () => undefined)
  socket.on('close', () => (isClosed = true))
  socket.write(`${[`GET ${path} HTTP/1.1`, ...fields].join('\r\n')}\r\n\r\n`)
  const response = await until(() => head, 'the response of the upgrade')
  expect(response).toContain(' 101 ')
  const accept = createHash('sha1')
    .update(key + ACCEPT_MAGIC)
    .digest('base64')
  expect(response).toContain(`sec-websocket-accept: ${accept.toLowerCase()}`)
  return {
    response,
    controls,
    /** In one segment of TCP when it is small. */
    send: (...frames: Buffer[]) => void socket.write(Buffer.concat(frames)),
    next: async <Cmd extends Packet['cmd']>(cmd: Cmd) => {
      const find = () => packets.findIndex((packet) => packet.cmd === cmd)
      await until(() => find() >= 0, `a packet ${cmd}`)
      return packets.splice(find(), 1)[0] as Extract<Packet, { cmd: Cmd }>
    },
    /** The code of the close frame. */
    closed: async () => {
      await until(() => isClosed, 'the end of the connection')
      return controls.find(({ first }) => first === (FIN | OPCODE.close))?.payload.readUInt16BE()
    },
    [Symbol.dispose]: () => void socket.destroy(),
  }
}

type Device = Awaited<ReturnType<typeof aDevice>>

const bytesOf = (packet: Packet) => generate(packet, { protocolVersion: 5 })
const connectOf = ({ id, secret }: Device) =>
  bytesOf({
    cmd: 'connect',
    protocolId: 'MQTT',
    protocolVersion: 5,
    clean: true,
    keepalive: 0,
    clientId: '',
    username: id,
    password: Buffer.from(secret),
  })
const publishOf = ({ topic }: Device, messageId: number, payload = PACK) =>
  bytesOf({ cmd: 'publish', topic, payload, qos: 1, dup: false, retain: false, messageId })
const subscribeOf = ({ topic }: Device) =>
  bytesOf({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] })

const opened = async (device: Device) => {
  const socket = await open()
  socket.send(binary(connectOf(device)))
  expect((await socket.next('connack')).reasonCode).toBe(0)
  return socket
}

describe('the upgrade', () => {
  test.each([
    ['mqtt', 'mqtt'],
    ['mqttv3.1', 'mqttv3.1'],
    ['mqttv3.1, mqtt', 'mqtt'],
    ['other, mqtt', 'mqtt'],
    ['', undefined],
  ])('that offers %j selects %j [MQTT-6.0.0-4]', async (protocol, selected) => {
    using socket = await open({ protocol })
    expect(/^sec-websocket-protocol: (.*)$/m.exec(socket.response)?.[1]).toBe(selected)
  })

  test.each([DEFLATE, 'permessage-deflate', `${DEFLATE}, x-other; a=1`, ''])(
    'that offers the extensions %j is accepted without them',
    async (extensions) => {
      const device = await aDevice(plant, node.port)
      using socket = await open({ extensions })
      expect(socket.response).not.toContain('sec-websocket-extensions')
      socket.send(binary(connectOf(device)))
      expect((await socket.next('connack')).reasonCode).toBe(0)
    },
  )
})

describe('packets', () => {
  test('of which many are in one frame, from CONNECT on, are each answered', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await open()
    const publishes = [1, 2, 3].map((messageId) => publishOf(device, messageId))
    socket.send(
      binary(Buffer.concat([connectOf(device), subscribeOf(device), ...publishes, bytesOf({ cmd: 'pingreq' })])),
    )
    expect((await socket.next('connack')).reasonCode).toBe(0)
    expect((await socket.next('suback')).granted).toEqual([1])
    for (const messageId of [1, 2, 3]) expect((await socket.next('puback')).messageId).toBe(messageId)
    await socket.next('pingresp')
    for (let message = 0; message < 3; message++) expect((await socket.next('publish')).payload.toString()).toBe(PACK)
    expect(await device.stored()).toHaveLength(3)
  })

  test.each([1, 7, 100])('of which each is in frames of %i bytes are whole', async (size) => {
    const device = await aDevice(plant, node.port)
    using socket = await open()
    const stream = Buffer.concat([connectOf(device), publishOf(device, 1), publishOf(device, 2)])
    socket.send(...pieces(stream, size).map(binary))
    expect((await socket.next('connack')).reasonCode).toBe(0)
    await socket.next('puback')
    await socket.next('puback')
    expect(await device.stored()).toHaveLength(2)
  })

  test.each([1, 7, 100])('in a message of fragments of %i bytes, with a ping between them, are whole', async (size) => {
    const device = await aDevice(plant, node.port)
    using socket = await open()
    const [begin, ...rest] = fragmented(
      pieces(Buffer.concat([connectOf(device), publishOf(device, 1), publishOf(device, 2)]), size),
    )
    // Control frames may come between fragments (RFC 6455 section 5.4).
    socket.send(begin as Buffer, frame(FIN | OPCODE.ping, Buffer.from('here')), ...rest)
    await until(() => socket.controls.length > 0, 'the pong')
    expect(socket.controls).toEqual([{ first: FIN | OPCODE.pong, payload: Buffer.from('here') }])
    expect((await socket.next('connack')).reasonCode).toBe(0)
    await socket.next('puback')
    await socket.next('puback')
    expect(await device.stored()).toHaveLength(2)
  })

  test('that begin in one frame and end in another beside other packets, and frames of nothing, are whole', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await opened(device)
    const stream = Buffer.concat([publishOf(device, 1), publishOf(device, 2), publishOf(device, 3)])
    // Inside the first topic, and inside the fixed header of the last packet.
    const lastStart = stream.length - publishOf(device, 3).length
    const parts = [
      stream.subarray(0, 9),
      Buffer.alloc(0),
      stream.subarray(9, lastStart + 1),
      stream.subarray(lastStart + 1),
    ]
    socket.send(...parts.map(binary), ...fragmented([Buffer.alloc(0), Buffer.alloc(0)]))
    for (const messageId of [1, 2, 3]) expect((await socket.next('puback')).messageId).toBe(messageId)
    expect(await device.stored()).toHaveLength(3)
  })

  test('larger than a frame may be arrive in frames that are as large as they may be', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await opened(device)
    const text = 'x'.repeat(2 * MAX_FRAME_BYTES)
    const packet = publishOf(device, 1, JSON.stringify([{ n: 'text', vs: text }]))
    socket.send(...pieces(packet, MAX_FRAME_BYTES).map(binary))
    expect(await socket.next('puback')).toMatchObject({ messageId: 1, reasonCode: 0 })
    expect(await device.stored()).toMatchObject([{ string_value: text }])
  })
})

describe('the WebSocket is closed', () => {
  test('with 1002 for a compressed frame, because no compression was selected', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await opened(device)
    socket.send(frame(FIN | RSV1 | OPCODE.binary, deflateRawSync(publishOf(device, 1))))
    expect(await socket.closed()).toBe(PROTOCOL_ERROR)
    expect(await device.stored()).toEqual([])
  })

  test('with 1002 for a fragment without a beginning', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await opened(device)
    socket.send(frame(FIN | OPCODE.continuation, publishOf(device, 1)))
    expect(await socket.closed()).toBe(PROTOCOL_ERROR)
  })

  test('with 1009 for fragments that are together larger than a frame may be', async () => {
    const device = await aDevice(plant, node.port)
    using socket = await opened(device)
    socket.send(...fragmented(pieces(Buffer.alloc(MAX_FRAME_BYTES + 1), MAX_FRAME_BYTES)))
    expect(await socket.closed()).toBe(TOO_LARGE)
  })
})
