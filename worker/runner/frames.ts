/**
 * The protocol between a worker and a runner on the runner's standard streams: frames of a kind, a length and a payload.
 * Node's IPC channel is not used, because it trusts the child: a line that is not JSON, or an unknown internal message,
 * throws in the parent.
 */

/** `messages`: a JSON array of messages. `module`: the next bytes of the module that is being loaded. */
export const FRAME = { messages: 1, module: 2 } as const
export type FrameKind = (typeof FRAME)[keyof typeof FRAME]

const HEADER_BYTES = 5
/** A frame of messages is closed at this size, so that a burst does not become one huge payload. */
const TARGET_FRAME_BYTES = 1024 * 1024

export function encodeFrame(kind: FrameKind, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length)
  frame.writeUInt8(kind, 0)
  frame.writeUInt32LE(payload.length, 1)
  frame.set(payload, HEADER_BYTES)
  return frame
}

/** Frames with all messages in order. */
export function encodeMessages(messages: readonly unknown[]): Buffer {
  const frames: Buffer[] = []
  let open: string[] = []
  let openCharacters = 0
  const close = () => {
    if (open.length > 0) frames.push(encodeFrame(FRAME.messages, Buffer.from(`[${open.join(',')}]`)))
    open = []
    openCharacters = 0
  }
  for (const message of messages) {
    const text = JSON.stringify(message)
    if (openCharacters + text.length > TARGET_FRAME_BYTES) close()
    open.push(text)
    openCharacters += text.length
  }
  close()
  return frames.length === 1 ? (frames[0] as Buffer) : Buffer.concat(frames)
}

/** Splits a stream into frames. A partial frame takes as much memory as its bytes, for any split of the stream. */
export class FrameReader {
  readonly #maxPayloadBytes: number
  readonly #onFrame: (kind: number, payload: Buffer) => void
  /** A partial frame: the first `#filled` bytes of this buffer. */
  #held: Buffer = Buffer.alloc(0)
  #filled = 0

  constructor(maxPayloadBytes: number, onFrame: (kind: number, payload: Buffer) => void) {
    this.#maxPayloadBytes = maxPayloadBytes
    this.#onFrame = onFrame
  }

  /** Throws if a frame is longer than the limit. */
  push(chunk: Buffer): void {
    let rest = chunk
    while (rest.length > 0) {
      // A complete frame in the chunk is not copied.
      const whole = this.#filled === 0 && rest.length >= HEADER_BYTES ? this.#frameBytes(rest) : Infinity
      if (rest.length >= whole) {
        this.#give(rest.subarray(0, whole))
        rest = rest.subarray(whole)
        continue
      }
      const isHeader = this.#filled < HEADER_BYTES
      const wanted = isHeader ? HEADER_BYTES : this.#frameBytes(this.#held)
      const part = rest.subarray(0, wanted - this.#filled)
      this.#hold(part, wanted)
      rest = rest.subarray(part.length)
      if (this.#filled < HEADER_BYTES || this.#filled < this.#frameBytes(this.#held)) continue
      const frame = this.#held.subarray(0, this.#filled)
      this.#held = Buffer.alloc(0)
      this.#filled = 0
      this.#give(frame)
    }
  }

  #give(frame: Buffer): void {
    this.#onFrame(frame.readUInt8(0), frame.subarray(HEADER_BYTES))
  }

  /** Size of the frame that begins with these bytes, including its header. */
  #frameBytes(head: Buffer): number {
    const payloadBytes = head.readUInt32LE(1)
    if (payloadBytes > this.#maxPayloadBytes) {
      throw new RangeError(`a frame has ${payloadBytes} bytes, at most ${this.#maxPayloadBytes} are accepted`)
    }
    return HEADER_BYTES + payloadBytes
  }

  /** The buffer grows with received bytes, not with the announced length. */
  #hold(part: Buffer, wanted: number): void {
    const filled = this.#filled + part.length
    if (filled > this.#held.length) {
      const larger = Buffer.allocUnsafe(Math.max(filled, Math.min(wanted, 2 * this.#held.length)))
      this.#held.copy(larger, 0, 0, this.#filled)
      this.#held = larger
    }
    part.copy(this.#held, this.#filled)
    this.#filled = filled
  }
}
