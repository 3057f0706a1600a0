/** One network connection: parses packets, handles them in order, and batches writes per turn of the event loop. */
import type { Duplex } from 'node:stream'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { BudgetEntry, StreamReader, StreamBudget } from '#core/streams/index.ts'
import { createTurns } from '#core/turns.ts'
import { handleConnect } from './connecting.ts'
import type { ConnectingConnection } from './connecting.ts'
import type { MqttBackend } from './backend.ts'
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
import type { ProtocolVersion } from './packets/protocol.ts'
import { OutgoingAliases } from './outgoing-aliases.ts'
import type { PublishPacket, PublishTemplate } from './packets/publish.ts'
import { stamp, stampAliased } from './packets/publish.ts'
import { REASON, permittedReasonCode, reasonCodeOf } from './packets/reason-codes.ts'
import { ProtocolError } from './packets/wire.ts'
import type { PublishingConnection, Unsettled } from './publishing.ts'
import { Publishing, TOPIC_ALIAS_MAXIMUM } from './publishing.ts'
import type { Outlet, Session, Subscription } from './session.ts'
import { subscribe, unsubscribe } from './subscribing.ts'
import type { SubscribingConnection } from './subscribing.ts'
import type { Identity } from './targets.ts'
import type { Writable } from './write-coalescing.ts'

/** The maximum size of a packet before CONNECT was accepted. */
const MAX_CONNECT_BYTES = 256 * 1024
/** The limit of bytes that wait for a slow reader; above it, messages with QoS 0 are dropped and others stay in the session. */
const MAX_BUFFERED_BYTES = 1024 * 1024
/** Writes of one turn are joined up to this size; larger ones are written unchanged. */
const JOINED_BYTES = 64 * 1024
const NO_LIMIT = Number.MAX_SAFE_INTEGER

/** The remote end. */
export type Peer = {
  address: string
  certificate?: DeviceCredentials | undefined
  recertify?: () => Promise<DeviceCredentials | undefined>
}

/** The interface of a connection to its server. */
export type ConnectionHost = {
  readonly logger: Logger
  /** The budget of bytes that wait for readers of this process. */
  readonly budget: StreamBudget
  /** A coarse monotonic clock, shared by all connections. */
  readonly nowMs: number
  /** The maximum size of a packet of an authenticated client. */
  readonly maxPacketBytes: number
  /** Waits for a turn to open a session; the returned function ends it. */
  admit(identity: Identity): Promise<() => void>
  /** Closes the connection of the same client and identifier, if there is one [MQTT-3.1.4-3]. */
  takeOver(identity: Identity, clientIdentifier: string): Promise<void>
  /** The connection has its session now. Returns messages of the session that an earlier connection received and that await their commit. */
  accepted(connection: Connection, session: Session): Unsettled
  /** Writes the queued bytes of the connection, at the end of this turn at the latest. */
  flushLater(connection: Connection): void
  closing(connection: Connection): void
  closed(connection: Connection): void
  countPacket(type: Packet['type']): void
  countRefusal(reasonCode: number): void
  countDropped(reason: string): void
  countStored(durationMs: number): void
}

