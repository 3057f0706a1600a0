/** Renders answers as tables and lists of keys for a terminal. Pipes get JSON instead. */
import { cutTo, manyLines, oneLine, padTo, widthOf } from './plain-text.ts'
import { isRecord, plainText } from './values.ts'

/** How a command shows its rows. */
export type View = {
  /** Preferred columns, in this order, if the rows have them. */
  columns?: readonly string[]
  /** Labels for the numbers of a column. */
  labels?: Readonly<Record<string, readonly string[]>>
}

export type Paint = (style: 'bold' | 'dim', text: string) => string

const GAP = '  '
const MAX_CELL_WIDTH = 60
const MIN_CUT_WIDTH = 12
const MAX_COLUMNS = 8
/** The minimum on a terminal of any width. */
const MIN_COLUMNS = 2
const MIN_VALUE_WIDTH = 200
/** Rows of one table; a page is at most 100, a bulk answer 10,000. */
const MAX_ROWS = 200
/** The time of an event that never happened. */
const ZERO_TIME = '0001-01-01T00:00:00Z'
const PAGE_KEYS = new Set(['limit', 'offset', 'total', 'next'])
/** Smaller numbers under `time` are not message times. */
const YEAR_2001_SECONDS = 1e9

/** Renders any answer: a page or a list as a table, a record as keys and values. */
export function renderResponse(value: unknown, view: View, width: number, paint: Paint): string {
  if (Array.isArray(value)) return renderList(value, view, width, paint)
  if (!isRecord(value)) return oneLine(cellText('', value, view))
  const arrays = Object.entries(value).filter((entry): entry is [string, unknown[]] => Array.isArray(entry[1]))
  const [only] = arrays
  // A page can contain its rows under two names (a current and an older one); a lone list needs no heading.
  const isPage = only !== undefined && (typeof value['total'] === 'number' || Object.keys(value).length === 1)
  if (isPage)
    return [renderList(only[1], view, width, paint), pageLine(value, only[1].length, paint)]
      .filter((part) => part !== '')
      .join('\n')
  const tables = arrays.filter(([, items]) => items.some(isRecord))
  const rest = Object.fromEntries(Object.entries(value).filter(([key]) => !tables.some(([name]) => name === key)))
  return [
    ...(Object.keys(rest).length === 0 ? [] : [renderRecord(rest, view, width, paint)]),
    ...tables.map(([name, items]) => `${paint('bold', oneLine(name))}\n${renderList(items, view, width, paint)}`),
  ].join('\n\n')
}

function pageLine(page: Record<string, unknown>, shown: number, paint: Paint): string {
  const total = page['total']
  if (typeof total !== 'number') return ''
  if (total === 0) return ''
  const { offset = 0, limit, next: cursor } = page
  // The rows before a page of a cursor are not counted.
  if (typeof offset !== 'number' || (page['offset'] === undefined && limit !== undefined)) {
    const more = typeof cursor === 'string' ? `; continue with --query cursor=${cursor}` : ''
    return paint('dim', `${shown} of ${total}${more}`)
  }
  const end = offset + shown
  const next = end < total && shown > 0 ? `; continue with --offset ${end}` : ''
  return paint('dim', shown === 0 ? `none of ${total}` : `${offset + 1}-${end} of ${total}${next}`)
}

function renderList(items: readonly unknown[], view: View, width: number, paint: Paint): string {
  if (items.length === 0) return paint('dim', 'none')
  const records = items.filter(isRecord)
  if (records.length < items.length) return items.map((item) => oneLine(cellText('', item, view))).join('\n')
  const shown = records.slice(0, MAX_ROWS)
  const table = renderTable(shown, columnsOf(records, view.columns ?? []), view, width, paint)
  const more = records.length - shown.length
  return more > 0 ? `${table}\n${paint('dim', `and ${more} more; redirect the output to a file for all`)}` : table
}

/** The preferred columns that exist, else all scalar fields in their order. */
function columnsOf(records: readonly Record<string, unknown>[], preferred: readonly string[]): string[] {
  const wanted = preferred.filter((column) => records.some((record) => valueAt(record, column) !== undefined))
  if (wanted.length > 0) return wanted
  const found = new Set<string>()
  for (const record of records)
    for (const [key, value] of Object.entries(record)) if (!isRecord(value) && !PAGE_KEYS.has(key)) found.add(key)
  return [...found].slice(0, MAX_COLUMNS)
}

