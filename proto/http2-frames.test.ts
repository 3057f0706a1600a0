import { expect, test } from 'vitest'
import { FRAME, Http2FrameReader, MAX_PAYLOAD_BYTES, frameOf } from './http2-frames.ts'
import type { Frame } from './http2-frames.ts'

function read(bytes: Buffer, sliceBytes: number): { data: Buffer; frames: Frame[] } {
  const parts: Buffer[] = []
  const frames: Frame[] = []
  const reader = new Http2FrameReader({
    onData: (part) => void parts.push(Buffer.from(part)),
    onFrame: (frame) => void frames.push(frame),
  })
  for (let at = 0; at < bytes.length; at += sliceBytes) reader.take(bytes.subarray(at, at + sliceBytes))
  return { data: Buffer.concat(parts), frames }
}

const filled = (size: number) => Buffer.from(Uint8Array.from({ length: size }, (_, index) => index & 0xff))

test('frames are read however they are cut', () => {
  const bytes = Buffer.concat([
    frameOf(FRAME.settings, 0, 0, Buffer.alloc(0)),
    frameOf(FRAME.headers, 4, 1, Buffer.from('abc')),
    frameOf(FRAME.data, 0, 1, filled(1000)),
    frameOf(FRAME.data, 1, 1, Buffer.alloc(0)),
  ])
  for (const sliceBytes of [1, 2, 8, 9, 10, 500, bytes.length]) {
    const { data, frames } = read(bytes, sliceBytes)
    expect(data.equals(filled(1000)), `cut every ${sliceBytes} bytes`).toBe(true)
    expect(frames.map(({ type, flags, streamId, sizeBytes }) => [type, flags, streamId, sizeBytes])).toEqual([
      [FRAME.settings, 0, 0, 0],
      [FRAME.headers, 4, 1, 3],
      [FRAME.data, 0, 1, 1000],
      [FRAME.data, 1, 1, 0],
    ])
    expect(frames[1]?.payload.toString()).toBe('abc')
  }
})

test('padding and priority are left out, and padding counts', () => {
  const padded = frameOf(FRAME.data, 0x8, 1, Buffer.from([2, 7, 8, 9, 0, 0]))
  const headers = frameOf(FRAME.headers, 0x8 | 0x20, 1, Buffer.from([1, 0, 0, 0, 0, 0, 0x61, 0]))
  const { data, frames } = read(Buffer.concat([padded, headers]), 4)
  expect([...data]).toEqual([7, 8, 9])
  expect(frames.map(({ sizeBytes }) => sizeBytes)).toEqual([6, 8])
  expect(frames[1]?.payload.toString()).toBe('a')
})

test('a frame that is too large, or has more padding than bytes, is refused', () => {
  const head = frameOf(FRAME.data, 0, 1, Buffer.alloc(0))
  head.writeUIntBE(MAX_PAYLOAD_BYTES + 1, 0, 3)
  expect(() => read(head, 9)).toThrow('a frame has 16385 bytes')
  expect(() => read(frameOf(FRAME.data, 0x8, 1, Buffer.from([3, 0, 0])), 4)).toThrow('more padding than bytes')
  expect(() => frameOf(FRAME.data, 0, 1, Buffer.alloc(MAX_PAYLOAD_BYTES + 1))).toThrow(RangeError)
})
