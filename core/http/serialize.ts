/**
 * Serialisers of responses: what a schema does not declare cannot leave the building. Each is compiled at the first answer
 * that needs it, because compiling all of them would be a fifth of a start, and most error statuses are never sent so.
 */
import type { Schema } from 'fast-json-stringify'
import { serializers } from './late.ts'

/** Fastify's serialiser compiler. */
export function compileSerializer({ schema }: { schema?: unknown }): (value: unknown) => string {
  let stringify: ((value: unknown) => string) | undefined
  return (value) => {
    stringify ??= serializers()(schema as Schema)
    return stringify(value)
  }
}
