/** Stored messages as the wire shows them (contract section 8, decision 53). */
import { parseExactJson } from '../model/exact-json.ts'
import { PROTOCOLS } from '../model/message.ts'
import { formatBase64Url } from '../senml/index.ts'
import type { PayloadRow } from './payloads.ts'
import type { RecordRow } from './window.ts'
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
    ...(row.string_value === null ? {} : { string_value: row.string_value }),
    ...(row.bool_value === null ? {} : { bool_value: row.bool_value }),
    ...(row.data_value === null ? {} : { data_value: formatBase64Url(row.data_value) }),
    ...(row.sum === null ? {} : { sum: row.sum }),
  }
}

/** JSON and raw messages always carry their subtopic (contract decision 53). */
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
