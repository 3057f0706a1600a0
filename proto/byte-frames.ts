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

/** Takes messages apart as they come and gathers their bytes in two buffers by turns: a piece is looked at, the next one fills. */
export class FrameReader {
  #buffer: Buffer
  #other: Buffer
  readonly #head: number[] = []
  #filled = 0
  #hasWhole = false
  /** Of the message that is being read; undefined: its head is not all here. */
  #rest: number | undefined

  constructor(pieceBytes: number) {
    this.#buffer = Buffer.allocUnsafeSlow(pieceBytes)
    this.#other = Buffer.allocUnsafeSlow(pieceBytes)
  }

  /** False between two messages: an end then is a whole one. */
  get isWithinMessage(): boolean {
    return this.#rest !== undefined || this.#head.length > 0
  }

  /** A message ended since the last piece, so that there is something to hand on. */
  get hasWhole(): boolean {
    return this.#hasWhole
  }

  /** Reads until the buffer is full; how many bytes were used. Throws when these are not messages of bytes alone. */
  take(data: Buffer): number {
    let position = 0
    while (position < data.length && this.#filled < this.#buffer.length) {
      if (this.#rest === undefined) {
        this.#head.push(data[position] ?? 0)
        position += 1
        this.#rest = bytesAfter(this.#head)
      } else {
        const size = Math.min(this.#rest, data.length - position, this.#buffer.length - this.#filled)
        data.copy(this.#buffer, this.#filled, position, position + size)
        position += size
        this.#filled += size
        this.#rest -= size
      }
      if (this.#rest === 0) {
        this.#rest = undefined
        this.#head.length = 0
        this.#hasWhole = true
      }
    }
    return position
  }

  get filledBytes(): number {
    return this.#filled
  }

  /** What was gathered: a view that is overwritten by what is read after the next piece. */
  piece(): Buffer {
    const piece = this.#buffer.subarray(0, this.#filled)
    ;[this.#buffer, this.#other] = [this.#other, this.#buffer]
    this.#filled = 0
    this.#hasWhole = false
    return piece
  }
}

/** How many bytes of the field follow the head of a message; undefined: the head goes on. */
function bytesAfter(head: readonly number[]): number | undefined {
  if (head.length < PREFIX_BYTES) return undefined
  const [compressed = 0, ...rest] = head
  if (compressed !== 0) throw new Error('the message is compressed, which nobody asked for')
  const [a = 0, b = 0, c = 0, d = 0, ...field] = rest
  const messageBytes = ((a * 256 + b) * 256 + c) * 256 + d
  if (messageBytes === 0) return 0
  if (field.length === 0) return undefined
  const [tag, ...digits] = field
  if (tag !== TAG) throw new Error(`the message begins with field ${tag}, not with bytes`)
  if (digits.length === 0 || ((digits.at(-1) ?? 0) > 0x7f && digits.length < 3)) return undefined
  const sizeBytes = digits.reduce((sum, digit, index) => sum + (digit & 0x7f) * 2 ** (7 * index), 0)
  if ((digits.at(-1) ?? 0) > 0x7f || field.length + sizeBytes !== messageBytes) {
    throw new Error(`the message has ${messageBytes} bytes, its field ${sizeBytes}`)
  }
  return sizeBytes
}
