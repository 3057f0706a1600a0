/** Query parameters that all listings share: sort order, metadata and text filters (contract section 0). */
import { Keyset } from '#core/database/index.ts'
import type { SortColumn } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { requireStorable } from '#http/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { parseInstant } from '#core/time.ts'

/** Number of characters of a name that the sort order uses: an index entry is limited to 2,704 bytes. */
const ORDERED_NAME_CHARS = 256

export type OrderColumn = 'name' | 'created_at' | 'updated_at'

const createdOrder = (alias: string): readonly SortColumn[] => [
  { by: sql.ref(`${alias}.created_at`), type: 'time' },
  { by: sql.ref(`${alias}.id`), type: 'uuid' },
]

/** Returns the order by a column of another table; ties break as those of the other orders. */
export const orderedFirstBy = (first: SortColumn, alias: string, dir: 'asc' | 'desc'): Keyset =>
  new Keyset([first, ...createdOrder(alias)], dir)

/**
 * Returns the order of a listing on the table `alias`. Ties break by created_at, then id (decision 58). A record that was never
 * updated is sorted by its creation.
 */
export function orderedBy(alias: string, order: string, dir: 'asc' | 'desc'): Keyset {
  const column = (name: string) => sql.ref(`${alias}.${name}`)
  const created = createdOrder(alias)
  // The prefix of the name that the index contains.
  const name = sql`left(${column('name')}, ${sql.raw(String(ORDERED_NAME_CHARS))})`
  if (order === 'name') return new Keyset([{ by: name, type: 'text' }, ...created], dir)
  if (order === 'created_at') return new Keyset(created, dir)
  const updated = sql`coalesce(${column('updated_at')}, ${column('created_at')})`
  return new Keyset([{ by: updated, type: 'time' }, ...created], dir)
}

/**
 * Returns the two parts of a table that is sorted by name: names that the index contains completely, which allows
 * index-only scans, and longer names.
 */
export function partsByName(alias: string, dir: 'asc' | 'desc'): { isIn: Sql<boolean>; keyset: Keyset }[] {
  const keyset = orderedBy(alias, 'name', dir)
  const [, ...others] = keyset.columns
  const name = sql.ref(`${alias}.name`)
  // The number is a literal, like in the definitions of the indexes.
  const most = sql.raw(String(ORDERED_NAME_CHARS))
  return [
    {
      isIn: sql<boolean>`char_length(${name}) <= ${most}`,
      keyset: new Keyset([{ by: name, type: 'text' }, ...others], dir),
    },
    { isIn: sql<boolean>`char_length(${name}) > ${most}`, keyset },
  ]
}

/** Shorter texts contain no trigram, so every name is compared. */
const TRIGRAM_CHARS = 3

/** True when an index finds the names that contain the text. */
export const hasTrigrams = (text: string): boolean => text.length >= TRIGRAM_CHARS

/** Letters besides the capital that PostgreSQL treats as equal to an ASCII letter: dotted I and kelvin sign. */
const FURTHER_FORMS: Readonly<Record<string, readonly string[]>> = { i: ['\u0130'], k: ['\u212a'] }

/**
 * Matches `ILIKE %text%` with wildcards in the text escaped. Without an index, and for texts without letters, it uses
 * `LIKE`, which takes a third of the time.
 */
export function contains(reference: string, text: string): Sql<boolean> {
  const column = sql.ref(reference)
  const hasCase = text.toLowerCase() !== text.toUpperCase()
  const forms = !hasCase ? [text] : text.length < TRIGRAM_CHARS ? formsOf(text) : []
  if (forms.length === 0) return sql<boolean>`${column} ILIKE ${patternOf(text)}`
  return sql<boolean>`(${sql.join(
    forms.map((form) => sql`${column} LIKE ${patternOf(form)}`),
    sql` OR `,
  )})`
}