export class Connection
  implements Outlet, ConnectingConnection, SubscribingConnection, PublishingConnection, Writable, StreamReader
{
  readonly host: ConnectionHost
  readonly socket: Duplex
  /** The client of the certificate. */
  readonly certificate: DeviceCredentials | undefined
  /** Looks up the client of the certificate again. */
  readonly recertify: (() => Promise<DeviceCredentials | undefined>) | undefined
  readonly address: string
  readonly openedAtMs: number
  /** The time of the last received bytes, by the server's coarse clock. */
  heardAtMs: number
  /** The deadline of the next packet; 0: none. */
  keepAliveMs = 0
  version: ProtocolVersion = 4
  receiveMaximum = 65_535
  maxPacketBytes = NO_LIMIT
  session: Session | undefined
  publishing: Publishing | undefined
  /** The client sent DISCONNECT, so its will is not sent [MQTT-3.14.4-3]. */
  isWillDropped = false
  isOpen = true
  flushedIn = -1
  readonly #frames = new Frames(MAX_CONNECT_BYTES)
  /** Packets that wait for an earlier one or for the next turn; those before the head are done. */
  #unread: Packet[] = []
  #head = 0
  /** A chunk may contain tens of thousands of packets: the rest waits when a turn has been long enough. */
  readonly #turns = createTurns()
  #isWaitingForTurn = false
  /** A packet that is handled synchronously asks for the next one while it is handled. */
  #isDraining = false
  #isBusy = false
  #isConnecting = false
  #isPaused = false
  #out: Buffer[] = []
  #outBytes = 0
  #aliases: Map<number, string> | undefined
  #outgoingAliases: OutgoingAliases | undefined
  readonly #backend: MqttBackend
  readonly #account: BudgetEntry

  constructor(socket: Duplex, backend: MqttBackend, host: ConnectionHost, peer: Peer) {
    this.socket = socket
    this.host = host
    this.#backend = backend
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
    // The peer has ended its side: the connection is over, even if messages are pending (section 4.2).
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

  /** The bytes that wait to be read by the peer. */
  get waitingBytes(): number {
    return this.socket.writableLength + this.#outBytes
  }

  get keptBytes(): number {
    return this.session?.keptBytes ?? 0
  }

  /** Too many bytes wait for all readers of the process, and this one is the slowest. */
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
      this.#unread.push(packet)
      this.#pause()
    } else this.#handle(packet)
  }

  get #waits(): number {
    return this.#unread.length - this.#head
  }

  #dropUnread(): void {
    this.#unread = []
    this.#head = 0
  }

  #continueNextTurn(): void {
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
      if (this.#turns.isOver) return this.#continueNextTurn()
      this.#isDraining = true
      try {
        this.#handle(this.#unread[this.#head++] as Packet)
      } catch (error) {
        this.fail(error)
        return
      } finally {
        this.#isDraining = false
      }
    }
    this.#dropUnread()
    if (!this.isOpen || this.#isBusy || this.publishing?.isFull === true) return
    this.#isPaused = false
    this.heardAtMs = this.host.nowMs
    this.socket.resume()
  }

  /** Packets are handled in order: a slow one delays those after it. */
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
    // CONNECT was rejected; later packets are ignored [MQTT-3.1.4-6].
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
        return subscribe(this, session, this.#backend, packet)
      case 'unsubscribe':
        return unsubscribe(this, session, this.#backend, packet)
      case 'pingreq':
        this.send(PINGRESP)
        return undefined
      case 'disconnect':
        this.#disconnect(packet)
        return undefined
      case 'auth':
        // CONNECT named no authentication method, so AUTH is a protocol error [MQTT-4.12.0-7].
        throw new ProtocolError(
          REASON.protocolError,
          'AUTH requires an authentication method in CONNECT, which is not supported',
        )
    }
  }

  /** The maximum size of a packet of an authenticated client. */
  get maxIncomingBytes(): number {
    return this.host.maxPacketBytes
  }

  admit(identity: Identity): Promise<() => void> {
    return this.host.admit(identity)
  }

  takeOver(identity: Identity, clientIdentifier: string): Promise<void> {
    return this.host.takeOver(identity, clientIdentifier)
  }

  /** A session was opened, and the connection has closed meanwhile. */
  abandon(session: Session): void {
    this.isWillDropped = true
    this.session = session
    this.host.closed(this)
  }

  failedToConnect(error: unknown): void {
    this.host.logger.error({ err: error }, 'failed to connect an MQTT client')
  }

  async #connect(packet: ConnectPacket): Promise<void> {
    const accepted = await handleConnect(this, packet, this.#backend)
    if (accepted === undefined) return
    this.session = accepted.session
    const connack = formatConnack(this.version, REASON.success, accepted.isPresent, accepted.properties)
    if (connack.length > this.maxPacketBytes) {
      this.isWillDropped = true
      return this.refuseConnect(REASON.packetTooLarge, 'the largest packet of the client is smaller than CONNACK')
    }
    this.publishing = new Publishing(this, accepted.session, this.#backend, this.host.accepted(this, accepted.session))
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
      throw new ProtocolError(REASON.topicAliasInvalid, `a topic alias must be at most ${TOPIC_ALIAS_MAXIMUM}`)
    this.#aliases ??= new Map()
    if (packet.topic !== '') {
      this.#aliases.set(alias, packet.topic)
      return packet
    }
    const topic = this.#aliases.get(alias)
    if (topic === undefined)
      throw new ProtocolError(REASON.protocolError, `topic alias ${alias} was not set by an earlier PUBLISH`)
    return { ...packet, topic }
  }

  /** PUBREL: the identifier is released before PUBCOMP frees it. */
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
    const written = this.#backend.release(session, packetId)
    if (written === undefined) complete()
    else written.then(complete, (error: unknown) => this.fail(error))
  }

  #disconnect({ reasonCode, properties }: DisconnectPacket): void {
    const session = this.session as Session
    const expirySeconds = properties.sessionExpiryInterval
    if (expirySeconds !== undefined) {
      // The expiry cannot be raised from 0 here (section 3.14.2.2.2).
      if (session.expirySeconds === 0 && expirySeconds > 0)
        throw new ProtocolError(
          REASON.protocolError,
          'DISCONNECT cannot set a session expiry interval after CONNECT set 0',
        )
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

  /** Sends a message, with a topic alias when the client allows it. */
  sendMessage(template: PublishTemplate, packetId: number, isRepeated: boolean): void {
    const alias = this.#outgoingAliases?.of(template.topic)
    if (alias !== undefined) {
      const packet = stampAliased(template, packetId, isRepeated, alias)
      // The packet that announces an alias is larger than without it.
      if (packet.length <= this.maxPacketBytes) {
        this.#outgoingAliases?.announced(template.topic, alias)
        return this.send(packet)
      }
    }
    this.send(stamp(template, packetId, isRepeated))
  }

  /**
   * Runs concurrently with other packets, because the client must be able to acknowledge what it receives. Subscriptions are handled in
   * order: a packet may have a thousand, and each may match many messages.
   */
  sendRetained(subscriptions: readonly Subscription[]): void {
    const sendAll = async () => {
      for (const subscription of subscriptions) {
        if (!this.isOpen) return
        await this.#backend.sendRetained(subscription)
      }
    }
    sendAll().catch((error: unknown) => this.fail(error))
  }

  /** Writes the queued bytes of this turn. */
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

  /** The peer violated the protocol, or an internal error occurred. */
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

  /** In 5.0 the server sends the reason [MQTT-4.13.1-1]; the older versions have no such packet. */
  close(reasonCode: number, reason: string): void {
    if (!this.isOpen) return
    this.host.countRefusal(reasonCode)
    const code = permittedReasonCode('disconnect', reasonCode)
    if (this.isAccepted && this.version === 5) this.#sendReason((said) => formatDisconnect(code, said), reason)
    this.#shut()
  }

  refuseConnect(reasonCode: number, reason: string): void {
    this.host.countRefusal(reasonCode)
    this.#sendReason((said) => formatConnack(this.version, reasonCode, false, said), { reasonString: reason })
    this.#shut()
  }

  /** Respects the maximum packet size of the client [MQTT-3.1.2-24]: omits the reason string [MQTT-3.2.2-19, MQTT-3.14.2-3], or the packet. */
  #sendReason<Said>(format: (said?: Said) => Buffer, said: Said): void {
    const fitting = [format(said), format()].find((bytes) => bytes.length <= this.maxPacketBytes)
    if (fitting !== undefined) this.send(fitting)
  }

  refused(reasonCode: number): void {
    this.host.countRefusal(reasonCode)
  }

  dropped(reason: string): void {
    this.host.countDropped(reason)
  }

  stored(durationMs: number): void {
    this.host.countStored(durationMs)
  }

  /** Sends queued bytes first; the sweep closes a connection whose peer does not read them. */
  #shut(): void {
    this.flush()
    this.isOpen = false
    this.#dropUnread()
    this.host.closing(this)
    this.socket.end()
    // Further bytes are dropped; they must be read, or the end of the connection would not be noticed.
    this.socket.resume()
  }

  #closed(): void {
    this.#account.close()
    this.isOpen = false
    this.#dropUnread()
    this.#out = []
    this.host.closed(this)
  }
}
