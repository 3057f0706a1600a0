/**
 * JSON of the API, read and written without rounding: an integer that a number would change becomes a bigint, and a bigint is written with its
 * digits. Opening and saving an entity therefore never changes its metadata. Works in browsers without JSON.rawJSON.
 */

const NUMBER = /-?\d[\d.eE+-]*/g
/** Most texts contain no such integer, and are parsed at full speed. */
const MAY_CONTAIN = /(?:^|[[:,\s])-?\d{16}/
const INTEGER = /^-?\d+$/
/** Begins the strings that stand for integers for a moment. Random, so that no string of a user is taken for one. */
const MARK = `integer-${[...crypto.getRandomValues(new Uint32Array(4))].join('-')}:`

const MAY_BE_INFINITE = /\d[eE]\+?\d{3}|\d{309}/

/** Parses a text as JSON.parse does. Throws SyntaxError, also for a number beyond all numbers: it would be written as null. */
export function parseJson(text: string): unknown {
  const rounded: unknown = JSON.parse(text, MAY_BE_INFINITE.test(text) ? requireFinite : undefined)
  if (!MAY_CONTAIN.test(text)) return rounded
  const marked = outsideOfStrings(text, (part) =>
    part.replaceAll(NUMBER, (number) => (isRounded(number) ? `"${MARK}${number}"` : number)),
  )
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === 'string' && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  )
}

function requireFinite(_key: string, value: unknown): unknown {
  if (value === Infinity || value === -Infinity) throw new SyntaxError('a number is too large')
  return value
}

/** Changes the parts of a JSON text between its strings. A quote in a string stands behind an odd number of backslashes. */
function outsideOfStrings(text: string, change: (part: string) => string): string {
  const parts: string[] = []
  for (let at = 0; at < text.length;) {
    const begin = text.indexOf('"', at)
    parts.push(change(begin === -1 ? text.slice(at) : text.slice(at, begin)))
    if (begin === -1) break
    let end = begin + 1
    while (text[end] !== '"') end += text[end] === '\\' ? 2 : 1
    parts.push(text.slice(begin, end + 1))
    at = end + 1
  }
  return parts.join('')
}

/** `String(Number('-0'))` is `0`, but the number is a negative zero, which JSON has no other form of. */
const isRounded = (token: string) => INTEGER.test(token) && token !== '-0' && String(Number(token)) !== token

/** Formats a value as JSON.stringify does, which throws for a bigint. */
export function formatJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(
    value,
    (_key, field: unknown) => (typeof field === 'bigint' ? `${MARK}${field}` : field),
    indent,
  ) as string | undefined
  // JSON has no form of undefined.
  if (text === undefined) return JSON.stringify(value)
  const [first = '', ...marked] = text.split(`"${MARK}`)
  // Each begins with the digits, and the quote behind them.
  return first + marked.map((part) => part.replace('"', '')).join('')
}

/** The body of an answer. */
export const jsonOf = async (response: Response): Promise<unknown> => parseJson(await response.text())
