import { expect, test } from 'vitest'
import { Uploads } from './uploads.ts'

const block = (number: number, hasMore: boolean, exponent = 0) => ({ number, hasMore, exponent })
const sixteen = (byte: number) => Buffer.alloc(16, byte)
const uploads = (maxBodyBytes = 1024) => new Uploads(maxBodyBytes)
const codeOf = (act: () => unknown): unknown => {
  try {
    return act()
  } catch (error) {
    return (error as { code?: number }).code ?? (error as { kind?: string }).kind
  }
}

test('blocks in order form the body, which is complete with the last one (RFC 7959 section 2.5)', () => {
  const taking = uploads()
  expect(taking.take('a', block(0, true), sixteen(1), undefined)).toBeUndefined()
  expect(taking.take('b', block(0, true), sixteen(9), undefined)).toBeUndefined()
  expect(taking.take('a', block(1, true), sixteen(2), undefined)).toBeUndefined()
  const body = taking.take('a', block(2, false), Buffer.from([3]), undefined)
  expect(body).toEqual(Buffer.concat([sixteen(1), sixteen(2), Buffer.from([3])]))
  expect(taking.size).toBe(1)
})

test('a repeated block is stored at its position', () => {
  const taking = uploads()
  taking.take('a', block(0, true), sixteen(1), undefined)
  taking.take('a', block(1, true), sixteen(2), undefined)
  taking.take('a', block(1, true), sixteen(3), undefined)
  expect(taking.take('a', block(2, false), sixteen(4), undefined)).toEqual(
    Buffer.concat([sixteen(1), sixteen(3), sixteen(4)]),
  )
})

test('later blocks may be smaller', () => {
  const taking = uploads()
  taking.take('a', block(0, true, 1), Buffer.alloc(32, 1), undefined)
  expect(taking.take('a', block(2, false, 0), sixteen(2), undefined)).toHaveLength(48)
})

test('a block without the earlier blocks is refused with 4.08', () => {
  const taking = uploads()
  expect(codeOf(() => taking.take('a', block(1, false), sixteen(1), undefined))).toBe((4 << 5) | 8)
  taking.take('a', block(0, true), sixteen(1), undefined)
  expect(codeOf(() => taking.take('a', block(2, false), sixteen(1), undefined))).toBe((4 << 5) | 8)
})

test('a block with another length than it declares is malformed', () => {
  expect(codeOf(() => uploads().take('a', block(0, true), Buffer.alloc(15), undefined))).toBe('malformed')
  expect(codeOf(() => uploads().take('a', block(0, false), Buffer.alloc(17), undefined))).toBe('malformed')
})

test('a body above the limit is refused at the first block that exceeds or announces it', () => {
  const taking = uploads(40)
  expect(codeOf(() => taking.take('a', block(0, true), sixteen(1), 41))).toBe('too_large')
  taking.take('a', block(0, true), sixteen(1), 40)
  taking.take('a', block(1, true), sixteen(1), undefined)
  expect(codeOf(() => taking.take('a', block(2, false), sixteen(1), undefined))).toBe('too_large')
  expect(taking.size).toBe(0)
})

test('unfinished bodies are bounded: the one that has waited longest is dropped', () => {
  const taking = uploads()
  for (let peer = 0; peer <= 10_000; peer++) taking.take(`peer ${peer}`, block(0, true), sixteen(1), undefined)
  expect(taking.size).toBe(10_000)
  expect(codeOf(() => taking.take('peer 0', block(1, false), sixteen(1), undefined))).toBe((4 << 5) | 8)
  expect(taking.take('peer 10000', block(1, false), sixteen(1), undefined)).toHaveLength(32)
})
