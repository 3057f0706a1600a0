/** The metadata file of a table of Iceberg, format version 2: newer versions are not read by every engine. */
import { ARRIVED_AT, COLUMNS, PARTITION_FIELD } from './columns.ts'

export const SCHEMA = {
  type: 'struct',
  'schema-id': 0,
  fields: COLUMNS.map(({ id, name, type, isRequired, doc }) => ({ id, name, required: isRequired, type, doc })),
}

export const SPEC = {
  'spec-id': 0,
  fields: [{ name: PARTITION_FIELD.name, transform: 'month', 'source-id': ARRIVED_AT, 'field-id': PARTITION_FIELD.id }],
}

/** Names by field id for readers of files without ids; ours have them. */
const NAME_MAPPING = COLUMNS.map(({ id, name }) => ({ 'field-id': id, names: [name] }))

export type SnapshotFacts = {
  id: number
  sequenceNumber: number
  timestampMs: number
  listPath: string
  operation: 'append' | 'overwrite' | 'delete'
  addedFiles: number
  addedRecords: number
  files: number
  records: number
  bytes: number
}

export type TableFacts = { tableId: string; location: string; snapshot: SnapshotFacts }

/**
 * A table has one snapshot, the current one: no reader can ask for a snapshot with what users deleted.
 */
export function metadataOf({ tableId, location, snapshot }: TableFacts): object {
  return {
    'format-version': 2,
    'table-uuid': tableId,
    location,
    'last-sequence-number': snapshot.sequenceNumber,
    'last-updated-ms': snapshot.timestampMs,
    'last-column-id': Math.max(...COLUMNS.map(({ id }) => id)),
    'current-schema-id': SCHEMA['schema-id'],
    schemas: [SCHEMA],
    'default-spec-id': SPEC['spec-id'],
    'partition-specs': [SPEC],
    'last-partition-id': PARTITION_FIELD.id,
    'default-sort-order-id': 0,
    'sort-orders': [{ 'order-id': 0, fields: [] }],
    properties: { 'schema.name-mapping.default': JSON.stringify(NAME_MAPPING) },
    'current-snapshot-id': snapshot.id,
    refs: { main: { 'snapshot-id': snapshot.id, type: 'branch' } },
    snapshots: [
      {
        'snapshot-id': snapshot.id,
        'sequence-number': snapshot.sequenceNumber,
        'timestamp-ms': snapshot.timestampMs,
        'manifest-list': snapshot.listPath,
        'schema-id': SCHEMA['schema-id'],
        summary: {
          operation: snapshot.operation,
          'added-data-files': String(snapshot.addedFiles),
          'added-records': String(snapshot.addedRecords),
          'total-data-files': String(snapshot.files),
          'total-records': String(snapshot.records),
          'total-files-size': String(snapshot.bytes),
          'total-delete-files': '0',
          'total-position-deletes': '0',
          'total-equality-deletes': '0',
        },
      },
    ],
    'snapshot-log': [{ 'snapshot-id': snapshot.id, 'timestamp-ms': snapshot.timestampMs }],
    'metadata-log': [],
    statistics: [],
    'partition-statistics': [],
  }
}
