/**
 * The wire form of messages that are bytes alone and stand in the field 1 (`FetchResponse`): written in front of bytes that
 * are in a buffer already, and read as they come, so that the parts of modules are copied once and leave no garbage
 * ("gRPC over HTTP/2", Length-Prefixed-Message; Protocol Buffers, "Encoding").
 */

/** What a frame takes in front of the bytes, at most: not compressed, length, tag, length of the bytes. */
export const FRAME_HEAD_BYTES = 9

const PREFIX_BYTES = 5
/** Field 1, length-delimited. */
const TAG = 0x0a
/** What three bytes of a varint can say; chunks have an eighth of it. */
export const MAX_FRAMED_BYTES = 2 ** 21 - 1

/** The message of the bytes that stand in the buffer behind `FRAME_HEAD_BYTES`: a view of the same buffer. */
export function frameInPlace(buffer: Buffer, sizeBytes: number): Buffer {
  if (sizeBytes > MAX_FRAMED_BYTES) throw new RangeError(`a frame holds at most ${MAX_FRAMED_BYTES} bytes`)
  const end = FRAME_HEAD_BYTES + sizeBytes
  // The empty value is not written (descriptor.proto, FeatureSet.FieldPresence).
  const field = sizeBytes === 0 ? [] : [TAG, ...varint(sizeBytes)]
  const start = FRAME_HEAD_BYTES - field.length - PREFIX_BYTES
  buffer[start] = 0
  buffer.writeUInt32BE(field.length + sizeBytes, start + 1)
  buffer.set(field, FRAME_HEAD_BYTES - field.length)
  return buffer.subarray(start, end)
}

function varint(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest >>= 7) bytes.push((rest & 0x7f) | 0x80)
  bytes.push(rest)
  return bytes
}

/**
 * Takes messages apart as they come and gathers their bytes in one buffer, which is written round and round: behind the piece
 * that is looked at as long as that is needed, from its beginning again when nothing is, so that little memory is touched.
 */
export class FrameReader {
  readonly #buffer: Buffer
  readonly #head = Buffer.alloc(FRAME_HEAD_BYTES)
  #headBytes = 0
  /** Where the next piece begins. */
  #begin = 0
  #filled = 0
  /** Of the piece that is looked at, which ends where the next one begins. */
  #shown = 0
  #hasWhole = false
  /** Of the message that is being read; undefined: its head is not all here. */
  #rest: number | undefined

  constructor(bufferBytes: number) {
    this.#buffer = Buffer.allocUnsafeSlow(bufferBytes)
  }

  /** False between two messages: an end then is a whole one. */
  get isWithinMessage(): boolean {
    return this.#rest !== undefined || this.#headBytes > 0
  }

  /** A message ended since the last piece, so that there is something to hand on. */
  get hasWhole(): boolean {
    return this.#hasWhole
  }

  /** Reads until the buffer is full; how many bytes were used. Throws when these are not messages of bytes alone. */
  take(data: Buffer): number {
    let position = 0
    while (position < data.length) {
      if (this.#rest === undefined) {
        this.#head[this.#headBytes++] = data[position++] ?? 0
        this.#rest = bytesAfter(this.#head, this.#headBytes)
      } else {
        const to = (this.#begin + this.#filled) % this.#buffer.length
        const room = Math.min(this.#buffer.length - to, this.#buffer.length - this.#filled - this.#shown)
        const size = Math.min(this.#rest, data.length - position, room)
        if (size === 0 && this.#rest > 0) return position
        data.copy(this.#buffer, to, position, position + size)
        position += size
        this.#filled += size
        this.#rest -= size
      }
      if (this.#rest === 0) {
        this.#rest = undefined
        this.#headBytes = 0
        this.#hasWhole = true
      }
    }
    return position
  }

  /** Not handed on yet. */
  get filledBytes(): number {
    return this.#filled
  }

  /** The last piece was looked at: its place is free. */
  release(): void {
    this.#shown = 0
    if (this.#filled === 0) this.#begin = 0
  }

  /** What was gathered, up to the end of the buffer; the rest is another piece. A view that is valid until the next one, or `release`. */
  piece(): Buffer {
    this.release()
    const size = Math.min(this.#filled, this.#buffer.length - this.#begin)
    const piece = this.#buffer.subarray(this.#begin, this.#begin + size)
    this.#begin = (this.#begin + size) % this.#buffer.length
    this.#filled -= size
    this.#shown = size
    if (this.#filled === 0) this.#hasWhole = false
    return piece
  }
}

/** How many bytes of the field follow the head of a message, of which so many are here; undefined: the head goes on. */
function bytesAfter(head: Buffer, headBytes: number): number | undefined {
  if (headBytes < PREFIX_BYTES) return undefined
  if (head[0] !== 0) throw new Error('the message is compressed, which nobody asked for')
  const messageBytes = head.readUInt32BE(1)
  if (messageBytes === 0) return 0
  const digits = headBytes - PREFIX_BYTES - 1
  if (digits < 0) return undefined
  if (head[PREFIX_BYTES] !== TAG) throw new Error(`the message begins with field ${head[PREFIX_BYTES]}, not with bytes`)
  const isOpen = digits === 0 || (head[headBytes - 1] ?? 0) > 0x7f
  if (isOpen && headBytes < FRAME_HEAD_BYTES) return undefined
  let sizeBytes = 0
  for (let digit = 0; digit < digits; digit++) {
    sizeBytes += ((head[PREFIX_BYTES + 1 + digit] ?? 0) & 0x7f) * 2 ** (7 * digit)
  }
  if (isOpen || 1 + digits + sizeBytes !== messageBytes) {
    throw new Error(`the message has ${messageBytes} bytes, its field ${sizeBytes}`)
  }
  return sizeBytes
}
