/**
 * The columns of the table `records` in the archive: their names, types and field ids in Iceberg and Parquet. Field ids are forever: a
 * column is added with the next id and no default, and none is reused.
 */
import type { SchemaElement } from 'hyparquet-writer'

/** Types of Iceberg. Ids are strings: engines lose or refuse rows by columns of the type `uuid`. */
export type ColumnType = 'string' | 'timestamptz' | 'double' | 'boolean' | 'binary' | 'long' | 'int'

export type Column = { id: number; name: string; type: ColumnType; isRequired: boolean; doc: string }

const column = (id: number, name: string, type: ColumnType, isRequired: boolean, doc: string): Column => ({
  id,
  name,
  type,
  isRequired,
  doc,
})

/** In the order in which the export statement selects them. */
export const COLUMNS: readonly Column[] = [
  column(1, 'channel', 'string', true, 'Id of the channel'),
  column(2, 'publisher', 'string', true, 'Id of the client, user or task that published the record'),
  column(3, 'protocol', 'string', true, 'http, mqtt, coap, ws, task or rule'),
  column(4, 'subtopic', 'string', false, 'Subtopic, elements joined by a dot; null: the channel itself'),
  column(5, 'name', 'string', true, 'SenML name'),
  column(6, 'unit', 'string', false, 'SenML unit; null: none'),
  column(7, 'time', 'timestamptz', true, 'Time of the record'),
  column(8, 'value', 'double', false, 'Numeric value'),
  column(9, 'string_value', 'string', false, 'String value'),
  column(10, 'bool_value', 'boolean', false, 'Boolean value'),
  column(11, 'data_value', 'binary', false, 'Data value'),
  column(12, 'sum', 'double', false, 'SenML sum'),
  column(13, 'update_time', 'double', false, 'SenML update time in seconds'),
  column(14, 'arrived_at', 'timestamptz', true, 'When the message of the record arrived'),
  column(15, 'batch', 'long', true, 'First half of the id of the message'),
  column(16, 'message', 'int', true, 'Second half of the id of the message'),
]

export const ARRIVED_AT = 14
/** The field of the partition: the month of arrival, which is never before 1970. */
export const PARTITION_FIELD = { id: 1000, name: 'arrived_month' }

const PARQUET: Readonly<Record<ColumnType, Omit<SchemaElement, 'name'>>> = {
  string: { type: 'BYTE_ARRAY', converted_type: 'UTF8', logical_type: { type: 'STRING' } },
  // Both annotations: an engine that knows only one of them reads the same instant.
  timestamptz: {
    type: 'INT64',
    converted_type: 'TIMESTAMP_MICROS',
    logical_type: { type: 'TIMESTAMP', isAdjustedToUTC: true, unit: 'MICROS' },
  },
  double: { type: 'DOUBLE' },
  boolean: { type: 'BOOLEAN' },
  binary: { type: 'BYTE_ARRAY' },
  long: { type: 'INT64' },
  int: { type: 'INT32' },
}

/** Every column has its field id: engines read a column without one by name, as null, or by position. */
export const PARQUET_SCHEMA: SchemaElement[] = [
  { name: 'records', num_children: COLUMNS.length },
  ...COLUMNS.map(({ id, name, type, isRequired }): SchemaElement => ({
    name,
    ...PARQUET[type],
    repetition_type: isRequired ? 'REQUIRED' : 'OPTIONAL',
    field_id: id,
  })),
]

/** Months since January 1970 of a time in milliseconds. */
export function monthOf(ms: number): number {
  const time = new Date(ms)
  return (time.getUTCFullYear() - 1970) * 12 + time.getUTCMonth()
}
