/**
 * Compilers of checks and serialisers, loaded when the first one is needed: they are hundreds of files, and a start needs
 * none of them. Synchronously, because validation is.
 */
import { createRequire } from 'node:module'
import type FastJsonStringify from 'fast-json-stringify'
import type { TSchema } from 'typebox'
import type * as TypeBoxCompile from 'typebox/compile'
import type * as TypeBoxValue from 'typebox/value'

const load = createRequire(import.meta.url)

// Node remembers what was loaded.
export const checks = () => load('typebox/compile') as typeof TypeBoxCompile
export const explanations = () => load('typebox/value') as typeof TypeBoxValue
export const serializers = () => load('fast-json-stringify') as typeof FastJsonStringify

/** A check of a schema, compiled when it is first asked for. */
export function lateCheck(schema: TSchema): () => TypeBoxCompile.Validator {
  let compiled: TypeBoxCompile.Validator | undefined
  return () => (compiled ??= checks().Compile(schema))
}

/** Called when the start is over, so that the first request need not wait for them. */
export function loadLate(): void {
  checks()
  explanations()
  serializers()
}
