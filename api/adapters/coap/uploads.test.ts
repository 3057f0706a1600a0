import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Block } from './blocks.ts'
import { Uploads } from './uploads.ts'

const block = (number: number, hasMore: boolean, exponent = 0) => ({ number, hasMore, exponent })
const sixteen = (byte: number) => Buffer.alloc(16, byte)
const uploads = (maxBodyBytes = 1024, nowMs = () => 0) => {
  const taking = new Uploads(maxBodyBytes, nowMs)
  return {
    take: (key: string, part: Block, payload: Buffer, declaredBytes: number | undefined, token = Buffer.alloc(0)) =>
      taking.take(key, { block: part, payload, token, declaredBytes }),
    get size() {
      return taking.size
    },
  }
}
const INCOMPLETE = (4 << 5) | 8
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

test('a repeated block must be equal; another content ends the upload with 4.08', () => {
  const taking = uploads()
  taking.take('a', block(0, true), sixteen(1), undefined)
  taking.take('a', block(1, true), sixteen(2), undefined)
  expect(taking.take('a', block(1, true), sixteen(2), undefined)).toBeUndefined()
  expect(taking.take('a', block(2, false), sixteen(4), undefined)).toEqual(
    Buffer.concat([sixteen(1), sixteen(2), sixteen(4)]),
  )
  taking.take('a', block(0, true), sixteen(1), undefined)
  taking.take('a', block(1, true), sixteen(2), undefined)
  expect(codeOf(() => taking.take('a', block(1, true), sixteen(3), undefined))).toBe(INCOMPLETE)
  expect(codeOf(() => taking.take('a', block(2, false), sixteen(4), undefined))).toBe(INCOMPLETE)
  expect(taking.size).toBe(0)
})

test('a block that does not follow is refused and changes nothing; a first block always starts a body', () => {
  const taking = uploads()
  taking.take('a', block(0, true), sixteen(1), undefined)
  taking.take('a', block(1, true), sixteen(2), undefined)
  expect(codeOf(() => taking.take('a', block(3, true), sixteen(9), undefined))).toBe(INCOMPLETE)
  expect(codeOf(() => taking.take('a', block(7, false), sixteen(9), undefined))).toBe(INCOMPLETE)
  expect(taking.take('a', block(2, true), sixteen(3), undefined)).toBeUndefined()
  taking.take('a', block(0, true), sixteen(5), undefined)
  expect(taking.take('a', block(1, false), sixteen(6), undefined)).toEqual(Buffer.concat([sixteen(5), sixteen(6)]))
})

test('a next block that may belong to either of two uploads ends both with 4.08, unless their tokens differ', () => {
  const taking = uploads()
  taking.take('a', block(0, true), sixteen(1), undefined)
  taking.take('a', block(0, true), sixteen(5), undefined)
  expect(codeOf(() => taking.take('a', block(1, false), sixteen(2), undefined))).toBe(INCOMPLETE)
  expect(codeOf(() => taking.take('a', block(1, false), sixteen(6), undefined))).toBe(INCOMPLETE)

  const [one, other] = [Buffer.from('1'), Buffer.from('2')]
  taking.take('b', block(0, true), sixteen(1), undefined, one)
  taking.take('b', block(0, true), sixteen(5), undefined, other)
  expect(codeOf(() => taking.take('b', block(1, false), sixteen(2), undefined, one))).toBe(INCOMPLETE)
  expect(taking.take('b', block(1, false), sixteen(6), undefined, other)).toEqual(
    Buffer.concat([sixteen(5), sixteen(6)]),
  )
})

test('the same body can be sent again from the first block, and another one when the sender of the first has given up', () => {
  let now = 0
  const taking = uploads(1024, () => now)
  for (let attempt = 0; attempt < 3; attempt++) {
    taking.take('a', block(0, true), sixteen(1), undefined)
    taking.take('a', block(1, true), sixteen(2), undefined)
  }
  expect(taking.take('a', block(2, false), sixteen(3), undefined)).toHaveLength(48)

  taking.take('b', block(0, true), sixteen(1), undefined)
  taking.take('b', block(0, true), sixteen(5), undefined)
  now += 45_000
  expect(taking.take('b', block(1, false), sixteen(6), undefined)).toHaveLength(32)
})

test('no order of the blocks of several clients behind one key makes a body of two uploads', () => {
  // The content of a block: few values, so that bodies share blocks and beginnings.
  const bodies = fc.array(fc.array(fc.integer({ min: 1, max: 2 }), { minLength: 2, maxLength: 4 }), {
    minLength: 2,
    maxLength: 4,
  })
  const order = fc.array(fc.nat({ max: 3 }), { maxLength: 60 })
  const tokens = fc.constantFrom('own', 'shared', 'new')
  fc.assert(
    fc.property(bodies, order, tokens, (contents, turns, manner) => {
      const taking = uploads()
      const next = contents.map(() => 0)
      let sent = 0
      for (const turn of turns) {
        const client = turn % contents.length
        const parts = contents[client] as number[]
        const at = next[client] as number
        const hasMore = at < parts.length - 1
        const token = Buffer.from(manner === 'own' ? `${client}` : manner === 'new' ? `${sent++}` : '')
        let body: Buffer | undefined
        try {
          body = taking.take('a', block(at, hasMore), sixteen(parts[at] as number), undefined, token)
          next[client] = hasMore ? at + 1 : 0
        } catch (error) {
          expect(error).toMatchObject({ code: INCOMPLETE })
          next[client] = 0
        }
        if (body !== undefined) expect(body).toEqual(Buffer.concat(parts.map(sixteen)))
      }
    }),
    {
      numRuns: 3000,
      // Two senders of equal blocks go on together; one completes the body, and the other is still there when a third begins equally.
      examples: [
        [
          [
            [2, 1, 1],
            [2, 1, 1],
            [2, 2, 1, 1],
          ],
          [1, 2, 0, 1, 0, 0, 0, 2, 1],
          'own',
        ],
      ],
    },
  )
})

test('later blocks may be smaller', () => {
  const taking = uploads()
  taking.take('a', block(0, true, 1), Buffer.alloc(32, 1), undefined)
  expect(taking.take('a', block(2, false, 0), sixteen(2), undefined)).toHaveLength(48)
})

test('a block without the earlier blocks is refused with 4.08', () => {
  const taking = uploads()
  expect(codeOf(() => taking.take('a', block(1, false), sixteen(1), undefined))).toBe(INCOMPLETE)
  taking.take('a', block(0, true), sixteen(1), undefined)
  expect(codeOf(() => taking.take('a', block(2, false), sixteen(1), undefined))).toBe(INCOMPLETE)
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
  expect(codeOf(() => taking.take('peer 0', block(1, false), sixteen(1), undefined))).toBe(INCOMPLETE)
  expect(taking.take('peer 10000', block(1, false), sixteen(1), undefined)).toHaveLength(32)
})
