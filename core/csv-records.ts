/**
 * Rows of CSV as records. A first row that contains the name of a column is a header, and each of its cells must be a known
 * column. Without a header, the columns are the caller's, by position; a first row that looks like a header is refused.
 */
import { parseWithExactIntegers } from './exact-integers.ts'
import { nearestName } from './nearest.ts'

/** Converts a cell to fields of a record; a returned string is an error message. Empty cells are omitted. */
type ReadCell = (cell: string, column: string) => Record<string, unknown> | string

const asText: ReadCell = (cell, column) => ({ [column]: cell })

/** Columns that are not plain text. */
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
      const value = parseWithExactIntegers(cell)
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { metadata: value }
    } catch {
      // The message below covers invalid JSON.
    }
    return 'metadata must be a JSON object, its quotes doubled: "{""floor"": 3}"'
  },
}

/** The columns of a header, in lower case; undefined when the row is not a header. A returned string is an error message. */
export function headerOf(cells: readonly string[], known: readonly string[]): readonly string[] | string | undefined {
  const names = cells.map((cell) => cell.toLowerCase())
  if (!names.some((name) => known.includes(name))) {
    const title = cells.find((cell) => isLikeColumn(cell, known, cells.length))
    if (title === undefined) return undefined
    return `looks like a header (${JSON.stringify(title)}) but names no column; columns are ${known.join(', ')}. Rename them, or put a header before a file of names`
  }
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

/** Names of columns in other programs. */
const ALIASES = [
  'names',
  'label',
  'title',
  'key',
  'password',
  'credentials',
  'tag',
  'meta',
  'state',
  'uuid',
  'external_id',
]
/** Titles that no entry has as its name: `serial name`, `item_id`. */
const TITLE = /^(?:names|\p{L}+_(?:name|id)s?)$/u

/** Whether a cell of a first row is the title of a column. A file of one column may contain almost any name. */
function isLikeColumn(cell: string, known: readonly string[], cells: number): boolean {
  const name = cell.toLowerCase().replaceAll(/[ _.-]+/g, '_')
  if (TITLE.test(name)) return true
  if (cells === 1) return false
  const last = name.slice(name.lastIndexOf('_') + 1)
  return [name, last].some((word) => ALIASES.includes(word) || nearestName(word, known) !== undefined)
}

/** The record of a row; a returned string is an error message. Without a header, extra cells are ignored. */
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
