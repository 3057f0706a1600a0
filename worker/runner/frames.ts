/**
 * What travels between a worker and a runner on the runner's standard streams: frames of a kind, a length and a payload.
 * Not the IPC channel of Node, which trusts the child: a line that is not JSON, or an internal message of a kind that it
 * does not know, throws in the parent.
 */

/** `messages`: a JSON array of messages. `module`: the next bytes of the module that is being loaded. */
export const FRAME = { messages: 1, module: 2 } as const
export type FrameKind = (typeof FRAME)[keyof typeof FRAME]

const HEADER_BYTES = 5
/** A frame of messages is closed when it is this large, so that a burst does not become one huge payload. */
const TARGET_FRAME_BYTES = 1024 * 1024

export function encodeFrame(kind: FrameKind, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length)
  frame.writeUInt8(kind, 0)
  frame.writeUInt32LE(payload.length, 1)
  frame.set(payload, HEADER_BYTES)
  return frame
}

/** Frames that hold all messages in order. */
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

/** Cuts a stream of bytes into frames. Each byte is copied once, however the stream is cut. */
export class FrameReader {
  readonly #maxPayloadBytes: number
  readonly #onFrame: (kind: number, payload: Buffer) => void
  #chunks: Buffer[] = []
  #bytes = 0

  constructor(maxPayloadBytes: number, onFrame: (kind: number, payload: Buffer) => void) {
    this.#maxPayloadBytes = maxPayloadBytes
    this.#onFrame = onFrame
  }

  /** Throws when a frame is longer than the bound. */
  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    while (this.#bytes >= HEADER_BYTES) {
      const header = this.#peek(HEADER_BYTES)
      const payloadBytes = header.readUInt32LE(1)
      if (payloadBytes > this.#maxPayloadBytes) {
        throw new RangeError(`a frame of ${payloadBytes} bytes, at most ${this.#maxPayloadBytes} are accepted`)
      }
      if (this.#bytes < HEADER_BYTES + payloadBytes) return
      const frame = this.#peek(HEADER_BYTES + payloadBytes)
      this.#drop(frame.length)
      this.#onFrame(header.readUInt8(0), frame.subarray(HEADER_BYTES))
    }
  }

  /** The first bytes in one piece; there must be so many. */
  #peek(bytes: number): Buffer {
    const [first] = this.#chunks
    if (first !== undefined && first.length >= bytes) return first.subarray(0, bytes)
    const head: Buffer[] = []
    let taken = 0
    while (taken < bytes) {
      const chunk = this.#chunks.shift() as Buffer
      head.push(chunk)
      taken += chunk.length
    }
    const joined = Buffer.concat(head)
    this.#chunks.unshift(joined)
    return joined.subarray(0, bytes)
  }

  #drop(bytes: number): void {
    this.#bytes -= bytes
    const first = this.#chunks.shift() as Buffer
    if (first.length > bytes) this.#chunks.unshift(first.subarray(bytes))
  }
}
