// contract section 5, "username"
import { expect, test } from 'vitest'
import { requirePicture, requireUsername } from './identity.ts'

test.each(['a', '0', 'Ada', 'ada-lovelace_1', 'a-_b', `a${'b'.repeat(31)}`, 'end-', 'end_'])(
  '%s is a valid username',
  (name) => {
    expect(requireUsername(name)).toBe(name)
  },
)

test.each(['', '-a', '_a', 'a--b', 'a__b', 'a b', 'ä', 'a.b', 'a@b', `a${'b'.repeat(32)}`, 'a\n'])(
  '%j is not a valid username',
  (name) => {
    expect(() => requireUsername(name)).toThrow(expect.objectContaining({ kind: 'malformed' }) as Error)
  },
)

test('a picture is an http or https URL, or empty', () => {
  expect(requirePicture('https://example.com/a.png')).toBe('https://example.com/a.png')
  expect(requirePicture('')).toBeNull()
  for (const wrong of ['a.png', 'data:image/png;base64,AA', 'javascript:alert(1)', 'ftp://example.com/a'])
    expect(() => requirePicture(wrong)).toThrow(expect.objectContaining({ kind: 'malformed' }) as Error)
})
