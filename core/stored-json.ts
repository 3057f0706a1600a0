/**
 * The size of JSON that PostgreSQL stores as jsonb. It writes numbers without an exponent: `1e308` has 5 bytes when it comes, and 309 digits in
 * each answer of the database. A limit that counts what came would accept documents that are read back at fifty times their size.
 */

/** Most texts contain no such number, and are not walked. A text in quotes may look like one, which costs the walk and nothing else. */
const MAY_CONTAIN_EXPONENT = /\de[+-]\d/
const EXPONENT = /e([+-]\d+)$/

/** At least the bytes of the digits and letters as they are stored, and no less than those of JSON.stringify. Undefined: 0. */
export function storedBytes(value: unknown): number {
  // Its type does not say that undefined has no text.
  const text = JSON.stringify(value) as string | undefined
  if (text === undefined) return 0
  const bytes = Buffer.byteLength(text)
  return MAY_CONTAIN_EXPONENT.test(text) ? bytes + addedDigits(value) : bytes
}

/** Integers that keep their digits are objects with a text, so they add none. */
function addedDigits(value: unknown): number {
  if (typeof value === 'number') return Math.abs(Number(EXPONENT.exec(String(value))?.[1] ?? 0))
  if (typeof value !== 'object' || value === null) return 0
  let digits = 0
  for (const inner of Object.values(value)) digits += addedDigits(inner)
  return digits
}
