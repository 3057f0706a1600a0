/**
 * JSON whose numbers keep the digits they were sent with: 9007199254740993 and 1.10 must not come back as
 * 9007199254740992 and 1.1 only because a JSON message passed through us.
 */

/** What TypeScript's library does not know yet (ECMAScript proposal JSON.parse source text access). */
type ExactJson = {
  parse(text: string, reviver: (key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): unknown
}
const exactJson = JSON as unknown as ExactJson

/**
 * Numbers of up to 15 digits come back from a double as they were written, unless they end in zeros behind the point,
 * have an exponent, are so small that they would get one, or are a negative zero.
 */
const NEEDS_CARE = /[\d.]{16}|\.\d*0(?!\d)|[\d.][eE]|\b0\.0{6}|-0/

/** Values as JSON.parse gives them; numbers that a double would alter are raw JSON, which JSON.stringify writes as it was. */
export function parseExactJson(text: string): unknown {
  if (!NEEDS_CARE.test(text)) return JSON.parse(text)
  return exactJson.parse(text, (_key, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source ? exactJson.rawJSON(source) : value,
  )
}