const patternOf = (text: string) => `%${text.replaceAll(/[\\%_]/g, (sign) => `\\${sign}`)}%`

/**
 * Returns the text in all combinations of upper and lower case. Empty for other texts than ASCII, which `ILIKE`
 * handles.
 */
function formsOf(text: string): string[] {
  if (!isAscii(text)) return []
  let forms = ['']
  for (const char of text) forms = forms.flatMap((form) => formsOfChar(char).map((next) => form + next))
  return forms
}

const isAscii = (text: string) => Array.from(text).every((char) => char <= '\u007f')

function formsOfChar(char: string): string[] {
  const small = char.toLowerCase()
  return [...new Set([small, char.toUpperCase(), ...(FURTHER_FORMS[small] ?? [])])]
}

/** Parses the `metadata` filter. Throws `malformed` unless it is a JSON object. */
export function parseMetadataFilter(text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = parseWithExactIntegers(text)
  } catch (error) {
    throw refuseMetadata(error)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw refuseMetadata(undefined)
  requireStorable(value, '/metadata', 0)
  return value as Record<string, unknown>
}

function refuseMetadata(cause: unknown): ServiceError {
  const message = 'must be a JSON object'
  return new ServiceError('malformed', `metadata ${message}`, { details: [{ path: 'metadata', message }], cause })
}

export function containsMetadata(reference: string, filter: Record<string, unknown>): Sql<boolean> {
  return sql<boolean>`${sql.ref(reference)} @> ${JSON.stringify(filter)}::jsonb`
}

/** Matches the entities of these ids, separated by commas. Texts that are not ids match nothing. */
export function hasIdOf(reference: string, text: string): Sql<boolean> {
  const ids = text.split(',').filter((one) => isId(one))
  return ids.length === 0 ? sql<boolean>`false` : sql<boolean>`${sql.ref(reference)} = ANY (${ids}::uuid[])`
}

export type CreatedQuery = { created_from?: string; created_to?: string }

/** Rows of the table `alias` that were created within the times, both included. Throws `malformed` for an invalid time. */
export function createdWithin(alias: string, query: CreatedQuery): Sql<boolean>[] {
  const column = sql.ref(`${alias}.created_at`)
  const conditions: Sql<boolean>[] = []
  const from = instantOf(query, 'created_from')
  if (from !== undefined) conditions.push(sql<boolean>`${column} >= ${from}::timestamptz`)
  const to = instantOf(query, 'created_to')
  if (to !== undefined) conditions.push(sql<boolean>`${column} <= ${to}::timestamptz`)
  return conditions
}

function instantOf(query: CreatedQuery, name: keyof CreatedQuery): string | undefined {
  const text = query[name]
  return text === undefined || text === '' ? undefined : parseInstant(text, name)
}

/**
 * Rows of the table `alias` with tags: `a,b` is any of them, `a+b` all of them, and `a+b,c` both of the first or the third. Empty names
 * are ignored.
 */
export function withTags(alias: string, text: string | undefined): Sql<boolean>[] {
  const groups = (text ?? '')
    .split(',')
    .map((group) => group.split('+').filter((tag) => tag !== ''))
    .filter((group) => group.length > 0)
  if (groups.length === 0) return []
  const column = sql.ref(`${alias}.tags`)
  return [anyOf(groups.map((group) => sql<boolean>`${column} @> ${group}::text[]`))]
}

/** Joins conditions with AND. True without conditions. */
export function allOf(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  return conditions.length === 0 ? sql<boolean>`true` : sql<boolean>`${sql.join([...conditions], sql` AND `)}`
}

/** Joins conditions with OR. False without conditions. */
export function anyOf(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  const [only, ...more] = conditions
  if (only === undefined) return sql<boolean>`false`
  // The condition of a single domain can use an index.
  if (more.length === 0) return only
  return sql<boolean>`(${sql.join(
    conditions.map((condition) => sql`(${condition})`),
    sql` OR `,
  )})`
}
