/** Frames of a socket: published and acknowledged in order; the socket is not read while nothing can be stored. */
import type { WebSocket } from 'ws'
import type { MessageGate } from '#api/devices/index.ts'
import { JSON_TYPE, OCTET_STREAM, SENML_JSON, TEXT_PLAIN, sniffContent, parseSubtopic } from '#api/messages/index.ts'
import type { IncomingMessage, Messages } from '#api/messages/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { Opening } from './opening.ts'

/** The limit of uncommitted frames of one socket; above it, the socket is not read. */
const MAX_PENDING_FRAMES = 1000
/** The time for which nothing can be stored after which the socket is closed (contract section 7.6). */
const FULL_DEADLINE_MS = 30_000
const FULL_RETRY_MS = 100

export type FramesDeps = { gate: MessageGate; messages: Messages }

export type FramesOptions = {
  socket: WebSocket
  opening: Opening
  /** Identifies the sender of a message within this process. */
  sender: object
  /** The frame with this number is committed; called in order. */
  onStored: (frame: number) => void
  /** The first rejected frame; later ones may fail without a report. */
  onRefused: (error: unknown) => void
}

export class Frames {
  readonly #deps: FramesDeps
  readonly #options: FramesOptions
  #pending = 0
  /** A frame waits for the quota of the domain. */
  #isSlowed = false
  #count = 0
  /** Frames are authorized and published in order; acknowledgements are sent in that order too. */
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
      if (--this.#pending < MAX_PENDING_FRAMES / 2 && socket.isPaused && !this.#isSlowed) socket.resume()
    }
  }

  /** Publishes a frame; the next one waits while this one finds no room, so that the order is kept. */
  async #handOver(data: Buffer, isBinary: boolean): Promise<{ stored: Promise<void> }> {
    const message = await this.#messageOf(data, isBinary)
    const admitted = this.#deps.messages.rates.admit(message.access.domainKey, data.length)
    if (admitted !== undefined) {
      this.#isSlowed = true
      this.#options.socket.pause()
      await admitted
      this.#isSlowed = false
    }
    const stored = this.#store(message)
    // A full queue rejects at once; a commit takes longer than a turn of the event loop.
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
    // A text frame that is not JSON is text.
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

  /** Stores the frame. While nothing can be stored it retries, and the socket is not read. */
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
