/** Arrays of JSON as a parameter of a statement. */

/**
 * What PostgreSQL reads as an array (`json[]`, `jsonb[]`) of these texts, which must be those of `JSON.stringify`: they have no
 * control characters, so that the quoting of JSON is that of arrays. The driver's own quoting takes a second for each five
 * megabytes of quotes, in which the process does nothing else.
 */
export function jsonArray(texts: readonly string[]): string {
  return `{${texts.map((text) => JSON.stringify(text)).join(',')}}`
}
