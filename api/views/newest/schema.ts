/** API schemas of the newest values of clients. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '#api/identity/index.ts'

/** Clients of one request: a page of a list. */
export const MAX_CLIENTS = 100
/** An id has 36 characters, and a comma follows it. */
const MAX_ID_CHARS = 37
/** A cell of a list shows no more. */
export const MAX_TEXT_CHARS = 256

export const NewestQuery = Type.Object({
  client_id: Type.String({
    minLength: 1,
    maxLength: MAX_CLIENTS * MAX_ID_CHARS,
    description: `Comma-separated ids of clients, at most ${MAX_CLIENTS}`,
  }),
})
export type NewestQuery = Static<typeof NewestQuery>

export const NewestValue = Type.Object({
  client_id: Id,
  channel_id: Id,
  subtopic: Type.Optional(Type.String()),
  name: Type.String(),
  unit: Type.Optional(Type.String()),
  time: Type.Number({ description: 'Seconds since 1970' }),
  value: Type.Optional(Type.Number()),
  string_value: Type.Optional(Type.String({ description: `Its first ${MAX_TEXT_CHARS} characters` })),
  bool_value: Type.Optional(Type.Boolean()),
  data_bytes: Type.Optional(Type.Integer({ description: 'Size of a data value, which is not part of the answer' })),
  sum: Type.Optional(Type.Number()),
})
export type NewestValue = Static<typeof NewestValue>

export const NewestValues = Type.Object({ values: Type.Array(NewestValue) }, { $id: 'LatestValues' })
export type NewestValues = Static<typeof NewestValues>
