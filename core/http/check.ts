/** TypeBox's compiled checks. Each is compiled when it is first used: compiling all of them would be a large part of a start. */
import { Compile } from 'typebox/compile'
import type { Validator } from 'typebox/compile'
import type { TSchema } from 'typebox'

const compiled = new WeakMap<TSchema, Validator>()

/** The check of a schema. */
export function checkOf(schema: TSchema): Validator {
  let check = compiled.get(schema)
  if (check === undefined) {
    check = Compile(schema)
    compiled.set(schema, check)
  }
  return check
}
