import fc from 'fast-check'
import { expect, test } from 'vitest'
import { FRAME, FrameReader, encodeFrame, encodeMessages } from './frames.ts'

/** The frames of a reader that gets the bytes in pieces of these sizes, repeated. */
function read(bytes: Buffer, sizes: readonly number[], maxPayloadBytes = 1 << 24): [number, string][] {
  const frames: [number, string][] = []
  const reader = new FrameReader(maxPayloadBytes, (kind, payload) => frames.push([kind, payload.toString()]))
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1
    reader.push(bytes.subarray(at, at + size))
    at += size
  }
  return frames
}

test('frames are decoded unchanged for any split of the stream', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom(FRAME.messages, FRAME.module), fc.string({ unit: 'binary' }))),
      fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
      (frames, sizes) => {
        const bytes = Buffer.concat(frames.map(([kind, text]) => encodeFrame(kind, Buffer.from(text))))
        const expected = frames.map(([kind, text]) => [kind, Buffer.from(text).toString()])
        expect(read(bytes, sizes)).toEqual(expected)
      },
    ),
  )
})

test('many messages share a frame, and large ones do not make one huge frame', () => {
  const small = Array.from({ length: 100 }, (_, n) => ({ n }))
  expect(read(encodeMessages(small), [1000])).toEqual([[FRAME.messages, JSON.stringify(small)]])
  const large = Array.from({ length: 4 }, () => ({ text: 'x'.repeat(900_000) }))
  const frames = read(encodeMessages(large), [65_536])
  expect(frames).toHaveLength(4)
  expect(frames.flatMap(([, text]) => JSON.parse(text) as unknown[])).toEqual(large)
})

test('a frame above the limit is refused before its payload arrives', () => {
  const header = encodeFrame(FRAME.messages, Buffer.alloc(101)).subarray(0, 5)
  expect(() => read(header, [5], 100)).toThrow('a frame has 101 bytes, at most 100 are accepted')
})
