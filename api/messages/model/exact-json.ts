/**
 * JSON whose numbers keep their digits: 9007199254740993 and 1.10 must not become 9007199254740992 and 1.1 in a forwarded message.
 */

/** Missing in TypeScript's library (ECMAScript proposal JSON.parse source text access). */
type ExactJson = {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): unknown
}
const exactJson = JSON as unknown as ExactJson

/**
 * Numbers of up to 15 digits are unchanged by a double, unless they have trailing zeros after the decimal point, an exponent, are so
 * small that they would be formatted with one, or are a negative zero.
 */
const NEEDS_CARE = /[\d.]{16}|\.\d*0(?!\d)|[\d.][eE]|\b0\.0{6}|-0/

/** Like JSON.parse; numbers that a double would change are raw JSON, which JSON.stringify writes unchanged. */
export function parseExactJson(text: string): unknown {
  if (!NEEDS_CARE.test(text)) return JSON.parse(text)
  return exactJson.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source ? exactJson.rawJSON(source) : value,
  )
}
