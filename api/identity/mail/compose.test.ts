// RFC 5322, RFC 2047
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { composeMail } from './compose.ts'

const composing = {
  from: { name: 'Skein', address: 'no-reply@example.com' },
  messageId: '1@example.com',
  now: new Date(Date.UTC(2026, 10, 5, 4, 3, 2)),
}
const compose = (mail: { to?: string; subject?: string; text?: string }, from = composing.from) =>
  composeMail({ to: 'jane@example.com', subject: 'Hello', text: 'Text', ...mail }, { ...composing, from }).toString()

const NAMES = [
  'From',
  'To',
  'Subject',
  'Date',
  'Message-ID',
  'Auto-Submitted',
  'MIME-Version',
  'Content-Type',
  'Content-Transfer-Encoding',
]

/** Parses the headers, with folded lines unfolded, and the body. */
function read(message: string): { names: string[]; headers: Record<string, string>; body: string } {
  const end = message.indexOf('\r\n\r\n')
  const lines = message.slice(0, end).replaceAll('\r\n ', ' ').split('\r\n')
  const pairs = lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)] as const)
  return { names: pairs.map(([name]) => name), headers: Object.fromEntries(pairs), body: message.slice(end + 4) }
}

function decodeWords(text: string): string {
  return text.replaceAll(/=\?UTF-8\?B\?([^?]*)\?= ?/g, (_, word: string) => Buffer.from(word, 'base64').toString())
}

test('plain text is unchanged, even with a long link', () => {
  const link = `https://example.com/reset?token=${'A'.repeat(200)}`
  const { headers, body } = read(compose({ text: `Hello\n\n${link}\n` }))
  expect(body).toBe(`Hello\r\n\r\n${link}\r\n\r\n`)
  expect(headers).toMatchObject({
    From: '"Skein" <no-reply@example.com>',
    To: 'jane@example.com',
    Subject: 'Hello',
    Date: 'Thu, 05 Nov 2026 04:03:02 +0000',
    'Message-ID': '<1@example.com>',
    'Content-Transfer-Encoding': '7bit',
  })
})

test('other text is base64 with lines of valid length, and decodes to the same text', () => {
  const text = 'Grüße, '.repeat(40)
  const { headers, body } = read(compose({ text }))
  expect(headers['Content-Transfer-Encoding']).toBe('base64')
  expect(body.split('\r\n').every((line) => line.length <= 76)).toBe(true)
  expect(Buffer.from(body, 'base64').toString()).toBe(text)
})

test('text with a line above 998 characters is base64', () => {
  expect(read(compose({ text: 'x'.repeat(999) })).headers['Content-Transfer-Encoding']).toBe('base64')
})

test('a subject with any characters decodes to the same text', () => {
  const subject = `Überschrift ${'ß'.repeat(100)} 🙂`
  const message = compose({ subject })
  expect(decodeWords(read(message).headers['Subject'] ?? '')).toBe(subject)
  for (const line of message.split('\r\n')) expect(line.length).toBeLessThanOrEqual(84)
})

test('a subject that looks like an encoded word is unchanged after decoding', () => {
  const subject = '=?UTF-8?B?SGFja2Vk?='
  expect(decodeWords(read(compose({ subject })).headers['Subject'] ?? '')).toBe(subject)
})

test('no text can inject a header', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom('a\r\nBcc: x@example.com', 'a\nb', '\r\n\r\n', '"\\'),
  )
  fc.assert(
    fc.property(text, text, text, (to, subject, name) => {
      const { names } = read(compose({ to, subject }, { name, address: 'no-reply@example.com' }))
      return names.join() === NAMES.join()
    }),
  )
})
