/** Text of devices and servers, made safe for a terminal, and its width there. */

/**
 * C0 and C1 controls, the ends of lines of Unicode, and the marks that turn the direction of text, but for tab and end of line
 * in the second.
 */
// eslint-disable-next-line no-control-regex -- controls are what it is about
const UNSAFE = /[\u0000-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g
// eslint-disable-next-line no-control-regex -- as above
const UNSAFE_BUT_LINES = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g
/** JSON escapes C0 by itself. */
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

/** As a terminal may be sent it: several lines, with an escape in the place of what would act on it. */
export function forTerminal(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(UNSAFE_BUT_LINES, escaped)
}

const escaped = (char: string): string => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`

/** JSON escapes C0 by itself; the rest is written as escapes too, so that nothing is lost. */
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

/** At most `width` columns wide, with an ellipsis where something was cut. */
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
