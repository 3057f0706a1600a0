/** A result as SenML records (task-manager.md section 5): `n` is the name of the task, the value stands in v, vb or vs. Pure. */

export type ResultRecord = { n: string; v?: number; vb?: boolean; vs?: string }

/** Longer text is cut: a record is a measurement and no file. */
const MAX_TEXT_CHARS = 65_536
const MAX_RECORDS = 1_000
const MAX_NAME_CHARS = 128

/**
 * One value is one record; several are numbered, `<name>:0` and so on. Of a command its standard output counts. Nothing
 * where there is no value.
 */
export function resultRecords(taskName: string, results: unknown): ResultRecord[] {
  const name = senmlName(taskName)
  const values = Array.isArray(results) ? (results as unknown[]) : [outputOf(results)]
  return values.slice(0, MAX_RECORDS).flatMap((value, index): ResultRecord[] => {
    const n = values.length === 1 ? name : `${name}:${index}`
    if (value === null || value === undefined) return []
    if (typeof value === 'number') return [{ n, v: value }]
    if (typeof value === 'boolean') return [{ n, vb: value }]
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return [{ n, vs: text.slice(0, MAX_TEXT_CHARS).toWellFormed().replaceAll('\0', '') }]
  })
}

/** A command gives its exit code and its outputs; a component a value. */
function outputOf(results: unknown): unknown {
  if (typeof results !== 'object' || results === null || !('exit_code' in results) || !('stdout' in results))
    return results
  return String(results.stdout).trimEnd()
}

/** Names of SenML (RFC 8428 section 4.5.1) begin with a letter or digit and hold few signs. */
function senmlName(text: string): string {
  const name = text.replaceAll(/[^A-Za-z0-9\-:./_]/g, '_').slice(0, MAX_NAME_CHARS)
  return /^[A-Za-z0-9]/.test(name) ? name : `task${name}`
}
