/** An open socket: publishes received frames in order, and delivers messages of the channel. */
import { isUtf8 } from 'node:buffer'
import type { RawData, WebSocket } from 'ws'
import type { ChannelAccess } from '#api/devices/index.ts'
import { TEXT_PLAIN } from '#api/messages/index.ts'
import type { Delivery } from '#api/messages/index.ts'
import { pingPeriodically } from '#core/streams/index.ts'
import type { BudgetEntry } from '#core/streams/index.ts'
import { CLOSE, END_CODES, closeFor } from './close-codes.ts'
import { Frames } from './frames.ts'
import type { FramesDeps } from './frames.ts'
import type { Opening } from './opening.ts'

/** The limit of bytes that wait for a slow reader; above it, the socket is closed. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024

export type SessionDeps = FramesDeps

export class WebSocketSession {
  readonly #socket: WebSocket
  readonly #opening: Opening
  readonly #deps: SessionDeps
  readonly #account: BudgetEntry
  readonly #frames: Frames
  /** Identifies the sender of messages; clients are identified by their id, users are not. */
  readonly #sender = {}
  #stopFollowing: (() => void) | undefined

  /** `account`: counts the bytes that wait for the socket's reader. */
  constructor(socket: WebSocket, opening: Opening, deps: SessionDeps, account: BudgetEntry) {
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

  /** Accepts frames and delivers messages until the socket is closed. */
  begin(): void {
    const { presence } = this.#deps.messages
    const { subscribe, clientKey } = this.#opening
    const socket = this.#socket
    const heard = pingPeriodically(socket)
    socket.on('error', () => undefined)
    socket.on('message', (data: RawData, isBinary: boolean) => {
      heard()
      this.#frames.take(bytesOf(data), isBinary)
    })
    if (clientKey !== null) {
      presence.online(clientKey, 'ws')
      socket.once('close', () => presence.offline(clientKey, 'ws'))
    }
    if (subscribe !== undefined) this.#follow(subscribe).catch((error: unknown) => this.#close(closeFor(error)))
  }

  #close({ code, reason }: { code: number; reason: string }): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.close(code, reason)
  }

  async #follow(access: ChannelAccess): Promise<void> {
    const { messages, gate } = this.#deps
    const { path, wanted, credentials, clientKey } = this.#opening
    const socket = this.#socket
    const { close: stop } = await messages.follow({
      access,
      ...wanted,
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
    // The socket is closed when its reader has read everything, or after half a minute.
    this.#stopFollowing?.()
  }
}

function bytesOf(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data)
}

/** JSON and text are sent as text frames, everything else as binary frames. */
function isText(contentType: string, payload: Buffer): boolean {
  return (contentType.endsWith('json') || contentType === TEXT_PLAIN) && isUtf8(payload)
}
