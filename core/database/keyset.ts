/**
 * Orders of listings, and the rows after a place in them. The condition on a place is one comparison of rows if all columns have the
 * same direction, so an index in this order begins at the place.
 */
import { NO_MORE, invalidCursor } from '../cursor.ts'
import type { PageEnd, Place } from '../cursor.ts'
import { isId } from '../ids.ts'
import type { PageRange } from '../page.ts'
import { sql } from '../sql.ts'
import type { Queryable, Sql } from '../sql.ts'
import { withinPage } from './page.ts'
import type { PageRow } from './page.ts'

type Direction = 'asc' | 'desc'
type Value = Place[number]

/** How values of a type are shown in a place, which of them are accepted from a cursor, and how they are compared again. */
type SortType = {
  show(column: Sql): Sql
  accepts(value: Value): boolean
  read(value: Value): Sql
}

const MAX_XID = 2n ** 63n

const TYPES = {
  /** A number up to 2^53: a key. */
  number: {
    show: (column) => column,
    accepts: (value) => Number.isSafeInteger(value),
    read: (value) => sql`${value}::bigint`,
  },
  /** A time in microseconds since 1970, which PostgreSQL keeps. It is shown as text, because the times of the year 9999 exceed 2^53. */
  time: {
    show: (column) => sql`(extract(epoch FROM ${column}) * 1000000)::bigint::text`,
    accepts: (value) => typeof value === 'string' && /^-?\d{1,18}$/.test(value),
    // An interval is multiplied as a double. Both products are exact.
    read: (value) => sql`('epoch'::timestamptz + ${value}::bigint / 3600000000 * interval '1 hour'
      + ${value}::bigint % 3600000000 * interval '1 microsecond')`,
  },
  text: {
    show: (column) => column,
    accepts: (value) => typeof value === 'string' && !value.includes('\0'),
    read: (value) => sql`${value}::text`,
  },
  uuid: {
    show: (column) => column,
    accepts: (value) => typeof value === 'string' && isId(value),
    read: (value) => sql`${value}::uuid`,
  },
  boolean: {
    show: (column) => column,
    accepts: (value) => typeof value === 'boolean',
    read: (value) => sql`${value}::boolean`,
  },
  /** The first half of a position. */
  xid: {
    show: (column) => sql`${column}::text`,
    accepts: (value) => typeof value === 'string' && /^\d{1,19}$/.test(value) && BigInt(value) < MAX_XID,
    read: (value) => sql`${value}::text::xid8`,
  },
} satisfies Record<string, SortType>

/** A column of an order, which is never NULL. `dir` is that of the keyset unless it is set. */
export type SortColumn = { by: Sql; type: keyof typeof TYPES; dir?: Direction }

/** The order of a listing. The last column makes the order unique. */
export class Keyset {
  readonly columns: readonly Required<SortColumn>[]

  constructor(columns: readonly SortColumn[], dir: Direction = 'asc') {
    this.columns = columns.map((column) => ({ dir, ...column }))
  }

  /** The text after ORDER BY. */
  get order(): Sql {
    return sql.join(this.columns.map(({ by, dir }) => sql`${by} ${sql.raw(dir === 'desc' ? 'DESC' : 'ASC')}`))
  }

  /** The place of a row, as JSON. */
  get place(): Sql {
    return sql`json_build_array(${sql.join(this.columns.map(({ by, type }) => TYPES[type].show(by)))})`
  }

  /** The place of a row as JSON text. Numbers and times are joined, which costs a third of an array. */
  get placeText(): Sql<string> {
    const { columns } = this
    if (columns.some(({ type }) => type !== 'number' && type !== 'time')) return sql<string>`${this.place}::text`
    const shown = columns.map(({ by, type }) =>
      type === 'time' ? sql`'"' || ${TYPES.time.show(by)} || '"'` : sql`${by}::text`,
    )
    return sql<string>`('[' || ${sql.join(shown, sql` || ', ' || `)} || ']')`
  }

  /** Returns the same order over columns with other names. */
  over(named: (index: number) => Sql): Keyset {
    return new Keyset(this.columns.map((column, index) => ({ ...column, by: named(index) })))
  }

