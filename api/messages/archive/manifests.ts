/** Manifests and manifest lists of Iceberg (format version 2) as Avro files. */
import avro from 'avsc'
import { COLUMNS, PARTITION_FIELD } from './columns.ts'
import type { FileStatistics } from './statistics.ts'

export type ManifestEntry = {
  isAdded: boolean
  snapshotId: number
  sequenceNumber: number
  path: string
  month: number
  records: number
  bytes: number
  statistics: FileStatistics
}

export type ListedManifest = {
  path: string
  bytes: number
  month: number
  snapshotId: number
  sequenceNumber: number
  minSequenceNumber: number
  addedFiles: number
  existingFiles: number
  addedRows: number
  existingRows: number
}

type Schema = Record<string, unknown>

const optional = (type: unknown) => ['null', type]
const field = (id: number, name: string, type: unknown): Schema => ({
  name,
  type,
  'field-id': id,
  ...(Array.isArray(type) ? { default: null } : {}),
})
/** A map by field id is an array of pairs: Avro's own maps have keys of text. */
const byField = (name: string, [keyId, valueId]: readonly [number, number], value: string) =>
  optional({
    type: 'array',
    logicalType: 'map',
    items: { type: 'record', name, fields: [field(keyId, 'key', 'int'), field(valueId, 'value', value)] },
  })

const ENTRY_SCHEMA: Schema = {
  type: 'record',
  name: 'manifest_entry',
  fields: [
    field(0, 'status', 'int'),
    field(1, 'snapshot_id', optional('long')),
    field(3, 'sequence_number', optional('long')),
    field(4, 'file_sequence_number', optional('long')),
    field(2, 'data_file', {
      type: 'record',
      name: 'r2',
      fields: [
        field(134, 'content', 'int'),
        field(100, 'file_path', 'string'),
        field(101, 'file_format', 'string'),
        field(102, 'partition', {
          type: 'record',
          name: 'r102',
          fields: [field(PARTITION_FIELD.id, PARTITION_FIELD.name, optional('int'))],
        }),
        field(103, 'record_count', 'long'),
        field(104, 'file_size_in_bytes', 'long'),
        field(109, 'value_counts', byField('k119_v120', [119, 120], 'long')),
        field(110, 'null_value_counts', byField('k121_v122', [121, 122], 'long')),
        field(125, 'lower_bounds', byField('k126_v127', [126, 127], 'bytes')),
        field(128, 'upper_bounds', byField('k129_v130', [129, 130], 'bytes')),
        field(140, 'sort_order_id', optional('int')),
      ],
    }),
  ],
}

const LIST_SCHEMA: Schema = {
  type: 'record',
  name: 'manifest_file',
  fields: [
    field(500, 'manifest_path', 'string'),
    field(501, 'manifest_length', 'long'),
    field(502, 'partition_spec_id', 'int'),
    field(517, 'content', 'int'),
    field(515, 'sequence_number', 'long'),
    field(516, 'min_sequence_number', 'long'),
    field(503, 'added_snapshot_id', 'long'),
    field(504, 'added_files_count', 'int'),
    field(505, 'existing_files_count', 'int'),
    field(506, 'deleted_files_count', 'int'),
    field(512, 'added_rows_count', 'long'),
    field(513, 'existing_rows_count', 'long'),
    field(514, 'deleted_rows_count', 'long'),
    field(
      507,
      'partitions',
      optional({
        type: 'array',
        'element-id': 508,
        items: {
          type: 'record',
          name: 'r508',
          fields: [
            field(509, 'contains_null', 'boolean'),
            field(518, 'contains_nan', optional('boolean')),
            field(510, 'lower_bound', optional('bytes')),
            field(511, 'upper_bound', optional('bytes')),
          ],
        },
      }),
    ),
  ],
}

const [EXISTING, ADDED] = [0, 1]
/** All of data; there are no files of deletes. */
const DATA = 0

/** `schema` and `spec` are those of the metadata. */
export function encodeManifest(
  entries: readonly ManifestEntry[],
  { schema, spec }: { schema: Schema; spec: { 'spec-id': number; fields: unknown } },
): Promise<Buffer> {
  return encode(ENTRY_SCHEMA, entries.map(entryOf), {
    schema: JSON.stringify(schema),
    'schema-id': String(schema['schema-id']),
    'partition-spec': JSON.stringify(spec.fields),
    'partition-spec-id': String(spec['spec-id']),
    'format-version': '2',
    content: 'data',
  })
}

function entryOf(entry: ManifestEntry): Schema {
  const { nulls, lower, upper } = entry.statistics
  const pairs = (values: Readonly<Record<string, string>>) =>
    Object.entries(values).map(([id, hex]) => ({ key: Number(id), value: Buffer.from(hex, 'hex') }))
  return {
    status: entry.isAdded ? ADDED : EXISTING,
    snapshot_id: entry.snapshotId,
    sequence_number: entry.sequenceNumber,
    file_sequence_number: entry.sequenceNumber,
    data_file: {
      content: DATA,
      file_path: entry.path,
      file_format: 'PARQUET',
      partition: { [PARTITION_FIELD.name]: entry.month },
      record_count: entry.records,
      file_size_in_bytes: entry.bytes,
      value_counts: COLUMNS.map(({ id }) => ({ key: id, value: entry.records })),
      null_value_counts: COLUMNS.map(({ id }) => ({ key: id, value: nulls[id] ?? 0 })),
      lower_bounds: pairs(lower),
      upper_bounds: pairs(upper),
      sort_order_id: 0,
    },
  }
}

export function encodeManifestList(
  manifests: readonly ListedManifest[],
  snapshot: { id: number; sequenceNumber: number },
): Promise<Buffer> {
  const records = manifests.map((manifest) => {
    const month = Buffer.alloc(4)
    month.writeInt32LE(manifest.month)
    return {
      manifest_path: manifest.path,
      manifest_length: manifest.bytes,
      partition_spec_id: 0,
      content: DATA,
      sequence_number: manifest.sequenceNumber,
      min_sequence_number: manifest.minSequenceNumber,
      added_snapshot_id: manifest.snapshotId,
      added_files_count: manifest.addedFiles,
      existing_files_count: manifest.existingFiles,
      deleted_files_count: 0,
      added_rows_count: manifest.addedRows,
      existing_rows_count: manifest.existingRows,
      deleted_rows_count: 0,
      partitions: [{ contains_null: false, contains_nan: false, lower_bound: month, upper_bound: month }],
    }
  })
  return encode(LIST_SCHEMA, records, {
    'snapshot-id': String(snapshot.id),
    'parent-snapshot-id': 'null',
    'sequence-number': String(snapshot.sequenceNumber),
    'format-version': '2',
  })
}

/**
 * The library writes the field ids to the header only if it is given the schema as it is, and no header for an empty file unless it is
 * told to.
 */
function encode(
  schema: Schema,
  records: readonly object[],
  metadata: Readonly<Record<string, string>>,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // Its types do not know all of its options.
    const options: object = {
      codec: 'null',
      writeHeader: true,
      metadata: Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, Buffer.from(value)])),
    }
    const encoder = new avro.streams.BlockEncoder(schema as unknown as avro.Schema, options)
    const chunks: Buffer[] = []
    encoder.on('data', (chunk: Buffer) => chunks.push(chunk))
    encoder.on('end', () => resolve(Buffer.concat(chunks)))
    encoder.on('error', reject)
    for (const record of records) encoder.write(record)
    encoder.end()
  })
}
