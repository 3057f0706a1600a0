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
    const { line, message } = faultOf(error, text)
    throw new ServiceError('malformed', `line ${line} ${message}`, { details: [{ path: `line ${line}`, message }] })
  }
  return rows.map(({ record, info }) => {
    // A quoted cell may span lines; the row is named by the first of them.
    const spanned = record.reduce((sum, cell) => sum + linesIn(cell), 0)
    return { line: info.lines - spanned, cells: record.slice(0, 1 + record.findLastIndex((cell) => cell !== '')) }
  })
}

/** A quote that is never closed is met at the end of the text; it is the last one, or in the cell of the last one. */
function faultOf(error: unknown, text: string): { line: number; message: string } {
  if (!(error instanceof CsvError)) return { line: 1, message: 'is no CSV' }
  if (error.code !== 'CSV_QUOTE_NOT_CLOSED')
    return { line: Number((error as { lines?: unknown }).lines), message: 'is no CSV: a quote stands inside a cell' }
  const before = text.slice(0, text.lastIndexOf('"'))
  return { line: 1 + linesIn(before), message: 'is no CSV: a quote is not closed' }
}

const linesIn = (text: string) => text.match(/\r\n|\n|\r/g)?.length ?? 0
