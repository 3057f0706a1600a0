/** One network connection: bytes in, packets in their order, answers out in as few writes as there are turns. */
import type { Duplex } from 'node:stream'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Account, Reader, StreamBudget } from '#core/streams/index.ts'
import { createTurns as createLongTurns } from '#core/turns.ts'
import { connect } from './connecting.ts'
import type { ConnectingConnection } from './connecting.ts'
import type { Exchange } from './exchange.ts'
import type { AcknowledgementPacket } from './packets/acknowledgement.ts'
import { formatAcknowledgement } from './packets/acknowledgement.ts'
import type { ConnectPacket } from './packets/connect.ts'
import { UnsupportedVersion, formatConnack } from './packets/connect.ts'
import type { DisconnectPacket } from './packets/disconnect.ts'
import { formatDisconnect } from './packets/disconnect.ts'
import { Frames } from './packets/frames.ts'
import type { Packet } from './packets/packet.ts'
import { parsePacket } from './packets/packet.ts'
import { PINGRESP } from './packets/ping.ts'
import type { Version } from './packets/protocol.ts'
import { OutgoingAliases } from './outgoing-aliases.ts'
import type { PublishPacket, PublishTemplate } from './packets/publish.ts'
import { stamp, stampAliased } from './packets/publish.ts'
import { REASON, carriedBy, reasonCodeOf } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import type { PublishingConnection, Unsettled } from './publishing.ts'
import { Publishing, TOPIC_ALIAS_MAXIMUM } from './publishing.ts'
import type { Outlet, Session, Subscription } from './session.ts'
import { subscribe, unsubscribe } from './subscribing.ts'
import type { SubscribingConnection } from './subscribing.ts'
import type { Identity } from './targets.ts'
import type { Writable } from './turns.ts'

/** A packet before CONNECT was accepted must not be larger: nobody is known yet. */
const MAX_CONNECT_BYTES = 256 * 1024
/** Bytes that wait for a slow reader; beyond, messages with QoS 0 are dropped and others stay in the session. */
const MAX_BUFFERED_BYTES = 1024 * 1024
/** Pieces of one turn are put together up to this; larger ones are written as they are. */
const JOINED_BYTES = 64 * 1024
const NO_LIMIT = Number.MAX_SAFE_INTEGER

/** The other end. */
export type Peer = {
  address: string
  certificate?: DeviceCredentials | undefined
  recertify?: () => Promise<DeviceCredentials | undefined>
}

/** What a connection needs of the server that has it. */
export type ConnectionHost = {
  readonly logger: Logger
  /** Of what waits for readers of this process. */
  readonly budget: StreamBudget
  /** A coarse monotonic clock: one reading for all connections. */
  readonly nowMs: number
  /** Largest packet of a client that is known. */
  readonly maxPacketBytes: number
  /** The connection of the same client and identifier is closed, if there is one [MQTT-3.1.4-3]. */
  takeOver(identity: Identity, clientIdentifier: string): Promise<void>
  /** It has its session now; messages of the session that an earlier connection brought may await their commit. */
  accepted(connection: Connection, session: Session): Unsettled
  /** Writes what the connection was given to send, at the latest when this turn is over. */
  flushLater(connection: Connection): void
  closing(connection: Connection): void
  closed(connection: Connection): void
  countPacket(type: Packet['type']): void
  countRefusal(reasonCode: number): void
  countDropped(reason: string): void
  countStored(durationMs: number): void
}

