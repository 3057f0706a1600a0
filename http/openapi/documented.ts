/** JSON Schema keywords that are shown in the document and not validated. */

/** The extension keyword that contains them. */
export const DOCUMENTED = 'x-documented'
/** Among its keywords: the name of the schema. */
export const NAME = 'x-name'

/**
 * Options of a schema that document the preferred form, where other forms are accepted too (older spellings, any case) or lead to
 * 404 instead of 400. With a name, the document describes the schema once: as `$id` does, but serializers and validators do not see it,
 * so that a schema may contain it several times.
 */
export function documented(
  keywords: Readonly<Record<string, unknown>>,
  name?: string,
): {
  [DOCUMENTED]: Readonly<Record<string, unknown>>
} {
  return { [DOCUMENTED]: name === undefined ? keywords : { ...keywords, [NAME]: name } }
}
