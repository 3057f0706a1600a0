import { create, toBinary } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { FRAME_HEAD_BYTES, FrameReader, MAX_FRAMED_BYTES, frameInPlace } from './byte-frames.ts'
import { FetchResponseSchema } from './gen/cluster/v1/module_pb.ts'

const LENGTHS = [0, 1, 127, 128, 16_383, 16_384, 262_144, MAX_FRAMED_BYTES]
const bytesOf = (length: number) => Buffer.from(Uint8Array.from({ length }, (_, index) => (index * 7) & 0xff))

function framed(data: Uint8Array): Buffer {
  const buffer = Buffer.alloc(FRAME_HEAD_BYTES + data.length)
  buffer.set(data, FRAME_HEAD_BYTES)
  return Buffer.from(frameInPlace(buffer, data.length))
}

/** What comes out of data that arrives in slices, taken whenever a message ended or the buffer is full. */
function read(data: Buffer, sliceBytes: number, pieceBytes: number): { pieces: Buffer[]; isWithinMessage: boolean } {
  const reader = new FrameReader(pieceBytes)
  const pieces: Buffer[] = []
  for (let at = 0; at < data.length; at += sliceBytes) {
    const slice = data.subarray(at, at + sliceBytes)
    for (let offset = 0; offset < slice.length;) {
      offset += reader.take(slice.subarray(offset))
      if (reader.filledBytes < pieceBytes && !reader.hasWhole) continue
      pieces.push(Buffer.from(reader.piece()))
      reader.release()
    }
  }
  return { pieces, isWithinMessage: reader.isWithinMessage }
}

test('a frame is the message as everybody writes it, behind its length', () => {
  for (const length of LENGTHS) {
    const data = bytesOf(length)
    const message = toBinary(FetchResponseSchema, create(FetchResponseSchema, { data }))
    const frame = framed(data)
    expect(frame[0]).toBe(0)
    expect(frame.readUInt32BE(1)).toBe(message.length)
    expect(frame.subarray(5).equals(message), `${length} bytes`).toBe(true)
  }
})

test('more bytes than a frame holds are refused', () => {
  expect(() => frameInPlace(Buffer.alloc(16), MAX_FRAMED_BYTES + 1)).toThrow('a frame holds at most')
})

test('messages are read however they are cut', () => {
  const messages = [0, 1, 130, 0, 20_000].map(bytesOf)
  const data = Buffer.concat(messages.map(framed))
  for (const sliceBytes of [1, 2, 5, 7, 8, 9, 16_384, data.length]) {
    const { pieces, isWithinMessage } = read(data, sliceBytes, 32_768)
    expect(Buffer.concat(pieces).equals(Buffer.concat(messages)), `cut every ${sliceBytes} bytes`).toBe(true)
    expect(isWithinMessage).toBe(false)
  }
})

test('a message that is larger than a piece comes in several', () => {
  const data = bytesOf(10_000)
  const { pieces } = read(Buffer.concat([framed(data), framed(data)]), 3000, 4096)
  expect(pieces.every((piece) => piece.length <= 4096)).toBe(true)
  expect(Buffer.concat(pieces).equals(Buffer.concat([data, data]))).toBe(true)
})

test('a piece stays as it is until it was looked at, however much comes meanwhile', () => {
  const data = bytesOf(5000)
  const frames = Buffer.concat([framed(data.subarray(0, 1900)), framed(data.subarray(1900))])
  for (const sliceBytes of [1, 7, 64, 333, frames.length]) {
    const reader = new FrameReader(1000)
    const found: Buffer[] = []
    let shown: { piece: Buffer; copy: Buffer } | undefined
    for (let at = 0; at < frames.length || reader.filledBytes > 0;) {
      const used = reader.take(frames.subarray(at, at + sliceBytes))
      at += used
      if (shown !== undefined) expect(shown.piece.equals(shown.copy)).toBe(true)
      // The first one is looked at until there is no room for more.
      if (shown !== undefined && used > 0 && at < frames.length) continue
      const piece = reader.piece()
      shown = { piece, copy: Buffer.from(piece) }
      found.push(shown.copy)
    }
    expect(Buffer.concat(found).equals(data), `cut every ${sliceBytes} bytes`).toBe(true)
  }
})

test('a piece that was looked at makes room', () => {
  const reader = new FrameReader(100)
  const frame = framed(bytesOf(250))
  let at = reader.take(frame)
  expect(reader.piece()).toHaveLength(100)
  expect(reader.take(frame.subarray(at))).toBe(0)
  reader.release()
  at += reader.take(frame.subarray(at))
  expect(reader.filledBytes).toBe(100)
})

test('an empty message is heard of', () => {
  const reader = new FrameReader(4096)
  const frame = framed(bytesOf(0))
  expect(reader.take(frame)).toBe(frame.length)
  expect(reader.hasWhole).toBe(true)
  expect(reader.piece()).toHaveLength(0)
  expect(reader.hasWhole).toBe(false)
})

test('a message that ends early is known by it', () => {
  const frame = framed(bytesOf(1000))
  for (const kept of [1, 4, 6, 7, 500]) {
    expect(read(frame.subarray(0, kept), 100, 4096).isWithinMessage, `${kept} bytes`).toBe(true)
  }
})

test.for([
  ['is compressed', [1, 0, 0, 0, 2, 0x0a, 0]],
  ['begins with another field', [0, 0, 0, 0, 2, 0x12, 0]],
  ['has less in it than it says', [0, 0, 0, 0, 9, 0x0a, 1, 7]],
  ['has more in it than it says', [0, 0, 0, 0, 3, 0x0a, 9, 7]],
  ['is endless', [0, 0xff, 0xff, 0xff, 0xff, 0x0a, 0xff, 0xff, 0xff, 0xff]],
] as const)('a message that %s is refused', ([, bytes]) => {
  expect(() => read(Buffer.from(bytes), 3, 4096)).toThrow(/the message/)
})
