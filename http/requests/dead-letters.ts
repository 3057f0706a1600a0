/** The shapes of requests that change dead letters. */
import { Type } from 'typebox'

/** Largest number of ids in one request. */
const MAX_IDS = 1_000

/** The schema of `LetterSelection` of core/changelog/dead-letters.ts. */
export const DeadLetterSelection = Type.Object(
  {
    ids: Type.Optional(Type.Array(Type.String({ format: 'uuid' }), { minItems: 1, maxItems: MAX_IDS })),
    until: Type.Optional(
      Type.String({ format: 'date-time', description: 'All that were given up at this time or earlier' }),
    ),
    all: Type.Optional(Type.Boolean({ description: 'Only `true`' })),
  },
  { $id: 'DeadLetterSelection', description: 'Exactly one of ids, until and all' },
)

export const DeadLettersChanged = Type.Object(
  { count: Type.Integer({ description: 'Dead letters that were changed; those that are gone are left out' }) },
  { $id: 'DeadLettersChanged' },
)
