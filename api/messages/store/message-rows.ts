/** Messages as rows of the tables `messages` and `payloads`, ready for COPY. */
import type { IncomingMessage } from '../message.ts'
import { protocolNumber, retentionClassOf } from '../message.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { BinaryRows } from './binary-rows.ts'

/** Columns in the order in which the rows below write them. */
const MESSAGE_COLUMNS = (
  'channel_key series_key time arrived_at batch_seq message ordinal retention_days protocol ' +
  'value sum update_time bool_value string_value data_value'
).split(' ')
const PAYLOAD_COLUMNS = (
  'channel_key publisher_key time arrived_at batch_seq message ordinal retention_days protocol ' +
  'publisher_id subtopic format content_type document body'
).split(' ')

export const COPY_MESSAGES = `COPY messages (${MESSAGE_COLUMNS.join(', ')}) FROM STDIN (FORMAT binary)`
export const COPY_PAYLOADS = `COPY payloads (${PAYLOAD_COLUMNS.join(', ')}) FROM STDIN (FORMAT binary)`

/** The format name under which raw payloads are read. */
export const RAW_FORMAT = 'raw'

export type BatchFacts = { seq: number; arrivedAtSeconds: number }

/** One message of a batch with the keys of its records' series, in the order of the records. */
export type StorableMessage = { message: IncomingMessage; seriesKeys: readonly number[] }

export type BatchRows = { messages: BinaryRows; payloads: BinaryRows }

export function toRows(batch: readonly StorableMessage[], facts: BatchFacts): BatchRows {
  const rows = { messages: new BinaryRows(), payloads: new BinaryRows() }
  batch.forEach(({ message, seriesKeys }, index) => {
    const { content } = message
    switch (content.kind) {
      case 'records':
        content.records.forEach((record, ordinal) =>
          writeRecord(rows.messages, message, record, seriesKeys[ordinal] as number, facts, index, ordinal),
        )
        return
      case 'documents':
        content.documents.forEach((document, ordinal) => {
          writePayload(rows.payloads, message, content.format, content.contentType, facts, index, ordinal)
          rows.payloads.text(document)
          rows.payloads.null()
        })
        return
      case 'raw':
        writePayload(rows.payloads, message, RAW_FORMAT, content.contentType, facts, index, 0)
        rows.payloads.null()
        rows.payloads.bytes(content.body)
    }
  })
  return rows
}

function writeRecord(
  rows: BinaryRows,
  { access, protocol }: IncomingMessage,
  record: ResolvedRecord,
  seriesKey: number,
  facts: BatchFacts,
  index: number,
  ordinal: number,
): void {
  rows.row(MESSAGE_COLUMNS.length)
  rows.int64(access.channelKey)
  rows.int64(seriesKey)
  rows.timestamp(record.timeSeconds)
  rows.timestamp(facts.arrivedAtSeconds)
  rows.int64(facts.seq)
  rows.int32(index)
  rows.int32(ordinal)
  rows.int16(retentionClassOf(access.retentionDays))
  rows.int16(protocolNumber(protocol))
  writeFloat(rows, record.value)
  writeFloat(rows, record.sum)
  writeFloat(rows, record.updateTimeSeconds)
  if (record.boolValue === undefined) rows.null()
  else rows.boolean(record.boolValue)
  if (record.stringValue === undefined) rows.null()
  else rows.text(record.stringValue)
  if (record.dataValue === undefined) rows.null()
  else rows.bytes(record.dataValue)
}

function writeFloat(rows: BinaryRows, value: number | undefined): void {
  if (value === undefined) rows.null()
  else rows.float64(value)
}

/** All columns of a payload but the last two, `document` and `body`. */
function writePayload(
  rows: BinaryRows,
  { access, subtopic, protocol, receivedAtSeconds }: IncomingMessage,
  format: string,
  contentType: string,
  facts: BatchFacts,
  index: number,
  ordinal: number,
): void {
  rows.row(PAYLOAD_COLUMNS.length)
  rows.int64(access.channelKey)
  if (access.publisherKey === null) rows.null()
  else rows.int64(access.publisherKey)
  rows.timestamp(receivedAtSeconds)
  rows.timestamp(facts.arrivedAtSeconds)
  rows.int64(facts.seq)
  rows.int32(index)
  rows.int32(ordinal)
  rows.int16(retentionClassOf(access.retentionDays))
  rows.int16(protocolNumber(protocol))
  rows.text(access.publisherId ?? '')
  rows.text(subtopic)
  rows.text(format)
  rows.text(contentType)
}
