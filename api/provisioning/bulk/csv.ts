/** Rows of a CSV file (RFC 4180) with the lines that they begin on. */
import { ServiceError } from '#core/errors/index.ts'
import { createTurns } from '#core/turns.ts'

export type CsvRow = { line: number; cells: string[] }

/** Of one row: a name has 1,024 at most. */
const MAX_ROW_CHARS = 64 * 1024
/** Lines of a file that are empty, for each row that it may have. */
const EMPTY_LINES_PER_ROW = 10
/** Lines between two looks at the clock. */
const LINES_PER_LOOK = 16

/**
 * Empty lines are left out, spaces around cells too, and empty cells at the end. Throws `malformed` naming the line, `too_large` for more than
 * `maxRows`. Read in turns.
 */
export async function parseCsv(text: string, maxRows: number): Promise<CsvRow[]> {
  const turns = createTurns()
  const rows: CsvRow[] = []
  let looked = 0
  for (const row of rowsOf(text)) {
    looked += 1
    if (looked % LINES_PER_LOOK === 0 && turns.isOver) await turns.next()
    if (looked > maxRows * (1 + EMPTY_LINES_PER_ROW)) throw tooLarge(`${maxRows} rows, and few empty lines`)
    if (row === undefined) continue
    if (rows.length === maxRows) throw tooLarge(`${maxRows} rows`)
    rows.push(row)
  }
  return rows
}

const [LINE_FEED, RETURN, QUOTE, COMMA] = [0x0a, 0x0d, 0x22, 0x2c] as const
const BYTE_ORDER_MARK = '\ufeff'

/** Row by row; undefined for an empty line. Files that went through several hands have several ends of lines. */
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

/** The cells up to the end of the line at which the row ends, and that line: a quoted cell may span several. */
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
        if (close === -1) throw refusal(openLine, 'is no CSV: a quote is not closed')
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
      if (!isEndOfCell(text.charCodeAt(at))) throw refusal(line, 'is no CSV: a quote stands inside a cell')
      cells.push(cell)
    } else {
      for (let code = text.charCodeAt(at); !isEndOfCell(code); code = text.charCodeAt(at)) {
        if (code === QUOTE) throw refusal(line, 'is no CSV: a quote stands inside a cell')
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
/** At the end of the text there is no code. */
const isEndOfCell = (code: number) => code === COMMA || code === LINE_FEED || code === RETURN || Number.isNaN(code)
const endsOfLinesIn = (text: string) => text.match(/\r\n|\n|\r/g)?.length ?? 0

function refusal(line: number, message: string): ServiceError {
  return new ServiceError('malformed', `line ${line} ${message}`, { details: [{ path: `line ${line}`, message }] })
}

const tooLong = (line: number) => refusal(line, `is longer than ${MAX_ROW_CHARS} characters`)
const tooLarge = (most: string) => new ServiceError('too_large', `the file must have at most ${most}`)
