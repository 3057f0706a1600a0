/** Messages as rows of the tables `records` and `payloads`: COPY statements and their data. */
import type { IncomingMessage } from '../model/message.ts'
import { protocolNumber, retentionClassOf } from '../model/message.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { BinaryRows, OIDS } from './binary-rows.ts'
import type { CopyData } from './copy-in.ts'
import { chunksOf } from './record-chunks.ts'

/** Columns in the order in which the rows below write them; `arrived_at` is the moment of the transaction. */
const NUMBER_COLUMNS =
  'channel_key min_time max_time batch_seq message chunk retention_days protocol series_keys times "values"'.split(' ')
const OTHER_COLUMNS = 'sums update_times bool_values string_values data_values'.split(' ')
const PAYLOAD_COLUMNS = (
  'channel_key publisher_key time batch_seq message ordinal retention_days protocol ' +
  'publisher_id subtopic format content_type document body'
).split(' ')

const copyInto = (table: string, columns: readonly string[]) =>
  `COPY ${table} (${columns.join(', ')}) FROM STDIN (FORMAT binary)`
const COPY_NUMBERS = copyInto('records', NUMBER_COLUMNS)
const COPY_RECORDS = copyInto('records', [...NUMBER_COLUMNS, ...OTHER_COLUMNS])
const COPY_PAYLOADS = copyInto('payloads', PAYLOAD_COLUMNS)

/** The format name under which raw payloads are read. */
export const RAW_FORMAT = 'raw'

/** One message of a batch with the keys of its records' series, in the order of the records. */
export type StorableMessage = { message: IncomingMessage; seriesKeys: readonly number[] }

/** The data to copy for a batch: for none, one or two tables. */
export function toCopies(batch: readonly StorableMessage[], batchSeq: number): CopyData[] {
  const records = new BinaryRows()
  const payloads = new BinaryRows()
  // Most batches contain only numbers, and omit the five other columns.
  const isNumbersOnly = batch.every(
    ({ message }) => message.content.kind !== 'records' || message.content.records.every(isNumber),
  )
  batch.forEach((one, index) => {
    if (one.message.content.kind === 'records') writeRecords(records, one, batchSeq, index, isNumbersOnly)
    else writePayloads(payloads, one.message, batchSeq, index)
  })
  const copies: CopyData[] = []
  if (records.rows > 0) copies.push({ statement: isNumbersOnly ? COPY_NUMBERS : COPY_RECORDS, data: records.end() })
  if (payloads.rows > 0) copies.push({ statement: COPY_PAYLOADS, data: payloads.end() })
  return copies
}

function isNumber(record: ResolvedRecord): boolean {
  return record.value !== undefined && record.sum === undefined && record.updateTimeSeconds === undefined
}

function writeRecords(
  rows: BinaryRows,
  { message, seriesKeys }: StorableMessage,
  batchSeq: number,
  index: number,
  isNumbersOnly: boolean,
): void {
  if (message.content.kind !== 'records') return
  const { channelKey, retentionDays } = message.access
  const retention = retentionClassOf(retentionDays)
  const protocol = protocolNumber(message.protocol)
  for (const [place, chunk] of chunksOf(message.content.records, seriesKeys).entries()) {
    rows.row(isNumbersOnly ? NUMBER_COLUMNS.length : NUMBER_COLUMNS.length + OTHER_COLUMNS.length)
    rows.int64(channelKey)
    rows.timestamp(chunk.minSeconds)
    rows.timestamp(chunk.maxSeconds)
    rows.int64(batchSeq)
    rows.int32(index)
    rows.int32(place)
    rows.int16(retention)
    rows.int16(protocol)
    const { records } = chunk
    rows.beginArray(OIDS.int8, records.length)
    for (const key of chunk.seriesKeys) rows.int64(key)
    rows.endArray()
    rows.beginArray(OIDS.timestamptz, records.length)
    for (const { timeSeconds } of records) rows.timestamp(timeSeconds)
    rows.endArray()
    writeFloats(rows, records, (record) => record.value)
    if (!isNumbersOnly) writeOthers(rows, records)
  }
}

function writeOthers(rows: BinaryRows, records: readonly ResolvedRecord[]): void {
  writeFloats(rows, records, (record) => record.sum)
  writeFloats(rows, records, (record) => record.updateTimeSeconds)
  writeArray(
    rows,
    OIDS.bool,
    records,
    (record) => record.boolValue,
    (value) => rows.boolean(value),
  )
  writeArray(
    rows,
    OIDS.text,
    records,
    (record) => record.stringValue,
    (value) => rows.text(value),
  )
  writeArray(
    rows,
    OIDS.bytea,
    records,
    (record) => record.dataValue,
    (value) => rows.bytes(value),
  )
}

function writeFloats(
  rows: BinaryRows,
  records: readonly ResolvedRecord[],
  valueOf: (record: ResolvedRecord) => number | undefined,
): void {
  writeArray(rows, OIDS.float8, records, valueOf, (value) => rows.float64(value))
}

/** An array with an element for each record; NULL where none of them has a value. */
function writeArray<V>(
  rows: BinaryRows,
  oid: number,
  records: readonly ResolvedRecord[],
  valueOf: (record: ResolvedRecord) => V | undefined,
  write: (value: V) => void,
): void {
  if (records.every((record) => valueOf(record) === undefined)) {
    rows.null()
    return
  }
  rows.beginArray(oid, records.length)
  for (const record of records) {
    const value = valueOf(record)
    if (value === undefined) rows.null()
    else write(value)
  }
  rows.endArray()
}

function writePayloads(rows: BinaryRows, message: IncomingMessage, batchSeq: number, index: number): void {
  const { content } = message
  switch (content.kind) {
    case 'records':
      return
    case 'documents':
      content.documents.forEach((document, ordinal) => {
        writePayload(rows, message, content.format, content.contentType, batchSeq, index, ordinal)
        rows.text(document)
        rows.null()
      })
      return
    case 'raw':
      writePayload(rows, message, RAW_FORMAT, content.contentType, batchSeq, index, 0)
      rows.null()
      rows.bytes(content.body)
  }
}

/** All columns of a payload but the last two, `document` and `body`. */
function writePayload(
  rows: BinaryRows,
  { access, subtopic, protocol, receivedAtSeconds }: IncomingMessage,
  format: string,
  contentType: string,
  batchSeq: number,
  index: number,
  ordinal: number,
): void {
  rows.row(PAYLOAD_COLUMNS.length)
  rows.int64(access.channelKey)
  if (access.publisherKey === null) rows.null()
  else rows.int64(access.publisherKey)
  rows.timestamp(receivedAtSeconds)
  rows.int64(batchSeq)
  rows.int32(index)
  rows.int32(ordinal)
  rows.int16(retentionClassOf(access.retentionDays))
  rows.int16(protocolNumber(protocol))
  rows.text(access.publisherId ?? '')
  rows.text(subtopic)
  rows.text(format)
  rows.text(contentType)
}
