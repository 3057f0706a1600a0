import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  CODES,
  TYPES,
  parseCode,
  codeOfKind,
  emptyMessage,
  formatCode,
  encodeMessage,
  parseMessage,
} from './message.ts'
import type { CoapMessage } from './message.ts'

const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array))

/** Options are compared in the order of their numbers. */
const messages: fc.Arbitrary<CoapMessage> = fc.record({
  type: fc.constantFrom(...Object.values(TYPES)),
  code: fc.constantFrom(1, 2, 3, 4, parseCode('2.04'), parseCode('2.05'), parseCode('4.04'), parseCode('5.03')),
  messageId: fc.integer({ min: 0, max: 0xffff }),
  token: bytes(8),
  options: fc
    .array(fc.record({ number: fc.integer({ min: 0, max: 0xffff }), value: bytes(400) }), { maxLength: 6 })
    .map((options) => options.toSorted((left, right) => left.number - right.number)),
  payload: bytes(2000),
})

describe('messages of CoAP', () => {
  test('a written message reads back unchanged (RFC 7252 section 3)', () => {
    fc.assert(
      fc.property(messages, (message) => {
        expect(parseMessage(encodeMessage(message))).toEqual(message)
      }),
    )
  })

  test('no bytes make the reader throw, and the parts of a message lie within its datagram', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (array) => {
        const message = parseMessage(Buffer.from(array))
        if (message === undefined || 'malformed' in message) return
        const inside = message.options.reduce((sum, { value }) => sum + value.length, message.payload.length)
        expect(inside + message.token.length + 4).toBeLessThanOrEqual(array.length)
      }),
      { numRuns: 5000 },
    )
  })

  test.each([
    ['fewer than four bytes', [0x40, 1, 0], undefined],
    ['another version', [0x80, 1, 0, 1], undefined],
    ['a token of more than eight bytes', [0x49, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 'malformed'],
    ['a token that is cut off', [0x44, 1, 0, 1, 0], 'malformed'],
    ['a payload marker without a payload', [0x40, 1, 0, 1, 0xff], 'malformed'],
    ['an option that is cut off', [0x40, 1, 0, 1, 0xb5, 0x61], 'malformed'],
    ['an option with the reserved delta', [0x40, 1, 0, 1, 0xf1, 0x61], 'malformed'],
    ['an option with the reserved length', [0x40, 1, 0, 1, 0xbf], 'malformed'],
    ['an option number that is cut off', [0x40, 1, 0, 1, 0xd0], 'malformed'],
    ['an option number above 65,535', [0x40, 1, 0, 1, 0xe0, 0xff, 0xff], 'malformed'],
    ['a reserved class', [0x40, 0x21, 0, 1], 'malformed'],
    ['an empty message with something behind it', [0x40, 0, 0, 1, 0xff, 1], 'malformed'],
  ])('%s is a format error', (_name, datagram, expected) => {
    const message = parseMessage(Buffer.from(datagram))
    expect(message === undefined ? undefined : 'malformed' in message ? 'malformed' : message).toBe(expected)
  })

  test('a message has at most 256 options', () => {
    const options = (count: number) => Buffer.concat([Buffer.from([0x40, 1, 0, 1]), Buffer.alloc(count)])
    expect(parseMessage(options(256))).toMatchObject({ options: { length: 256 } })
    expect(parseMessage(options(257))).toEqual({ malformed: true, type: 0, messageId: 1 })
  })

  test('codes are written with their class and two digits', () => {
    expect(formatCode(CODES.changed)).toBe('2.04')
    expect(formatCode(CODES.continue)).toBe('2.31')
    expect(formatCode(codeOfKind('unprocessable'))).toBe('4.22')
    expect([...emptyMessage(TYPES.reset, 0x1234)]).toEqual([0x70, 0, 0x12, 0x34])
  })
})
