/** An MQTT client that sends single packets, with another implementation of the packets. */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { generate, parser as createParser } from 'mqtt-packet'
import type { IConnackPacket, IConnectPacket, IPublishPacket, Packet } from 'mqtt-packet'
import { until } from '../harness/until.ts'

export type Peer = Disposable & {
  readonly socket: Socket
  /** Everything that came and was not asked for yet. */
  readonly inbox: Packet[]
  readonly isClosed: boolean
  send(packet: Packet | Buffer): void
  /** The next packet of this kind; what came before it stays. */
  next<Cmd extends Packet['cmd']>(cmd: Cmd, deadlineMs?: number): Promise<Extract<Packet, { cmd: Cmd }>>
  closed(): Promise<void>
}

export async function openPeer(port: number, protocolVersion: 3 | 4 | 5 = 4): Promise<Peer> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  const inbox: Packet[] = []
  let isClosed = false
  const parser = createParser({ protocolVersion })
  parser.on('packet', (packet) => inbox.push(packet))
  // A peer that is refused in another version reads what it can.
  parser.on('error', () => undefined)
  socket.on('data', (chunk: Buffer) => parser.parse(chunk))
  socket.on('error', () => undefined)
  socket.on('close', () => (isClosed = true))
  const peer: Peer = {
    socket,
    inbox,
    get isClosed() {
      return isClosed
    },
    send: (packet) => void socket.write(Buffer.isBuffer(packet) ? packet : generate(packet, { protocolVersion })),
    async next(cmd, deadlineMs) {
      const find = () => inbox.findIndex((packet) => packet.cmd === cmd)
      await until(() => find() >= 0 || (isClosed ? fail(cmd) : false), `a packet ${cmd}`, deadlineMs)
      return inbox.splice(find(), 1)[0] as Extract<Packet, { cmd: typeof cmd }>
    },
    closed: async () => void (await until(() => isClosed, 'the connection is closed')),
    [Symbol.dispose]: () => socket.destroy(),
  }
  return peer
}

function fail(cmd: string): never {
  throw new Error(`the connection was closed before ${cmd} came`)
}

/** `bridgeMode` sets the bit of bridges in the protocol level; the types of the library omit it. */
export type Connecting = Partial<Omit<IConnectPacket, 'cmd'>> & { bridgeMode?: boolean }

/** A peer whose CONNECT was answered. */
export async function connectPeer(
  port: number,
  options: Connecting = {},
): Promise<Peer & { readonly connack: IConnackPacket }> {
  const protocolVersion = options.protocolVersion ?? 4
  const peer = await openPeer(port, protocolVersion)
  peer.send({
    cmd: 'connect',
    protocolId: protocolVersion === 3 ? 'MQIsdp' : 'MQTT',
    protocolVersion,
    clean: true,
    keepalive: 0,
    clientId: '',
    ...options,
  })
  const connack = await peer.next('connack')
  return Object.assign(peer, { connack })
}

/** What SUBACK grants. */
export async function subscribe(peer: Peer, topic: string, qos: 0 | 1 | 2 = 1) {
  peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos }] })
  return (await peer.next('suback')).granted
}

/** Through to the last acknowledgement. */
export async function publish(peer: Peer, topic: string, payload: string, more: Partial<IPublishPacket> = {}) {
  peer.send({ cmd: 'publish', topic, payload, qos: 1, dup: false, retain: false, messageId: 9, ...more })
  if ((more.qos ?? 1) === 1) return await peer.next('puback')
  await peer.next('pubrec')
  peer.send({ cmd: 'pubrel', messageId: 9 })
  return await peer.next('pubcomp')
}

export const textOf = ({ payload }: IPublishPacket) => payload.toString()

/** The next message, acknowledged. */
export async function receive(peer: Peer, deadlineMs?: number): Promise<string> {
  const message = await peer.next('publish', deadlineMs)
  const messageId = message.messageId ?? 0
  if (message.qos === 1) peer.send({ cmd: 'puback', messageId })
  if (message.qos === 2) {
    peer.send({ cmd: 'pubrec', messageId })
    await peer.next('pubrel', deadlineMs)
    peer.send({ cmd: 'pubcomp', messageId })
  }
  return textOf(message)
}
