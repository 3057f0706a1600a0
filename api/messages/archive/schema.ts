/** The archive of a domain on the wire. */
import { Type } from 'typebox'
import type { Static } from 'typebox'

const optionalTime = (description: string) => Type.Optional(Type.String({ format: 'date-time', description }))

export const History = Type.Object(
  {
    is_enabled: Type.Boolean({ description: 'Whether this node copies records to an archive (SKEIN_ARCHIVE_URL)' }),
    table: Type.Optional(
      Type.String({ description: 'Table of the Iceberg catalogue, `history.records`; absent: nothing is archived' }),
    ),
    location: Type.Optional(Type.String({ description: 'URL of the folder of its files' })),
    records: Type.Integer({ description: 'Records in the archive' }),
    files: Type.Integer({ description: 'Parquet files' }),
    bytes: Type.Integer({ description: 'Size of these and of their metadata' }),
    ranges: Type.Integer({ description: 'Ranges of arrival that were copied' }),
    waiting_ranges: Type.Integer({
      description: 'Ranges that are copied next, for the first time or because of deletions',
    }),
    oldest_arrival: optionalTime('Begin of the first range with records'),
    arrivals_until: optionalTime('End of the last range with records'),
    exported_at: optionalTime('When a range was last copied'),
    waiting_since: optionalTime('Since when the oldest of the waiting ranges waits'),
    succeeded_at: optionalTime(
      'When the copy last made progress without a failure, or when the first round began; absent: no node copies records',
    ),
    failure: Type.Optional(
      Type.String({ description: 'What failed in the last round, which is repeated; absent: nothing did' }),
    ),
  },
  { $id: 'History' },
)
export type History = Static<typeof History>

export const VerifyQuery = Type.Object({
  after: Type.Optional(
    Type.String({ maxLength: 64, description: 'The `next` of an earlier answer; absent: the first range' }),
  ),
})
export type VerifyQuery = Static<typeof VerifyQuery>

export const HistoryCheck = Type.Object(
  {
    from: Type.Optional(
      Type.String({ format: 'date-time', description: 'Begin of the checked range; absent: there is none' }),
    ),
    retention_days: Type.Optional(Type.Integer({ description: 'Retention class of the range in days; 0: unlimited' })),
    records: Type.Integer({ description: 'Records of the range in the archive' }),
    files: Type.Integer({ description: 'Files that were looked at, with those of the metadata' }),
    faults: Type.Array(Type.String(), { description: 'What is wrong. A range with faults is copied again' }),
    next: Type.Optional(Type.String({ description: 'For `after`; absent: this was the last range' })),
  },
  { $id: 'HistoryCheck' },
)
export type HistoryCheck = Static<typeof HistoryCheck>
