/**
 * Serializers of responses: fields that a schema does not declare are omitted, and the size of pages is limited. Each is compiled
 * at its first use, because compiling all of them would take a fifth of a start, and most error statuses are never sent.
 */
import fastJson from 'fast-json-stringify'
import type { Schema } from 'fast-json-stringify'
import { pageArrays, pageStringify } from './bounded-page.ts'

/** Fastify's serializer compiler. */
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
