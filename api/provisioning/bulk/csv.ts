/** Rows of a CSV file (RFC 4180) with the lines that they begin on. No header: files of this platform have none. */
import { CsvError, parse } from 'csv-parse/sync'
import { ServiceError } from '#core/errors/index.ts'

export type CsvRow = { line: number; cells: string[] }

/** Empty lines are left out, spaces around cells too, and empty cells at the end. Throws `malformed` naming the line. */
export function parseCsv(text: string): CsvRow[] {
  let rows: { record: string[]; info: { lines: number } }[]
  try {
    rows = parse(text, {
      bom: true,
      info: true,
      // Files that went through several hands have several ends of lines.
      record_delimiter: ['\r\n', '\n', '\r'],
      relax_column_count: true,
      skip_empty_lines: true,
      trim: true,
    }) as unknown as typeof rows
  } catch (error) {
    const line = error instanceof CsvError ? Number((error as { lines?: unknown }).lines) : 1
    const message = 'is no CSV: a quote is not closed or stands inside a cell'
    throw new ServiceError('malformed', `line ${line} ${message}`, { details: [{ path: `line ${line}`, message }] })
  }
  return rows.map(({ record, info }) => {
    // A quoted cell may span lines; the row is named by the first of them.
    const spanned = record.reduce((sum, cell) => sum + (cell.match(/\r\n|\n|\r/g)?.length ?? 0), 0)
    return { line: info.lines - spanned, cells: record.slice(0, 1 + record.findLastIndex((cell) => cell !== '')) }
  })
}
