/** Stored messages as lines of CSV (RFC 4180) or of JSON. */
import type { StoredMessage } from '../reader/schema.ts'

export type ExportFormat = 'csv' | 'json_lines'

export const CONTENT_TYPES: Readonly<Record<ExportFormat, string>> = {
  csv: 'text/csv; charset=utf-8; header=present',
  json_lines: 'application/x-ndjson; charset=utf-8',
}

const RECORD_COLUMNS = [
  ...(['channel', 'subtopic', 'publisher', 'protocol', 'name', 'unit', 'time', 'value', 'string_value'] as const),
  ...(['bool_value', 'data_value', 'sum', 'update_time'] as const),
]
const PAYLOAD_COLUMNS = ['channel', 'subtopic', 'publisher', 'protocol', 'created', 'content_type', 'payload'] as const

export type Lines = { header: string; line: (message: StoredMessage) => string }

export function linesOf(format: ExportFormat, kind: 'records' | 'payloads'): Lines {
  if (format === 'json_lines') return { header: '', line: (message) => `${JSON.stringify(message)}\n` }
  const columns = kind === 'records' ? RECORD_COLUMNS : PAYLOAD_COLUMNS
  return {
    header: `${columns.join(',')}\r\n`,
    line: (message) => `${columns.map((column) => cell(message[column])).join(',')}\r\n`,
  }
}

function cell(value: unknown): string {
  if (value === undefined) return ''
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  // Spreadsheets run text with these prefixes as a formula, and devices are not trusted: an apostrophe makes it text. JSON lines
  // contain the values unchanged.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
