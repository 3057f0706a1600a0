/** Objects with arbitrary keys. */
import { Type } from 'typebox'
import type { Static, TSchema, TUnsafe } from 'typebox'

type RecordOptions = {
  description?: string
  maxProperties?: number
  /** Rules for the names. */
  propertyNames?: TSchema
}

/**
 * An object whose values all match this schema. `Type.Record` validates values by a pattern of their names, which a name with a
 * line break does not match: its value would be stored without validation and omitted from responses.
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
