/**
 * Rows of CSV as records. A first row with the name of a column is a header, and every cell of it must be one; without a header the
 * columns are those of the caller, by position.
 */
import { nearestName } from './nearest.ts'

/** How the text of a cell becomes fields of a record; a text says what is wrong with it. Empty cells are no fields. */
type ReadCell = (cell: string, column: string) => Record<string, unknown> | string

const asText: ReadCell = (cell, column) => ({ [column]: cell })

/** The columns that are more than a text under their own name. */
const READERS: Readonly<Record<string, ReadCell>> = {
  secret: (cell) => ({ credentials: { secret: cell } }),
  tags: (cell) => ({
    tags: cell
      .split(/[,;]/)
      .map((tag) => tag.trim())
      .filter((tag) => tag !== ''),
  }),
  metadata: (cell) => {
    try {
      const value: unknown = JSON.parse(cell)
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { metadata: value }
    } catch {
      // Said below.
    }
    return 'metadata must be a JSON object, its quotes doubled: "{""floor"": 3}"'
  },
}

/** The columns of a first row, in lower case; undefined: it is no header. A text says what is wrong with it. */
export function headerOf(cells: readonly string[], known: readonly string[]): readonly string[] | string | undefined {
  const names = cells.map((cell) => cell.toLowerCase())
  if (!names.some((name) => known.includes(name))) return undefined
  for (const [index, name] of names.entries()) {
    if (!known.includes(name)) {
      const nearest = nearestName(name, known)
      const meant = nearest === undefined ? '' : `, did you mean ${nearest}?`
      return `has an unknown column ${JSON.stringify(cells[index])}${meant}; columns are ${known.join(', ')}`
    }
    if (names.indexOf(name) < index) return `has the column ${name} twice`
  }
  return names
}

/** The record of a row; a text says what is wrong with it. Cells beyond the columns are left out where there is no header. */
export function recordOfRow(
  columns: readonly string[],
  cells: readonly string[],
  hasHeader: boolean,
): Record<string, unknown> | string {
  if (hasHeader && cells.length > columns.length && cells.slice(columns.length).some((cell) => cell !== ''))
    return `has more cells than the header (${columns.length})`
  const record: Record<string, unknown> = {}
  for (const [index, column] of columns.entries()) {
    const cell = cells[index] ?? ''
    if (cell === '') continue
    const fields = (Object.hasOwn(READERS, column) ? (READERS[column] as ReadCell) : asText)(cell, column)
    if (typeof fields === 'string') return fields
    Object.assign(record, fields)
  }
  return record
}
