/** One open socket: frames in are published in their order, messages of the channel go out. */
import { isUtf8 } from 'node:buffer'
import type { RawData, WebSocket } from 'ws'
import type { MessageAccess } from '#api/devices/index.ts'
import { TEXT_PLAIN } from '#api/messages/index.ts'
import type { Delivery } from '#api/messages/index.ts'
import type { Account } from '#core/streams/index.ts'
import { CLOSE, END_CODES, closeFor } from './close-codes.ts'
import { Frames } from './frames.ts'
import type { FramesDeps } from './frames.ts'
import type { Opening } from './opening.ts'

/** Bytes that wait for a slow reader; beyond, it is closed. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024
/** A peer is asked for a sign of life so often, and given up when the answer is missing at the next. */
const PING_MS = 30_000

export type SessionDeps = FramesDeps

export class WebSocketSession {
  readonly #socket: WebSocket
  readonly #opening: Opening
  readonly #deps: SessionDeps
  readonly #account: Account
  readonly #frames: Frames
  /** Says of a message that this socket sent it; a client is known by its id, a user has none. */
  readonly #sender = {}
  #isAlive = true
  #stopFollowing: (() => void) | undefined

  /** `account`: what waits for the socket's reader is counted there. */
  constructor(socket: WebSocket, opening: Opening, deps: SessionDeps, account: Account) {
    this.#socket = socket
    this.#opening = opening
    this.#deps = deps
    this.#account = account
    this.#frames = new Frames(deps, {
      socket,
      opening,
      sender: this.#sender,
      onStored: (frame) => {
        if (opening.acknowledges) this.#send(`{"ack":${frame}}`, false)
      },
      onRefused: (error) => this.#close(closeFor(error)),
    })
  }

  /** Takes frames and delivers messages until the socket is closed. */
  begin(): void {
    const { presence } = this.#deps.messages
    const { subscribe, clientKey } = this.#opening
    const socket = this.#socket
    const pings = setInterval(() => this.#ping(), PING_MS)
    socket.on('pong', () => (this.#isAlive = true))
    socket.on('error', () => undefined)
    socket.once('close', () => clearInterval(pings))
    socket.on('message', (data: RawData, isBinary: boolean) => {
      this.#isAlive = true
      this.#frames.take(bytesOf(data), isBinary)
    })
    if (clientKey !== null) {
      presence.online(clientKey, 'ws')
      socket.once('close', () => presence.offline(clientKey, 'ws'))
    }
    if (subscribe !== undefined) this.#follow(subscribe).catch((error: unknown) => this.#close(closeFor(error)))
  }

  #ping(): void {
    if (!this.#isAlive) this.#socket.terminate()
    this.#isAlive = false
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.ping()
  }

  #close({ code, reason }: { code: number; reason: string }): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.close(code, reason)
  }

  async #follow(access: MessageAccess): Promise<void> {
    const { messages, gate } = this.#deps
    const { path, filter, credentials, clientKey } = this.#opening
    const socket = this.#socket
    const { close: stop } = await messages.follow({
      access,
      filter,
      authorize: async () => await gate.authorize(await credentials(), path, 'subscribe'),
      deliver: (deliveries) => this.#deliver(deliveries),
      onEnd: (reason) => this.#close(END_CODES[reason]),
    })
    if (socket.readyState !== socket.OPEN) return stop()
    this.#stopFollowing = stop
    socket.once('close', stop)
    if (clientKey === null) return
    messages.presence.subscribed(clientKey, 'ws')
    socket.once('close', () => messages.presence.unsubscribed(clientKey, 'ws'))
  }

  #deliver(deliveries: readonly Delivery[]): void {
    const { clientKey } = this.#opening
    let sent = 0
    for (const { message } of deliveries) {
      if (message.sender === this.#sender || (clientKey !== null && message.publisherKey === clientKey)) continue
      this.#send(message.payload, !isText(message.contentType, message.payload))
      sent++
    }
    if (clientKey !== null) this.#deps.messages.presence.delivered(clientKey, sent)
  }

  #send(data: string | Buffer, binary: boolean): void {
    const socket = this.#socket
    if (socket.readyState !== socket.OPEN) return
    if (socket.bufferedAmount <= MAX_BUFFERED_BYTES) {
      socket.send(data, { binary })
      return this.#account.update()
    }
    this.#close({ code: CLOSE.tryAgainLater, reason: 'messages come faster than they are read' })
    // The socket closes when its reader has come to the end, or has not for half a minute.
    this.#stopFollowing?.()
  }
}

function bytesOf(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data)
}

/** JSON and text travel as text frames, everything else as it is. */
function isText(contentType: string, payload: Buffer): boolean {
  return (contentType.endsWith('json') || contentType === TEXT_PLAIN) && isUtf8(payload)
}
