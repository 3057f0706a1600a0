/** TypeBox's compiled validators. Each is compiled at its first use, because compiling all of them would delay the start. */
import { Compile } from 'typebox/compile'
import type { Validator } from 'typebox/compile'
import type { TSchema } from 'typebox'

const compiled = new WeakMap<TSchema, Validator>()

/** The validator of a schema. */
export function checkOf(schema: TSchema): Validator {
  let check = compiled.get(schema)
  if (check === undefined) {
    check = Compile(schema)
    compiled.set(schema, check)
  }
  return check
}
