/** The host functions of one run in its thread: calls wait for their answers, output is forwarded in time. */
import { receiveMessageOnPort } from 'node:worker_threads'
import type { MessagePort } from 'node:worker_threads'
import { monotonicMs } from '#core/time.ts'
import type { GuestHost, OutputName } from '#guests/calls/index.ts'
import type { GuestCall, GuestReply } from '#guests/wasm/index.ts'
import { guestClock } from '../runtime/guest-clock.ts'
import type { FromGuestThread } from './messages.ts'

/** Output of a shorter run comes with its outcome. */
const STREAM_AFTER_MS = 250
const STREAM_EVERY_MS = 250
const STREAM_BYTES = 16 * 1024
/** Shorter waits of a guest forward no output: it could create as many messages as it writes bytes. */
const LONG_WAIT_MS = 10

export type Replies = { port: MessagePort; arrived: Int32Array }
export type ReplyMessage = { sequence: number; callId: number; reply: GuestReply }

export class GuestThreadHost implements GuestHost {
  readonly clock = guestClock
  readonly #sequence: number
  readonly #port: MessagePort
  readonly #replies: Replies
  readonly #startedMs = monotonicMs()
  readonly #unsent: Record<OutputName, Uint8Array[]> = { stdout: [], stderr: [] }
  #unsentBytes = 0
  #sentMs = 0
  #callId = 0

  constructor(sequence: number, port: MessagePort, replies: Replies) {
    this.#sequence = sequence
    this.#port = port
    this.#replies = replies
  }

  call(call: GuestCall): GuestReply {
    const callId = ++this.#callId
    const { port, arrived } = this.#replies
    const sequence = this.#sequence
    this.#post({ type: 'guest_call', sequence, callId, call })
    for (;;) {
      const seen = Atomics.load(arrived, 0)
      const received = receiveMessageOnPort(port) as { message: ReplyMessage } | undefined
      if (received === undefined) Atomics.wait(arrived, 0, seen)
      // An answer for a run before this one came too late for it.
      else if (received.message.sequence === sequence && received.message.callId === callId) {
        return received.message.reply
      }
    }
  }

  wrote(output: OutputName, data: Uint8Array): void {
    this.#unsent[output].push(data)
    this.#unsentBytes += data.length
    const nowMs = monotonicMs()
    if (nowMs - this.#startedMs < STREAM_AFTER_MS) return
    if (this.#unsentBytes >= STREAM_BYTES || nowMs - this.#sentMs >= STREAM_EVERY_MS) this.#stream(nowMs)
  }

  beforeWait(waitMs: number): void {
    if (this.#unsentBytes === 0) return
    const nowMs = monotonicMs()
    if (waitMs >= LONG_WAIT_MS || nowMs - this.#sentMs >= STREAM_EVERY_MS) this.#stream(nowMs)
  }

  /** Forwards the rest if some output was streamed; returns true then, and the outcome omits the output. */
  finish(): boolean {
    if (this.#sentMs === 0) return false
    if (this.#unsentBytes > 0) this.#stream(monotonicMs())
    return true
  }

  #stream(nowMs: number): void {
    this.#sentMs = nowMs
    this.#unsentBytes = 0
    for (const output of ['stdout', 'stderr'] as const) {
      const pieces = this.#unsent[output]
      if (pieces.length === 0) continue
      this.#unsent[output] = []
      const data = Buffer.concat(pieces).toString('base64')
      this.#post({ type: 'output', sequence: this.#sequence, output, data })
    }
  }

  #post(message: FromGuestThread): void {
    this.#port.postMessage(message)
  }
}