export class Connection
  implements Outlet, ConnectingConnection, SubscribingConnection, PublishingConnection, Writable, Reader
{
  readonly host: ConnectionHost
  readonly socket: Duplex
  /** Who a client certificate stands for. */
  readonly certificate: DeviceCredentials | undefined
  /** Asks again whom it stands for. */
  readonly recertify: (() => Promise<DeviceCredentials | undefined>) | undefined
  readonly address: string
  readonly openedAtMs: number
  /** When the peer was last heard of, by the server's coarse clock. */
  heardAtMs: number
  /** Until the next packet is due; 0: for ever. */
  keepAliveMs = 0
  version: Version = 4
  receiveMaximum = 65_535
  maxPacketBytes = NO_LIMIT
  session: Session | undefined
  publishing: Publishing | undefined
  /** The client said goodbye, so its will is not sent [MQTT-3.14.4-3]. */
  isWillDropped = false
  isOpen = true
  flushedIn = -1
  readonly #frames = new Frames(MAX_CONNECT_BYTES)
  /** Packets that wait until the one before them is done, or for the next turn; those before the head are. */
  #backlog: Packet[] = []
  #head = 0
  /** Tens of thousands of packets fit into a chunk: the rest of them waits when a turn has been long enough. */
  readonly #turns = createLongTurns()
  #isWaitingForTurn = false
  /** What is handled at once asks for the next while it is handled. */
  #isDraining = false
  #isBusy = false
  #isConnecting = false
  #isPaused = false
  #out: Buffer[] = []
  #outBytes = 0
  #aliases: Map<number, string> | undefined
  #outgoingAliases: OutgoingAliases | undefined
  readonly #exchange: Exchange
  readonly #account: Account

  constructor(socket: Duplex, exchange: Exchange, host: ConnectionHost, peer: Peer) {
    this.socket = socket
    this.host = host
    this.#exchange = exchange
    this.address = peer.address
    this.certificate = peer.certificate
    this.recertify = peer.recertify
    this.#account = host.budget.open(this)
    this.openedAtMs = this.heardAtMs = host.nowMs
    socket.on('data', (chunk: Buffer) => this.#take(chunk))
    socket.on('drain', () => {
      this.#account.update()
      this.session?.pump()
    })
    socket.on('error', () => socket.destroy())
    // The peer sends no more: whatever it still would be sent, the connection is over (section 4.2).
    socket.on('end', () => socket.destroy())
    socket.once('close', () => this.#closed())
  }

  /** CONNECT was accepted. */
  get isAccepted(): boolean {
    return this.session !== undefined
  }

  get isWritable(): boolean {
    return this.isOpen && this.socket.writableLength + this.#outBytes < MAX_BUFFERED_BYTES
  }

  /** Bytes that wait to be read by the peer. */
  get waitingBytes(): number {
    return this.socket.writableLength + this.#outBytes
  }

  get keptBytes(): number {
    return this.session?.keptBytes ?? 0
  }

  /** Too much waits for all readers of the process, and this one is the slowest of them. */
  cut(): void {
    this.close(REASON.quotaExceeded, 'more waits for all clients than is kept: this one takes it too slowly')
    this.socket.destroy()
  }

  #take(chunk: Buffer): void {
    if (!this.isOpen) return
    this.heardAtMs = this.host.nowMs
    this.#turns.begin()
    try {
      this.#frames.push(chunk, this.#takeFrame)
    } catch (error) {
      this.fail(error)
    }
    if (this.#waits > 0) this.resumeReading()
  }

  readonly #takeFrame = (first: number, bytes: Buffer, start: number, end: number): void => {
    if (!this.isOpen) return
    const version = this.session === undefined && !this.#isConnecting ? undefined : this.version
    const packet = parsePacket(first, bytes, start, end, version)
    this.host.countPacket(packet.type)
    if (packet.type === 'connect') {
      this.#isConnecting = true
      this.version = packet.version
      this.maxPacketBytes = packet.properties.maximumPacketSize ?? NO_LIMIT
      const aliases = packet.properties.topicAliasMaximum ?? 0
      this.#outgoingAliases = aliases === 0 ? undefined : new OutgoingAliases(aliases)
    } else if (packet.type === 'publish') this.publishing?.arrived(packet)
    if (this.#isBusy || this.#waits > 0 || this.publishing?.isFull === true || this.#turns.isOver) {
      this.#backlog.push(packet)
      this.#pause()
    } else this.#handle(packet)
  }

  get #waits(): number {
    return this.#backlog.length - this.#head
  }

  #forgetBacklog(): void {
    this.#backlog = []
    this.#head = 0
  }

  #goOnNextTurn(): void {
    this.#isWaitingForTurn = true
    setImmediate(() => {
      this.#isWaitingForTurn = false
      this.#turns.begin()
      this.resumeReading()
    })
  }

  #pause(): void {
    if (this.#isPaused) return
    this.#isPaused = true
    this.socket.pause()
  }

  resumeReading(): void {
    if (!this.#isPaused || this.#isBusy || this.#isWaitingForTurn || this.#isDraining) return
    while (this.#waits > 0) {
      if (!this.isOpen || this.#isBusy || this.publishing?.isFull === true) return
      if (this.#turns.isOver) return this.#goOnNextTurn()
      this.#isDraining = true
      try {
        this.#handle(this.#backlog[this.#head++] as Packet)
      } catch (error) {
        this.fail(error)
        return
      } finally {
        this.#isDraining = false
      }
    }
    this.#forgetBacklog()
    if (!this.isOpen || this.#isBusy || this.publishing?.isFull === true) return
    this.#isPaused = false
    this.heardAtMs = this.host.nowMs
    this.socket.resume()
  }

  /** One packet after the other: what takes its time holds up those behind it. */
  #handle(packet: Packet): void {
    const work = this.#dispatch(packet)
    if (work === undefined) return
    this.#isBusy = true
    this.#pause()
    work
      .catch((error: unknown) => this.fail(error))
      .finally(() => {
        this.#isBusy = false
        this.resumeReading()
      })
  }

  #dispatch(packet: Packet): Promise<void> | undefined {
    const { session } = this
    if (packet.type === 'connect') return this.#connect(packet)
    // CONNECT was refused, and what was sent behind it is not looked at [MQTT-3.1.4-6].
    if (session === undefined) return undefined
    switch (packet.type) {
      case 'publish':
        return this.publishing?.take(this.#withTopic(packet))
      case 'puback':
        if (!session.acknowledged(packet.packetId)) this.host.countRefusal(REASON.packetIdentifierNotFound)
        return undefined
      case 'pubrec':
        session.receivedByPeer(packet.packetId, packet.reasonCode)
        return undefined
      case 'pubrel':
        this.#release(packet)
        return undefined
      case 'pubcomp':
        session.completed(packet.packetId)
        return undefined
      case 'subscribe':
        return subscribe(this, session, this.#exchange, packet)
      case 'unsubscribe':
        return unsubscribe(this, session, this.#exchange, packet)
      case 'pingreq':
        this.send(PINGRESP)
        return undefined
      case 'disconnect':
        this.#disconnect(packet)
        return undefined
      case 'auth':
        // No method was agreed on in CONNECT, so none can be gone on with [MQTT-4.12.0-7].
        throw new ProtocolError(REASON.protocolError, 'no authentication is under way')
    }
  }

  /** Largest packet of a client that is known. */
  get maxIncomingBytes(): number {
    return this.host.maxPacketBytes
  }

  takeOver(identity: Identity, clientIdentifier: string): Promise<void> {
    return this.host.takeOver(identity, clientIdentifier)
  }

  /** A session was opened for it, and it has gone meanwhile. */
  abandon(session: Session): void {
    this.isWillDropped = true
    this.session = session
    this.host.closed(this)
  }

  failedToConnect(error: unknown): void {
    this.host.logger.error({ err: error }, 'failed to connect an MQTT client')
  }

  async #connect(packet: ConnectPacket): Promise<void> {
    const accepted = await connect(this, packet, this.#exchange)
    if (accepted === undefined) return
    this.session = accepted.session
    const connack = formatConnack(this.version, REASON.success, accepted.isPresent, accepted.properties)
    if (connack.length > this.maxPacketBytes) {
      this.isWillDropped = true
      return this.refuseConnect(REASON.packetTooLarge, 'the largest packet of the client is smaller than CONNACK')
    }
    this.publishing = new Publishing(this, accepted.session, this.#exchange, this.host.accepted(this, accepted.session))
    this.#frames.maxPacketBytes = this.host.maxPacketBytes
    this.send(connack)
    accepted.session.resume(this)
  }

  /** Topic aliases (section 3.3.2.3.4). */
  #withTopic(packet: PublishPacket): PublishPacket {
    const alias = packet.properties.topicAlias
    if (alias === undefined) return packet
    // [MQTT-3.3.2-9]
    if (alias > TOPIC_ALIAS_MAXIMUM)
      throw new ProtocolError(REASON.topicAliasInvalid, 'a topic alias above the maximum')
    this.#aliases ??= new Map()
    if (packet.topic !== '') {
      this.#aliases.set(alias, packet.topic)
      return packet
    }
    const topic = this.#aliases.get(alias)
    if (topic === undefined) throw new ProtocolError(REASON.protocolError, 'a topic alias that stands for nothing')
    return { ...packet, topic }
  }

  /** PUBREL: the identifier is forgotten before PUBCOMP says that it is free. */
  #release({ packetId }: AcknowledgementPacket): void {
    const session = this.session as Session
    if (!session.received.has(packetId)) {
      this.publishing?.answered(packetId)
      this.send(formatAcknowledgement('pubcomp', this.version, packetId, REASON.packetIdentifierNotFound))
      return
    }
    const complete = () => {
      session.received.delete(packetId)
      this.publishing?.answered(packetId)
      this.send(formatAcknowledgement('pubcomp', this.version, packetId))
    }
    const written = this.#exchange.release(session, packetId)
    if (written === undefined) complete()
    else written.then(complete, (error: unknown) => this.fail(error))
  }

  #disconnect({ reasonCode, properties }: DisconnectPacket): void {
    const session = this.session as Session
    const expirySeconds = properties.sessionExpiryInterval
    if (expirySeconds !== undefined) {
      // It cannot be raised from 0 here (section 3.14.2.2.2).
      if (session.expirySeconds === 0 && expirySeconds > 0)
        throw new ProtocolError(REASON.protocolError, 'a session that ends with its connection cannot be kept')
      session.expirySeconds = expirySeconds
    }
    this.isWillDropped = reasonCode !== REASON.disconnectWithWill
    this.#shut()
  }

  send(bytes: Buffer): void {
    if (!this.isOpen) return
    if (this.#out.length === 0) this.host.flushLater(this)
    this.#out.push(bytes)
    this.#outBytes += bytes.length
  }

  /** A message, with a topic alias where the client allows one. */
  sendMessage(template: PublishTemplate, packetId: number, isRepeated: boolean): void {
    const alias = this.#outgoingAliases?.of(template.topic)
    if (alias !== undefined) {
      const packet = stampAliased(template, packetId, isRepeated, alias)
      // The packet that announces an alias is larger than without.
      if (packet.length <= this.maxPacketBytes) {
        this.#outgoingAliases?.announced(template.topic, alias)
        return this.send(packet)
      }
    }
    this.send(stamp(template, packetId, isRepeated))
  }

  /**
   * Beside what else comes: the client must be able to acknowledge what it is sent. One subscription after the other: a packet may
   * ask for a thousand, and each may match many messages.
   */
  sendRetained(subscriptions: readonly Subscription[]): void {
    const sendAll = async () => {
      for (const subscription of subscriptions) {
        if (!this.isOpen) return
        await this.#exchange.sendRetained(subscription)
      }
    }
    sendAll().catch((error: unknown) => this.fail(error))
  }

  /** Writes what was sent in this turn. */
  flush(): void {
    const out = this.#out
    if (out.length === 0) return
    const bytes = this.#outBytes
    this.#out = []
    this.#outBytes = 0
    if (this.socket.destroyed || this.socket.writableEnded) return
    const [only] = out
    if (out.length === 1 && only !== undefined) this.socket.write(only)
    else if (bytes <= JOINED_BYTES) this.socket.write(Buffer.concat(out, bytes))
    else {
      this.socket.cork()
      for (const part of out) this.socket.write(part)
      this.socket.uncork()
    }
    this.#account.update()
  }

  /** The peer broke a rule, or something failed on this side. */
  fail(error: unknown): void {
    if (error instanceof UnsupportedVersion) {
      this.host.countRefusal(REASON.unsupportedProtocolVersion)
      this.send(error.answer)
      this.#shut()
      return
    }
    if (error instanceof ProtocolError) return this.close(error.reasonCode, error.message)
    const kind = kindOf(error)
    if (kind === 'internal') this.host.logger.error({ err: error }, 'an MQTT connection failed')
    this.close(reasonCodeOf(kind), kind === 'internal' ? 'internal error' : (error as Error).message)
  }

  /** A server of 5.0 says why it closes [MQTT-4.13.1-1]; the older versions know no such packet. */
  close(reasonCode: number, reason: string): void {
    if (!this.isOpen) return
    this.host.countRefusal(reasonCode)
    const code = carriedBy('disconnect', reasonCode)
    if (this.isAccepted && this.version === 5) this.#sendReason((said) => formatDisconnect(code, said), reason)
    this.#shut()
  }

  refuseConnect(reasonCode: number, reason: string): void {
    this.host.countRefusal(reasonCode)
    this.#sendReason((said) => formatConnack(this.version, reasonCode, false, said), { reasonString: reason })
    this.#shut()
  }

  /** Nothing that is larger than the client takes [MQTT-3.1.2-24]: without the text then [MQTT-3.2.2-19, MQTT-3.14.2-3], or not at all. */
  #sendReason<Said>(format: (said?: Said) => Buffer, said: Said): void {
    const fitting = [format(said), format()].find((bytes) => bytes.length <= this.maxPacketBytes)
    if (fitting !== undefined) this.send(fitting)
  }

  refused(reasonCode: number): void {
    this.host.countRefusal(reasonCode)
  }

  dropped(): void {
    this.host.countDropped('no_room')
  }

  stored(durationMs: number): void {
    this.host.countStored(durationMs)
  }

  /** What was sent leaves first; a peer that does not read it is cut off by the sweep. */
  #shut(): void {
    this.flush()
    this.isOpen = false
    this.#forgetBacklog()
    this.host.closing(this)
    this.socket.end()
    // Whatever else it sends is not read; without reading, its end would not be heard of.
    this.socket.resume()
  }

  #closed(): void {
    this.#account.close()
    this.isOpen = false
    this.#forgetBacklog()
    this.#out = []
    this.host.closed(this)
  }
}
