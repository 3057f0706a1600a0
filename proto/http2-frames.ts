/**
 * Frames of HTTP/2 (RFC 9113 section 4) as one caller of one stream reads and writes them. What carries data is handed on
 * as it comes, everything else when it is whole; nothing is copied that need not be.
 */

export const FRAME = {
  data: 0,
  headers: 1,
  resetStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const

/** END_STREAM of data and headers. */
export const END_STREAM = 0x1
/** ACK of settings and pings: the same bit. */
export const ACK = 0x1
export const END_HEADERS = 0x4
const PADDED = 0x8
const PRIORITY = 0x20

const HEAD_BYTES = 9
const NOTHING = Buffer.alloc(0)
/** SETTINGS_MAX_FRAME_SIZE where nobody said otherwise (RFC 9113 section 6.5.2). */
export const MAX_PAYLOAD_BYTES = 16_384

export type Frame = {
  type: number
  flags: number
  streamId: number
  /** Without padding; empty where the frame carried data. */
  payload: Buffer
  /** What it was, padding included: what counts for flow control (RFC 9113 section 6.9.1). */
  sizeBytes: number
}

export type FrameEvents = {
  /** A part of the data of a stream, a view that is valid until this returns; its last one ends the frame. */
  onData: (part: Buffer, streamId: number) => void
  /** A whole frame, of data too. */
  onFrame: (frame: Frame) => void
}

/** Takes a connection apart. Throws when it breaks the rules; nothing more is to be read from it then. */
export class Http2FrameReader {
  readonly #events: FrameEvents
  readonly #head = Buffer.alloc(HEAD_BYTES)
  #headBytes = 0
  #type = 0
  #flags = 0
  #streamId = 0
  #sizeBytes = 0
  #restBytes = 0
  /** Of a frame that is needed whole. */
  #payload: Buffer | undefined

  constructor(events: FrameEvents) {
    this.#events = events
  }

  take(bytes: Buffer): void {
    for (let position = 0; position < bytes.length;) {
      if (this.#headBytes < HEAD_BYTES) {
        const size = Math.min(HEAD_BYTES - this.#headBytes, bytes.length - position)
        bytes.copy(this.#head, this.#headBytes, position, position + size)
        this.#headBytes += size
        position += size
        if (this.#headBytes < HEAD_BYTES) return
        this.#begin()
      }
      const size = Math.min(this.#restBytes, bytes.length - position)
      const part = bytes.subarray(position, position + size)
      position += size
      if (this.#payload === undefined) {
        if (size > 0) this.#events.onData(part, this.#streamId)
      } else {
        part.copy(this.#payload, this.#payload.length - this.#restBytes)
      }
      this.#restBytes -= size
      if (this.#restBytes === 0) this.#end()
    }
  }

  #begin(): void {
    this.#sizeBytes = this.#head.readUIntBE(0, 3)
    if (this.#sizeBytes > MAX_PAYLOAD_BYTES) throw new Error(`a frame has ${this.#sizeBytes} bytes`)
    this.#type = this.#head.readUInt8(3)
    this.#flags = this.#head.readUInt8(4)
    this.#streamId = this.#head.readUInt32BE(5) & 0x7fffffff
    this.#restBytes = this.#sizeBytes
    const isStreamed = this.#type === FRAME.data && (this.#flags & PADDED) === 0
    this.#payload = isStreamed ? undefined : Buffer.alloc(this.#sizeBytes)
  }

  #end(): void {
    this.#headBytes = 0
    const content = this.#payload === undefined ? NOTHING : contentOf(this.#type, this.#flags, this.#payload)
    this.#payload = undefined
    const isData = this.#type === FRAME.data
    if (isData && content.length > 0) this.#events.onData(content, this.#streamId)
    this.#events.onFrame({
      type: this.#type,
      flags: this.#flags,
      streamId: this.#streamId,
      payload: isData ? NOTHING : content,
      sizeBytes: this.#sizeBytes,
    })
  }
}

/** Without padding and priority (RFC 9113 sections 6.1 and 6.2). */
function contentOf(type: number, flags: number, payload: Buffer): Buffer {
  if (type !== FRAME.data && type !== FRAME.headers) return payload
  const isPadded = (flags & PADDED) !== 0
  const begin = (isPadded ? 1 : 0) + (type === FRAME.headers && (flags & PRIORITY) !== 0 ? 5 : 0)
  const end = payload.length - (isPadded ? (payload[0] ?? 0) : 0)
  if (begin > end) throw new Error('a frame has more padding than bytes')
  return payload.subarray(begin, end)
}

export function frameOf(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  if (payload.length > MAX_PAYLOAD_BYTES) throw new RangeError(`a frame holds at most ${MAX_PAYLOAD_BYTES} bytes`)
  const frame = Buffer.alloc(HEAD_BYTES + payload.length)
  frame.writeUIntBE(payload.length, 0, 3)
  frame.writeUInt8(type, 3)
  frame.writeUInt8(flags, 4)
  frame.writeUInt32BE(streamId, 5)
  frame.set(payload, HEAD_BYTES)
  return frame
}

/** RFC 9113 section 6.5.1: identifier and value, as often as there are settings. */
export function settingsFrame(settings: readonly (readonly [number, number])[]): Buffer {
  const payload = Buffer.alloc(6 * settings.length)
  for (const [index, [identifier, value]] of settings.entries()) {
    payload.writeUInt16BE(identifier, 6 * index)
    payload.writeUInt32BE(value, 6 * index + 2)
  }
  return frameOf(FRAME.settings, 0, 0, payload)
}

export function windowUpdateFrame(streamId: number, bytes: number): Buffer {
  const payload = Buffer.alloc(4)
  payload.writeUInt32BE(bytes)
  return frameOf(FRAME.windowUpdate, 0, streamId, payload)
}
