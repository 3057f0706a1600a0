/** Resolved records as a pack in JSON (RFC 8428 section 5). */
import { formatBase64Url } from './base64url.ts'
import type { ResolvedRecord } from './record.ts'

/** Resolved records as a SenML pack (RFC 8428 section 4.6): no base fields, absolute times. */
export function encodeRecords(records: readonly ResolvedRecord[]): Buffer {
  const pack = records.map((record) => ({
    n: record.name,
    ...(record.unit === '' ? {} : { u: record.unit }),
    t: record.timeSeconds,
    ...(record.value === undefined ? {} : { v: record.value }),
    ...(record.stringValue === undefined ? {} : { vs: record.stringValue }),
    ...(record.boolValue === undefined ? {} : { vb: record.boolValue }),
    ...(record.dataValue === undefined ? {} : { vd: formatBase64Url(record.dataValue) }),
    ...(record.sum === undefined ? {} : { s: record.sum }),
    ...(record.updateTimeSeconds === undefined ? {} : { ut: record.updateTimeSeconds }),
  }))
  return Buffer.from(JSON.stringify(pack))
}
