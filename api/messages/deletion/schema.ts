/** The query of a deletion (contract decision 54). */
import { Type } from 'typebox'
import type { Static } from 'typebox'

export const DeletionQuery = Type.Object({
  from: Type.Optional(Type.Number({ description: 'Seconds since 1970, inclusive; above 1e14: nanoseconds' })),
  to: Type.Optional(Type.Number({ description: 'Seconds since 1970, exclusive; above 1e14: nanoseconds' })),
  publisher: Type.Optional(Type.String({ description: 'Id of the client whose messages are deleted' })),
})
export type DeletionQuery = Static<typeof DeletionQuery>
