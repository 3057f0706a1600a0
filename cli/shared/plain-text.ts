/** Makes text of devices and servers safe for a terminal, and measures its width there. */

/**
 * C0 and C1 controls, Unicode line separators and bidirectional marks; the second expression allows tab and end of line.
 */
// eslint-disable-next-line no-control-regex -- controls are what it is about
const UNSAFE = /[\u0000-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g
// eslint-disable-next-line no-control-regex -- as above
const UNSAFE_BUT_LINES = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g
/** JSON.stringify escapes C0 itself. */
const UNSAFE_IN_JSON = /[\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g

const WIDE =
  /\p{Script=Han}|\p{Script=Hangul}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Emoji_Presentation}|[\uFF01-\uFF60]/u
const WITHOUT_WIDTH = /\p{Mn}|\p{Me}|\p{Cf}/u

/** One line: a name that a device chose can neither move the cursor nor begin a line. */
export function oneLine(text: string): string {
  return text.replace(UNSAFE, '�')
}

/** Several lines, tabs kept. */
export function manyLines(text: string): string {
  return text.replace(UNSAFE_BUT_LINES, '�')
}

/** Escapes control characters for a terminal; keeps several lines. */
export function forTerminal(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(UNSAFE_BUT_LINES, escaped)
}

const escaped = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`

/** JSON.stringify escapes C0; the remaining controls are escaped too, so that nothing is lost. */
export function safeJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, undefined, indent) ?? 'null'
  return text.replaceAll(UNSAFE_IN_JSON, escaped)
}

export function widthOf(text: string): number {
  let width = 0
  for (const char of text) width += WITHOUT_WIDTH.test(char) ? 0 : WIDE.test(char) ? 2 : 1
  return width
}

export function padTo(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)))
}

/** Cuts a text to at most `width` columns, with an ellipsis where text was cut. */
export function cutTo(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  let cut = ''
  let used = 0
  for (const char of text) {
    const next = widthOf(char)
    if (used + next > width - 1) break
    cut += char
    used += next
  }
  return `${cut}…`
}
