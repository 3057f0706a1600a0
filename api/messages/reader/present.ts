/** Stored messages as responses (contract section 8, decision 53). */
import { parseExactJson } from '../model/exact-json.ts'
import { PROTOCOLS } from '../model/message.ts'
import { formatBase64Url } from '../senml/index.ts'
import type { PayloadRow } from './payloads.ts'
import type { LinkedRow, RecordRow } from './window.ts'
import type { StoredMessage } from './schema.ts'

export function presentRecord(channel: string, row: RecordRow): StoredMessage {
  return {
    channel,
    ...(row.subtopic === '' ? {} : { subtopic: row.subtopic }),
    publisher: row.publisher_id,
    protocol: PROTOCOLS[row.protocol] ?? '',
    name: row.name,
    ...(row.unit === '' ? {} : { unit: row.unit }),
    time: row.time,
    ...(row.update_time === null ? {} : { update_time: row.update_time }),
    ...(row.value === null ? {} : { value: row.value }),
    ...(row.aggregates === undefined ? {} : { values: row.aggregates }),
    ...(row.string_value === null ? {} : { string_value: row.string_value }),
    ...(row.bool_value === null ? {} : { bool_value: row.bool_value }),
    ...(row.data_value === null ? {} : { data_value: formatBase64Url(row.data_value) }),
    ...(row.sum === null ? {} : { sum: row.sum }),
  }
}

/** The fields that lead from a message to runs: its own id, and the run of a task that published it. */
export function presentLinks({ batch_seq: seq, message, run }: LinkedRow): Partial<StoredMessage> {
  return {
    ...(seq === undefined ? {} : { message_id: `${seq}/${message}` }),
    ...(run === undefined ? {} : { run_id: run.id, task_id: run.task }),
  }
}

/** JSON and raw messages always contain their subtopic (contract decision 53). */
export function presentPayload(channel: string, row: PayloadRow): StoredMessage {
  const common = {
    channel,
    created: row.time,
    subtopic: row.subtopic,
    publisher: row.publisher_id,
    protocol: PROTOCOLS[row.protocol] ?? '',
  }
  if (row.document !== null) return { ...common, payload: parseExactJson(row.document) }
  return { ...common, content_type: row.content_type, payload: (row.body ?? Buffer.alloc(0)).toString('base64') }
}
