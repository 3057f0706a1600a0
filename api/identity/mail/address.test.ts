import { expect, test } from 'vitest'
import { isMailAddress, parseSender } from './address.ts'

test.each([
  'a@b',
  'jane.doe+tag@example.com',
  "o'neil@example.co.uk",
  'josé@example.com',
  `${'x'.repeat(64)}@example.com`,
])('%s is a valid address', (text) => {
  expect(isMailAddress(text)).toBe(true)
})

test.each([
  '',
  'jane',
  '@example.com',
  'jane@',
  'jane@@example.com',
  'jane@example..com',
  'ja ne@example.com',
  'jane@example.com ',
  'jane@example.com\n',
  'jane@example.com\r\nBcc: joe@example.com',
  'jane@example.com,joe@example.com',
  'Jane <jane@example.com>',
  '<jane@example.com>',
  'jane@-example.com',
  'jane@example.com-',
  'ja\u0007ne@example.com',
  'ja\u2028ne@example.com',
  `${'x'.repeat(65)}@example.com`,
  `jane@${'x'.repeat(250)}.com`,
])('%j is not a valid address', (text) => {
  expect(isMailAddress(text)).toBe(false)
})

test('a sender is an address with or without a name', () => {
  expect(parseSender('no-reply@example.com')).toEqual({ name: '', address: 'no-reply@example.com' })
  expect(parseSender(' Skein at Work <no-reply@example.com> ')).toEqual({
    name: 'Skein at Work',
    address: 'no-reply@example.com',
  })
  for (const wrong of ['', 'Skein', 'Skein <>', 'Skein <a@b', 'A\r\nB <a@b>', 'a@b, c@d'])
    expect(parseSender(wrong)).toBeUndefined()
})
