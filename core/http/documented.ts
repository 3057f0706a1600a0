/** JSON Schema keywords that are shown in the document and not validated. */

/** The extension keyword that contains them. */
export const DOCUMENTED = 'x-documented'

/**
 * Options of a schema that document the preferred form, where other forms are accepted too (older spellings, any case) or lead to
 * 404 instead of 400.
 */
export function documented(keywords: Readonly<Record<string, unknown>>): {
  [DOCUMENTED]: Readonly<Record<string, unknown>>
} {
  return { [DOCUMENTED]: keywords }
}
