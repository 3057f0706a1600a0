/** Frames that a socket receives: published in their order, answered in that order, not read while nothing can be stored. */
import type { WebSocket } from 'ws'
import type { MessageGate } from '#api/devices/index.ts'
import { JSON_TYPE, OCTET_STREAM, SENML_JSON, TEXT_PLAIN, sniffContent, parseSubtopic } from '#api/messages/index.ts'
import type { IncomingMessage, Messages } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { Opening } from './opening.ts'

/** Frames of one socket whose commit is awaited; beyond, the socket is not read. */
const MAX_PENDING_FRAMES = 1000
/** A socket that nothing can be stored for is read no further, and closed after so long (contract section 7.6). */
const FULL_DEADLINE_MS = 30_000
const FULL_RETRY_MS = 100

export type FramesDeps = { gate: MessageGate; messages: Messages }

export type FramesOptions = {
  socket: WebSocket
  opening: Opening
  /** Says of a message that this socket sent it. */
  sender: object
  /** The frame of this number is committed; told in order. */
  onStored: (frame: number) => void
  /** The first frame that is refused; those behind it may fail unheard. */
  onRefused: (error: unknown) => void
}

export class Frames {
  readonly #deps: FramesDeps
  readonly #options: FramesOptions
  #pending = 0
  #count = 0
  /** Frames are authorised and handed over one after the other; answers leave in that order too. */
  #turn: Promise<void> = Promise.resolve()
  #answers: Promise<void> = Promise.resolve()

  constructor(deps: FramesDeps, options: FramesOptions) {
    this.#deps = deps
    this.#options = options
  }

  take(data: Buffer, isBinary: boolean): void {
    const frame = ++this.#count
    if (++this.#pending >= MAX_PENDING_FRAMES) this.#options.socket.pause()
    const handed = this.#turn.then(() => this.#handOver(data, isBinary))
    this.#turn = handed.then(
      () => undefined,
      () => undefined,
    )
    this.#answers = this.#answers.then(() => this.#answer(frame, handed))
    handed.then(({ stored }) => stored.catch(() => undefined)).catch(() => undefined)
  }

  async #answer(frame: number, handed: Promise<{ stored: Promise<void> }>): Promise<void> {
    const { socket, onStored, onRefused } = this.#options
    try {
      const { stored } = await handed
      await stored
      onStored(frame)
    } catch (error) {
      onRefused(error)
    } finally {
      if (--this.#pending < MAX_PENDING_FRAMES / 2 && socket.isPaused) socket.resume()
    }
  }

  /** Hands a frame over; the next one waits while this one finds no room, or it would overtake it. */
  async #handOver(data: Buffer, isBinary: boolean): Promise<{ stored: Promise<void> }> {
    const message = await this.#messageOf(data, isBinary)
    const stored = this.#store(message)
    // A full queue refuses at once; a commit takes longer than a turn of the event loop.
    const isTaken = await Promise.race([stored.then(() => true), nextTurn().then(() => !this.#options.socket.isPaused)])
    if (!isTaken) await stored
    return { stored }
  }

  async #messageOf(data: Buffer, isBinary: boolean): Promise<IncomingMessage> {
    const { opening, sender } = this.#options
    const access = await this.#deps.gate.authorize(await opening.credentials(), opening.path, 'publish')
    const subtopic = parseSubtopic(opening.rest)
    const receivedAtSeconds = Date.now() / 1000
    const content = sniffContent(data, { subtopic, receivedAtSeconds })
    // What is no JSON and came as text is text.
    const isText = content.kind === 'raw' && !isBinary
    const contentType =
      content.kind === 'records'
        ? SENML_JSON
        : content.kind === 'documents'
          ? JSON_TYPE
          : isText
            ? TEXT_PLAIN
            : OCTET_STREAM
    return {
      access,
      subtopic,
      protocol: 'ws',
      receivedAtSeconds,
      content: isText ? { ...content, contentType } : content,
      original: { contentType, body: data },
      sender,
    }
  }

  /** The commit of the frame. While nothing can be stored it is tried again, and the socket is not read. */
  async #store(message: IncomingMessage): Promise<void> {
    const { socket } = this.#options
    const sinceMs = monotonicMs()
    for (;;) {
      try {
        await this.#deps.messages.publish(message)
        return
      } catch (error) {
        if (kindOf(error) !== 'unavailable' || socket.readyState !== socket.OPEN) throw error
        if (monotonicMs() - sinceMs > FULL_DEADLINE_MS) throw error
        socket.pause()
        await sleep(FULL_RETRY_MS)
      }
    }
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve))
}
