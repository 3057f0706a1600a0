/**
 * Serialisers of responses: what a schema does not declare cannot leave the building, and no page is larger than the bound of pages.
 * Each is compiled at the first answer that needs it, because compiling all of them would be a fifth of a start, and most error
 * statuses are never sent so.
 */
import fastJson from 'fast-json-stringify'
import type { Schema } from 'fast-json-stringify'
import { pageArrays, pageStringify } from './bounded-page.ts'

/** Fastify's serialiser compiler. */
export function compileSerializer({ schema }: { schema?: unknown }): (value: unknown) => string {
  let stringify: ((value: unknown) => string) | undefined
  return (value) => {
    if (stringify === undefined) {
      const compiled = fastJson(schema as Schema)
      const arrays = pageArrays(schema)
      stringify = arrays.length === 0 ? compiled : pageStringify(arrays, compiled)
    }
    return stringify(value)
  }
}
