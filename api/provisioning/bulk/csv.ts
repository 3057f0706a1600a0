/** Parses a CSV file (RFC 4180) to rows with the numbers of their first lines. */
import { ServiceError } from '#core/errors/index.ts'
import { createTurns } from '#core/turns.ts'

export type CsvRow = { line: number; cells: string[] }

/** Maximum length of one row. A name has at most 1,024 characters. */
const MAX_ROW_CHARS = 64 * 1024
/** Maximum number of empty lines per allowed row. */
const EMPTY_LINES_PER_ROW = 10
/** Number of lines between two checks of the clock. */
const LINES_PER_LOOK = 16

/**
 * Ignores empty lines, blanks around cells and trailing empty cells. Throws `malformed` with the line, `too_large` for
 * more than `maxRows`. Yields to the event loop regularly.
 */
export async function parseCsv(text: string, maxRows: number): Promise<CsvRow[]> {
  const turns = createTurns()
  const rows: CsvRow[] = []
  let looked = 0
  for (const row of rowsOf(text)) {
    looked += 1
    if (looked % LINES_PER_LOOK === 0 && turns.isOver) await turns.next()
    if (looked > maxRows * (1 + EMPTY_LINES_PER_ROW))
      throw tooLarge(`${maxRows} rows and ${maxRows * EMPTY_LINES_PER_ROW} empty lines`)
    if (row === undefined) continue
    if (rows.length === maxRows) throw tooLarge(`${maxRows} rows`)
    rows.push(row)
  }
  return rows
}

const [LINE_FEED, RETURN, QUOTE, COMMA] = [0x0a, 0x0d, 0x22, 0x2c] as const
const BYTE_ORDER_MARK = '\ufeff'

/** Yields rows, and undefined for an empty line. All three line endings are accepted, also mixed in one file. */
function* rowsOf(text: string): Generator<CsvRow | undefined> {
  let at = text.startsWith(BYTE_ORDER_MARK) ? 1 : 0
  let line = 1
  while (at < text.length) {
    const { cells, end, line: lastLine } = readRow(text, at, line)
    yield end === at ? undefined : { line, cells: cells.slice(0, 1 + cells.findLastIndex((cell) => cell !== '')) }
    line = lastLine + 1
    at = end + (text.startsWith('\r\n', end) ? 2 : 1)
  }
}

/** Returns the cells of a row, its end and its last line: a quoted cell can span several lines. */
function readRow(text: string, begin: number, firstLine: number): { cells: string[]; end: number; line: number } {
  const cells: string[] = []
  const last = begin + MAX_ROW_CHARS
  let line = firstLine
  let at = begin
  for (;;) {
    const cellBegin = at
    while (at <= last && isBlank(text.charCodeAt(at))) at += 1
    if (text.charCodeAt(at) === QUOTE) {
      const openLine = line
      let cell = ''
      for (at += 1; ; at += 1) {
        const close = text.indexOf('"', at)
        if (close === -1) throw refusal(openLine, 'is not valid CSV: unclosed quote')
        if (close > last) throw tooLong(firstLine)
        const part = text.slice(at, close)
        line += endsOfLinesIn(part)
        cell += part
        at = close + 1
        if (text.charCodeAt(at) !== QUOTE) break
        cell += '"'
      }
      while (at <= last && isBlank(text.charCodeAt(at))) at += 1
      if (at > last) throw tooLong(firstLine)
      if (!isEndOfCell(text.charCodeAt(at))) throw refusal(line, 'is not valid CSV: quote inside a cell')
      cells.push(cell)
    } else {
      for (let code = text.charCodeAt(at); !isEndOfCell(code); code = text.charCodeAt(at)) {
        if (code === QUOTE) throw refusal(line, 'is not valid CSV: quote inside a cell')
        at += 1
        if (at > last) throw tooLong(firstLine)
      }
      cells.push(text.slice(cellBegin, at).trim())
    }
    if (at > last) throw tooLong(firstLine)
    if (text.charCodeAt(at) !== COMMA) return { cells, end: at, line }
    at += 1
  }
}

const isBlank = (code: number) => code === 0x20 || code === 0x09
/** `charCodeAt` returns NaN at the end of the text. */
const isEndOfCell = (code: number) => code === COMMA || code === LINE_FEED || code === RETURN || Number.isNaN(code)
const endsOfLinesIn = (text: string) => text.match(/\r\n|\n|\r/g)?.length ?? 0

function refusal(line: number, message: string): ServiceError {
  return new ServiceError('malformed', `line ${line} ${message}`, { details: [{ path: `line ${line}`, message }] })
}

const tooLong = (line: number) => refusal(line, `is longer than ${MAX_ROW_CHARS} characters`)
const tooLarge = (most: string) => new ServiceError('too_large', `the file is limited to ${most}`)
