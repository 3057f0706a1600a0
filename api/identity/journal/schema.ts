/** Wire shapes of the journal (contract section 10). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf } from '#http/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { Timestamp } from '../wire/index.ts'
import { newerWords } from '#older/index.ts'
import type { JournalRecord } from './repository.ts'

/** Unix time in seconds with optional fractions, or in nanoseconds. */
const Moment = Type.String({
  pattern: '^\\d{1,19}(\\.\\d{1,9})?$',
  description: 'Unix time in seconds; values above 1e14 are nanoseconds',
})

export const JournalQuery = Type.Object({
  ...pageQuery(),
  operation: Type.Optional(
    Type.String({ maxLength: 128, description: 'Name of an operation, for example `client.create`' }),
  ),
  sessions: Type.Optional(
    Type.Boolean({
      description: 'false: without the records of MQTT sessions, which devices begin and end very often',
    }),
  ),
  from: Type.Optional(Moment),
  to: Type.Optional(Moment),
  with_attributes: Type.Optional(Type.Boolean({ description: 'Adds the changed fields, the user and the request id' })),
  with_metadata: Type.Optional(Type.Boolean({ description: 'Adds the metadata of the change' })),
  dir: Type.Optional(Direction),
})
export type JournalQuery = Static<typeof JournalQuery>

/** A query with the operations that its operation stands for. */
export type JournalFilter = Omit<JournalQuery, 'operation'> & { operations?: readonly string[] }

/** Without an operation, or with an empty one, the query is for all of them. */
export function filterOf({ operation = '', ...query }: JournalQuery): JournalFilter {
  return operation === '' ? query : { ...query, operations: newerWords('api/identity/journal/schema.ts', operation) }
}

export const JournalItem = Type.Object(
  {
    id: Type.String({ description: 'Position of the record; the same as the id of its event' }),
    operation: Type.String({ description: 'Operation: `<entity>.<change>`' }),
    occurred_at: Timestamp,
    domain: Type.Optional(Type.String({ description: 'Id of the domain of the change' })),
    attributes: Type.Optional(
      recordOf(Type.Unknown(), {
        description:
          'Fields of the entity; `before` and `after` of a change; `user_id`, `token_type`, `super_admin` and `request_id` of the caller; the `address` of the caller for administrators of the domain, and for own actions in the journal of a user',
      }),
    ),
    metadata: Type.Optional(recordOf(Type.Unknown())),
  },
  {
    $id: 'JournalItem',
    description: 'Record of the journal',
    examples: [
      {
        id: '4711-42',
        operation: 'client.update',
        occurred_at: '2026-11-21T04:19:36.123456Z',
        domain: '0c2ce4ef-6ac4-4a8e-95ad-5bb5b1fbb3ae',
        attributes: {
          id: 'b7bfc4b6-c18d-47c5-b343-98235c5acc19',
          before: { name: 'pump' },
          after: { name: 'north pump' },
          user_id: '8dc4a2f0-6c3c-4d1d-9a6b-0e2a7a2d9d3f',
          token_type: 'access token',
          super_admin: false,
          request_id: 'req-1',
        },
      },
    ],
  },
)
export type JournalItem = Static<typeof JournalItem>

export const JournalPage = Type.Object({ ...pageFields, journals: Type.Array(JournalItem) })

/** Maximum number of ids of a bulk change in a listing. `ids_total` is their number. */
const MAX_SHOWN_IDS = 100

export type Shown = { withAttributes: boolean; withMetadata: boolean; withAddress: boolean }

export function presentRecord(
  record: JournalRecord,
  { withAttributes, withMetadata, withAddress }: Shown,
): JournalItem {
  const { metadata, ...attributes } = record.attributes
  return {
    id: record.id,
    operation: record.operation,
    occurred_at: formatTime(record.occurredAt),
    ...(record.domainId === null ? {} : { domain: record.domainId }),
    ...(withAttributes
      ? {
          attributes: {
            ...withFewIds(attributes),
            ...(record.actorId === null
              ? {}
              : {
                  user_id: record.actorId,
                  token_type: record.tokenType ?? 'access token',
                  super_admin: record.superAdmin,
                }),
            ...(record.requestId === null ? {} : { request_id: record.requestId }),
            ...(withAddress && record.address !== null ? { address: record.address } : {}),
          },
        }
      : {}),
    ...(withMetadata && isObject(metadata) ? { metadata } : {}),
  }
}

function withFewIds(attributes: Record<string, unknown>): Record<string, unknown> {
  const { ids } = attributes
  if (!Array.isArray(ids) || ids.length <= MAX_SHOWN_IDS) return attributes
  return { ...attributes, ids: ids.slice(0, MAX_SHOWN_IDS), ids_total: ids.length }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
