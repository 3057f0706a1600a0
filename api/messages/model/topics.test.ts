import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { matchesSubtopic, parseMessagePath, parseSubtopic, parseSubtopicFilter } from './topics.ts'

describe('message paths', () => {
  test.each([
    ['m/d/c/x', { domain: 'd', channel: 'x', rest: '' }],
    ['/m/d/c/x/a/b', { domain: 'd', channel: 'x', rest: 'a/b' }],
    ['channels/x/messages', { domain: undefined, channel: 'x', rest: '' }],
    ['/channels/x/messages/a.b', { domain: undefined, channel: 'x', rest: 'a.b' }],
  ])('%s', (path, expected) => expect(parseMessagePath(path)).toEqual(expected))

  test.each(['', 'm/d/c', 'm/d/c/', 'm//c/x', 'channels/x', 'channels/x/messagesx', 'other'])(
    '%j is not a message path',
    (path) => {
      expect(parseMessagePath(path)).toBeUndefined()
    },
  )
})

describe('subtopics', () => {
  test.each([
    ['', ''],
    ['a/b', 'a.b'],
    ['a.b', 'a.b'],
    ['/a//b/', 'a.b'],
    ['...', ''],
    ['Zähler/1', 'Zähler.1'],
  ])('%j is published under %j', (text, expected) => expect(parseSubtopic(text)).toBe(expected))

  test.each(['a/+', 'a/#', 'a/*', '>', 'a b', 'a\tb', 'a\0', '\ud800', 'a'.repeat(1025)])(
    '%j cannot be published',
    (text) => {
      expect(() => parseSubtopic(text)).toThrow(expect.objectContaining({ kind: 'malformed' }))
    },
  )

  test('a published subtopic is canonical: parsing it again changes nothing', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', 'b', '/', '.') }), (text) => {
        const subtopic = parseSubtopic(text)
        expect(parseSubtopic(subtopic)).toBe(subtopic)
      }),
    )
  })
})

describe('subtopic filters', () => {
  test.each([
    ['+/b', '*.b'],
    ['a/#', 'a.>'],
    ['*.>', '*.>'],
    ['', ''],
  ])('%j becomes %j', (text, expected) => expect(parseSubtopicFilter(text)).toBe(expected))

  test.each(['a/#/b', '>.a', 'a+', 'a/b#', 'x*'])('%j is refused', (text) => {
    expect(() => parseSubtopicFilter(text)).toThrow(expect.objectContaining({ kind: 'malformed' }))
  })

  test.each([
    ['', '', true],
    ['', 'a', false],
    ['>', '', true],
    ['>', 'a.b', true],
    ['a.>', 'a', true],
    ['a.>', 'a.b.c', true],
    ['a.>', 'b', false],
    ['*', 'a', true],
    ['*', '', false],
    ['*', 'a.b', false],
    ['a.*.c', 'a.b.c', true],
    ['a.*.c', 'a.b.d', false],
    ['a.b', 'a', false],
  ])('%j on %j: %s', (filter, subtopic, expected) => expect(matchesSubtopic(filter, subtopic)).toBe(expected))
})
