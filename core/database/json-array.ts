/** Arrays of JSON as parameters of a statement. */

/**
 * The text of a PostgreSQL array (`json[]`, `jsonb[]`) with these texts, which must come from `JSON.stringify`: they contain no
 * control characters, so JSON quoting is valid array quoting. The driver's own quoting blocks the process for a second per five
 * megabytes of quotes.
 */
export function jsonArray(texts: readonly string[]): string {
  return `{${texts.map((text) => JSON.stringify(text)).join(',')}}`
}
