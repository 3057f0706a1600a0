/** Objects with names of the caller's choice. */
import { Type } from 'typebox'
import type { Static, TSchema, TUnsafe } from 'typebox'

type RecordOptions = {
  description?: string
  maxProperties?: number
  /** Rules for the names. */
  propertyNames?: TSchema
}

/**
 * An object with a value of this schema under every name. `Type.Record` gives its values a schema by a pattern of their names,
 * which a name with a line break does not match: such a value would be stored unchecked and left out of answers.
 */
export function recordOf<Value extends TSchema>(
  value: Value,
  { propertyNames, ...options }: RecordOptions = {},
): TUnsafe<Record<string, Static<Value>>> {
  return Type.Unsafe<Record<string, Static<Value>>>({
    type: 'object',
    ...(propertyNames === undefined ? {} : { propertyNames }),
    additionalProperties: value,
    ...options,
  })
}
