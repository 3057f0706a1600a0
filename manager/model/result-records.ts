/**
 * Converts a result to SenML records (task-manager.md section 5): `n` is the name of the task, the value is in v, vb or
 * vs, and in vd for output that is not UTF-8. Pure.
 */
import type { Base64 } from '#core/bytes/index.ts'

export type ResultRecord = { n: string; v?: number; vb?: boolean; vs?: string; vd?: string }

/** Longer text is truncated: a record is a measurement, not a file. */
const MAX_TEXT_CHARS = 65_536
const MAX_DATA_BYTES = 49_152
const MAX_RECORDS = 1_000
const MAX_NAME_CHARS = 128

/**
 * One value becomes one record; several are numbered, `<name>:0` and so on. The result of a command is its standard
 * output. Without a value there is no record.
 */
export function resultRecords(taskName: string, results: unknown): ResultRecord[] {
  const name = senmlName(taskName)
  const values = Array.isArray(results) ? (results as unknown[]) : [outputOf(results)]
  return values.slice(0, MAX_RECORDS).flatMap((value, index): ResultRecord[] => {
    const n = values.length === 1 ? name : `${name}:${index}`
    if (value === null || value === undefined) return []
    if (typeof value === 'number') return [{ n, v: value }]
    if (typeof value === 'boolean') return [{ n, vb: value }]
    if (Buffer.isBuffer(value)) return [{ n, vd: value.subarray(0, MAX_DATA_BYTES).toString('base64url') }]
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return [{ n, vs: text.slice(0, MAX_TEXT_CHARS).toWellFormed().replaceAll('\0', '') }]
  })
}

/** A command returns its exit code and its outputs; a component returns a value. */
function outputOf(results: unknown): unknown {
  if (typeof results !== 'object' || results === null || !('exit_code' in results) || !('stdout' in results))
    return results
  const { stdout } = results
  return typeof stdout === 'string' ? stdout.trimEnd() : Buffer.from((stdout as Base64).base64, 'base64')
}

/** SenML names (RFC 8428 section 4.5.1) begin with a letter or digit and allow few punctuation characters. */
function senmlName(text: string): string {
  const name = text.replaceAll(/[^A-Za-z0-9\-:./_]/g, '_').slice(0, MAX_NAME_CHARS)
  return /^[A-Za-z0-9]/.test(name) ? name : `task${name}`
}
