/** What the document says of a text beyond what is checked. */

/** Holds keywords of JSON Schema that stand in the document alone. */
export const SHOWN = 'x-shown'

/**
 * Options of a schema: the form that callers should send, where other forms are taken too (older spellings, any case), or are
 * answered as unknown (404) instead of as wrong (400).
 */
export function shown(keywords: Readonly<Record<string, unknown>>): { [SHOWN]: Readonly<Record<string, unknown>> } {
  return { [SHOWN]: keywords }
}
