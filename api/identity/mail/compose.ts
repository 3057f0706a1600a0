/**
 * Composes a mail as text (RFC 5322). Plain ASCII is sent unencoded, so that links are intact in every mail client.
 * Other text is base64. No header value can inject another header: control characters are replaced by spaces.
 */
import type { Sender } from './address.ts'

/** A mail to one recipient. */
export type Mail = { to: string; subject: string; text: string }

/** RFC 5322 section 2.1.1, without the line break. */
const MAX_LINE_CHARS = 998
/** RFC 2045 section 6.8. */
const BASE64_LINE_CHARS = 76
/** Bytes in one encoded word: with its delimiters it is below the 75 characters of RFC 2047 section 2. */
const ENCODED_WORD_BYTES = 45

const isAscii = (text: string) => /^[\x20-\x7e]*$/.test(text)

export type Composing = { from: Sender; messageId: string; now: Date }

export function composeMail(mail: Mail, { from, messageId, now }: Composing): Buffer {
  const body = mail.text.replaceAll(/\r\n?|\n/g, '\r\n')
  const isPlain = body.split('\r\n').every((line) => line.length <= MAX_LINE_CHARS && isAscii(line))
  const lines = [
    `From: ${formatSender(from)}`,
    `To: ${header(mail.to)}`,
    `Subject: ${words(mail.subject)}`,
    `Date: ${now.toUTCString().replace('GMT', '+0000')}`,
    `Message-ID: <${header(messageId)}>`,
    // RFC 3834 section 5: prevents automatic replies.
    'Auto-Submitted: auto-generated',
    'MIME-Version: 1.0',
    `Content-Type: text/plain; charset=${isPlain ? 'us-ascii' : 'utf-8'}`,
    `Content-Transfer-Encoding: ${isPlain ? '7bit' : 'base64'}`,
    '',
    isPlain ? body : base64Lines(body),
  ]
  return Buffer.from(`${lines.join('\r\n')}\r\n`)
}

function formatSender({ name, address }: Sender): string {
  if (name === '') return header(address)
  const phrase = isAscii(name) ? `"${name.replaceAll(/["\\]/g, ' ')}"` : words(name)
  return `${phrase} <${header(address)}>`
}

function header(value: string): string {
  return value.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ').trim()
}

/** Returns the text of a header, as encoded words (RFC 2047) unless it is short ASCII. */
function words(value: string): string {
  const clean = header(value)
  if (isAscii(clean) && clean.length <= BASE64_LINE_CHARS - 'Subject: '.length && !clean.includes('=?')) return clean
  const chunks: string[] = []
  let chunk = ''
  for (const sign of clean) {
    if (Buffer.byteLength(chunk + sign) > ENCODED_WORD_BYTES) {
      chunks.push(chunk)
      chunk = ''
    }
    chunk += sign
  }
  return [...chunks, chunk].map((part) => `=?UTF-8?B?${Buffer.from(part).toString('base64')}?=`).join('\r\n ')
}

function base64Lines(text: string): string {
  return Buffer.from(text)
    .toString('base64')
    .replaceAll(new RegExp(`.{${BASE64_LINE_CHARS}}(?=.)`, 'g'), '$&\r\n')
}