function renderTable(
  records: readonly Record<string, unknown>[],
  columns: readonly string[],
  view: View,
  width: number,
  paint: Paint,
): string {
  const all = columns.map((name): Column => {
    const header = headerOf(name, columns)
    const cells = records.map((record) => cutTo(oneLine(cellText(name, valueAt(record, name), view)), MAX_CELL_WIDTH))
    return { name, header, cells, width: Math.max(widthOf(header), ...cells.map(widthOf)) }
  })
  const shown = fitColumns(all, width)
  const line = (cellOf: (column: Column) => string) =>
    shown
      .map((column) => padTo(cutTo(cellOf(column), column.width), column.width))
      .join(GAP)
      .trimEnd()
  return [
    paint(
      'bold',
      line((column) => column.header),
    ),
    ...records.map((_record, row) => line((column) => column.cells[row] ?? '')),
  ].join('\n')
}

/** The last part of a path, or the whole path if another column ends with the same part. */
function headerOf(name: string, columns: readonly string[]): string {
  const lastPart = (path: string) => path.split('.').at(-1) ?? path
  const isAlone = columns.every((other) => other === name || lastPart(other) !== lastPart(name))
  return (isAlone ? lastPart(name) : name).replaceAll(/[._]/g, ' ').toUpperCase()
}

type Column = { name: string; header: string; cells: string[]; width: number }

/** Values to copy or compare are shown whole or not at all. */
const isWhole = (name: string) => /(^|[._])id$|secret|token|_at$|(^|_)time$|digest|serial/.test(name)

/** Narrows the widest texts until a line fits; if that is not enough, drops the last columns. */
function fitColumns(all: readonly Column[], width: number): Column[] {
  const columns = all.map((column) => ({ ...column }))
  for (;;) {
    const over = columns.reduce((sum, column) => sum + column.width + GAP.length, -GAP.length) - width
    if (over <= 0) return columns
    const cuttable = columns.filter((column) => !isWhole(column.name) && column.width > MIN_CUT_WIDTH)
    const [widest] = cuttable.toSorted((one, other) => other.width - one.width)
    if (widest !== undefined) widest.width = Math.max(MIN_CUT_WIDTH, widest.width - over)
    else if (columns.length > MIN_COLUMNS) columns.pop()
    else return columns
  }
}

function renderRecord(record: Record<string, unknown>, view: View, width: number, paint: Paint): string {
  const rows = flatten(record, '', view)
  const keyWidth = Math.max(...rows.map(([key]) => widthOf(key)))
  return rows
    .map(([key, text]) => {
      const name = paint('bold', padTo(key, keyWidth))
      if (text.trimEnd().includes('\n')) return `${name}\n${manyLines(text.trimEnd())}`
      const value = oneLine(text)
      return `${name}${GAP}${isWhole(key) ? value : cutTo(value, Math.max(width * 4, MIN_VALUE_WIDTH))}`.trimEnd()
    })
    .join('\n')
}

/** Flattens one level of objects into dotted keys; metadata and deeper levels stay JSON. */
function flatten(record: Record<string, unknown>, prefix: string, view: View): [string, string][] {
  return Object.entries(record).flatMap(([key, value]): [string, string][] =>
    isRecord(value) && prefix === '' && key !== 'metadata' && Object.keys(value).length > 0
      ? flatten(value, `${oneLine(key)}.`, view)
      : [[`${prefix}${oneLine(key)}`, cellText(key, value, view)]],
  )
}

function valueAt(record: Record<string, unknown>, column: string): unknown {
  let value: unknown = record
  for (const part of column.split('.')) value = isRecord(value) ? value[part] : undefined
  return value
}

function cellText(key: string, value: unknown, view: View): string {
  if (value === undefined || value === null || value === '') return '-'
  if (value === ZERO_TIME) return 'never'
  if (typeof value === 'string') return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? timeText(value) : value
  if (typeof value === 'number') {
    const label = view.labels?.[key]?.[value]
    return (
      label ??
      (key === 'time' && value > YEAR_2001_SECONDS ? timeText(new Date(value * 1000).toISOString()) : String(value))
    )
  }
  if (Array.isArray(value)) return value.length === 0 ? '-' : value.map((item) => plainText(item, '-')).join(', ')
  return isRecord(value) && Object.keys(value).length === 0 ? '-' : plainText(value)
}

/** `2026-01-01T12:00:01.5Z` as `2026-01-01 12:00:01`, in UTC. */
const timeText = (text: string): string => text.slice(0, 19).replace('T', ' ')