  /** The rows after a place; without one, all rows. Throws `malformed` for a place in another order. */
  after(place: Place | undefined): Sql<boolean> {
    if (place === undefined) return sql<boolean>`true`
    const { columns } = this
    if (place.length !== columns.length) throw invalidCursor()
    const values = columns.map(({ type }, index) => {
      const value = place[index] as Value
      if (!TYPES[type].accepts(value)) throw invalidCursor()
      return TYPES[type].read(value)
    })
    const names = columns.map(({ by }) => by)
    const [first, ...others] = columns as [Required<SortColumn>, ...Required<SortColumn>[]]
    if (others.every(({ dir }) => dir === first.dir))
      return sql<boolean>`(${sql.join(names)}) ${beyond(first.dir)} (${sql.join(values)})`
    return this.#afterMixed(values)
  }

  #afterMixed(values: readonly Sql[]): Sql<boolean> {
    const isBeyond = (index: number) => {
      const { by, dir } = this.columns[index] as Required<SortColumn>
      return sql<boolean>`${by} ${beyond(dir)} ${values[index]}`
    }
    const last = this.columns.length - 1
    let condition = isBeyond(last)
    for (let index = last - 1; index >= 0; index -= 1) {
      const equal = sql`${this.columns[index]?.by} = ${values[index]}`
      condition = sql<boolean>`(${isBeyond(index)} OR (${equal} AND ${condition}))`
    }
    // Implied by the rest: an index begins at it.
    const [{ by, dir }] = this.columns as [Required<SortColumn>]
    return sql<boolean>`(${by} ${beyond(dir)}= ${values[0]} AND ${condition})`
  }
}

const beyond = (dir: Direction) => sql.raw(dir === 'desc' ? '<' : '>')

/** Rows that were read with one more than the page has. */
export type PlacedRow<Row> = PageRow<Row & { row_place: string }>

/** The range of a page in a statement with `keyset.place AS row_place`: one more row shows whether others follow. */
export function rangeOf(keyset: Keyset, { offset, limit }: PageRange): Sql {
  return sql`ORDER BY ${keyset.order} OFFSET ${offset} LIMIT ${limit + 1}`
}

/** The page of rows that `withinPage` and `rangeOf` read. */
export function pageOf<Row>(read: readonly PlacedRow<Row>[], limit: number): { rows: PlacedRow<Row>[]; next: PageEnd } {
  const rows = read.slice(0, limit)
  const [first] = read
  if (first === undefined) return { rows, next: NO_MORE }
  return { rows, next: { places: rows.map((row) => row.row_place), hasMore: first.page_rows > rows.length } }
}

type PageSource = {
  columns: Sql
  from: Sql
  where: Sql
  keyset: Keyset
  /**
   * The columns are of these rows alone, which have the name `alias` there too, and of tables that are joined to them. `key`: a unique
   * column of `alias`. If an index has it and the order, rows before the page are skipped without reading them.
   */
  joined?: { alias: string; key?: string; tables?: Sql }
  /** The statement is prepared under this name, so its text must be the same at every call. */
  name?: string | undefined
}

/** Reads a page of a listing. Throws `malformed` for a cursor of another order. */
export async function readPage<Row>(
  db: Queryable,
  source: PageSource,
  page: PageRange,
): Promise<{ rows: PlacedRow<Row>[]; next: PageEnd }> {
  const statement = withinPage(statementOf<Row>(source, page))
  const { rows } = await (source.name === undefined
    ? statement.execute(db)
    : statement.executePrepared(db, source.name))
  return pageOf(rows, page.limit)
}

/** The columns and the places are computed for the rows of the page alone: a page can be behind a million of other rows. */
function statementOf<Row>({ columns, from, where, keyset, joined }: PageSource, page: PageRange) {
  const place = sql`${keyset.place}::text AS row_place`
  const range = sql`FROM ${from} WHERE (${where}) AND ${keyset.after(page.cursor)} ${rangeOf(keyset, page)}`
  if (joined === undefined) return sql<Row & { row_place: string }>`SELECT ${columns}, ${place} ${range}`
  const { key, tables = sql`` } = joined
  const alias = sql.ref(joined.alias)
  const keys = (column: string) => sql`(SELECT ${alias}.${sql.ref(column)} AS page_key ${range}) page
    JOIN ${from} ON ${alias}.${sql.ref(column)} = page.page_key`
  const rows = key === undefined ? sql`(SELECT ${alias}.* ${range}) ${alias}` : keys(key)
  return sql<Row & { row_place: string }>`SELECT ${columns}, ${place} FROM ${rows} ${tables} ORDER BY ${keyset.order}`
}
