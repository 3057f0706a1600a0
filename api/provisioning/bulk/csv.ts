/** Parses a CSV file (RFC 4180) to rows with the numbers of their first lines. */
import type { Delimiter } from '#core/csv-text.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createTurns } from '#core/turns.ts'

export type CsvRow = { line: number; cells: string[] }
/** A line that is not valid CSV. */
export type CsvFault = { line: number; message: string }

/** Maximum length of one row. A name has at most 1,024 characters. */
const MAX_ROW_CHARS = 64 * 1024
/** Maximum number of empty lines per allowed row. */
const EMPTY_LINES_PER_ROW = 10
/** Number of lines between two checks of the clock. */
const LINES_PER_LOOK = 16

/**
 * Ignores rows of empty cells, blanks around cells and trailing empty cells. A line that is not valid CSV is reported, and the next one is
 * read. Throws `too_large` for more than `maxRows`. Yields to the event loop regularly.
 */
export async function parseCsv(
  text: string,
  maxRows: number,
  delimiter: Delimiter = ',',
): Promise<{ rows: CsvRow[]; faults: CsvFault[] }> {
  const turns = createTurns()
  const rows: CsvRow[] = []
  const faults: CsvFault[] = []
  let looked = 0
  for (const row of rowsOf(text, delimiter.charCodeAt(0))) {
    looked += 1
    // An invalid line can be as long as many others.
    const isLook = looked % LINES_PER_LOOK === 0 || (row !== undefined && 'message' in row)
    if (isLook && turns.isOver) await turns.next()
    if (looked > maxRows * (1 + EMPTY_LINES_PER_ROW))
      throw tooLarge(`${maxRows} rows and ${maxRows * EMPTY_LINES_PER_ROW} empty lines`)
    if (row === undefined) continue
    if (rows.length + faults.length === maxRows) throw tooLarge(`${maxRows} rows`)
    if ('message' in row) faults.push(row)
    else rows.push(row)
  }
  return { rows, faults }
}

class Invalid extends Error {
  readonly fault: CsvFault
  /** The position at which the fault was found. */
  readonly at: number

  constructor(fault: CsvFault, at: number) {
    super(fault.message)
    this.fault = fault
    this.at = at
  }
}

const [TAB, LINE_FEED, RETURN, BLANK, QUOTE] = [0x09, 0x0a, 0x0d, 0x20, 0x22] as const

/** Yields rows and faults, and undefined for a row of empty cells. All three line endings are accepted, also mixed in one file. */
function* rowsOf(text: string, delimiter: number): Generator<CsvRow | CsvFault | undefined> {
  const endOfLine = createLineEnds(text)
  let at = 0
  let line = 1
  while (at < text.length) {
    let end: number
    try {
      const row = readRow(text, at, line, delimiter)
      const cells = row.cells.slice(0, 1 + row.cells.findLastIndex((cell) => cell !== ''))
      yield cells.length === 0 ? undefined : { line, cells }
      end = row.end
      line = row.line
    } catch (error) {
      if (!(error instanceof Invalid)) throw error
      yield error.fault
      end = endOfLine(error.at)
      line += endsOfLinesIn(text.slice(at, error.at))
    }
    line += 1
    at = end + (text.startsWith('\r\n', end) ? 2 : 1)
  }
}

/** Finds ends of lines from increasing positions: each character is searched once, however many lines are invalid. */
function createLineEnds(text: string): (from: number) => number {
  const next = new Map([
    ['\n', -1],
    ['\r', -1],
  ])
  return (from) => {
    for (const [end, known] of next) {
      if (known >= from) continue
      const found = text.indexOf(end, from)
      next.set(end, found === -1 ? text.length : found)
    }
    return Math.min(...next.values())
  }
}

/** Returns the cells of a row, its end and its last line: a quoted cell can span several lines. */
function readRow(
  text: string,
  begin: number,
  firstLine: number,
  delimiter: number,
): { cells: string[]; end: number; line: number } {
  const cells: string[] = []
  const last = begin + MAX_ROW_CHARS
  let line = firstLine
  let at = begin
  for (;;) {
    const cellBegin = at
    while (at <= last && isBlank(text.charCodeAt(at), delimiter)) at += 1
    if (text.charCodeAt(at) === QUOTE) {
      const openLine = line
      let cell = ''
      for (at += 1; ; at += 1) {
        const close = text.indexOf('"', at)
        if (close === -1) throw refusal(openLine, 'is not valid CSV: unclosed quote', cellBegin)
        if (close > last) throw tooLong(firstLine, last)
        const part = text.slice(at, close)
        line += endsOfLinesIn(part)
        cell += part
        at = close + 1
        if (text.charCodeAt(at) !== QUOTE) break
        cell += '"'
      }
      while (at <= last && isBlank(text.charCodeAt(at), delimiter)) at += 1
      if (at > last) throw tooLong(firstLine, at)
      if (!isEndOfCell(text.charCodeAt(at), delimiter)) throw refusal(line, INNER_QUOTE, at)
      cells.push(cell)
    } else {
      for (let code = text.charCodeAt(at); !isEndOfCell(code, delimiter); code = text.charCodeAt(at)) {
        if (code === QUOTE) throw refusal(line, INNER_QUOTE, at)
        at += 1
        if (at > last) throw tooLong(firstLine, at)
      }
      cells.push(text.slice(cellBegin, at).trim())
    }
    if (at > last) throw tooLong(firstLine, at)
    if (text.charCodeAt(at) !== delimiter) return { cells, end: at, line }
    at += 1
  }
}

const INNER_QUOTE = 'is not valid CSV: quote inside a cell'
const ENDS_OF_LINES = /\r\n|\n|\r/g

const isBlank = (code: number, delimiter: number) => code === BLANK || (code === TAB && delimiter !== TAB)
/** `charCodeAt` returns NaN at the end of the text. */
const isEndOfCell = (code: number, delimiter: number) =>
  code === delimiter || code === LINE_FEED || code === RETURN || Number.isNaN(code)
const endsOfLinesIn = (text: string) => text.match(ENDS_OF_LINES)?.length ?? 0

const refusal = (line: number, message: string, at: number) => new Invalid({ line, message }, at)
const tooLong = (line: number, at: number) => refusal(line, `is longer than ${MAX_ROW_CHARS} characters`, at)
const tooLarge = (most: string) => new ServiceError('too_large', `the file is limited to ${most}`)
