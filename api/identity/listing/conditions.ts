/** The parts of a listing's query that every resource reads alike: order, metadata and text filters (contract section 0). */
import { ServiceError } from '#core/errors/index.ts'
import { requireStorable } from '#core/http/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** Names are ordered by so many characters: an index entry has at most 2,704 bytes. */
const ORDERED_NAME_CHARS = 256

export type OrderColumn = 'name' | 'created_at' | 'updated_at'

/**
 * What a listing on the table `alias` is ordered by. Ties break by created_at, then id (decision 58); a record that was never
 * updated stands where it was created.
 */
export function orderedBy(alias: string, order: string): Sql<unknown>[] {
  const column = (name: string) => sql.ref(`${alias}.${name}`)
  const created = [column('created_at'), column('id')]
  // As much of the name as its index holds.
  if (order === 'name') return [sql`left(${column('name')}, ${sql.raw(String(ORDERED_NAME_CHARS))})`, ...created]
  if (order === 'created_at') return created
  return [sql`coalesce(${column('updated_at')}, ${column('created_at')})`, ...created]
}

/**
 * The two parts of a table that is ordered by name: names that are ordered by as a whole, whose index has all that a page is
 * found by, and longer ones.
 */
export function partsByName(alias: string): { isIn: Sql<boolean>; columns: Sql<unknown>[] }[] {
  const columns = orderedBy(alias, 'name')
  const name = sql.ref(`${alias}.name`)
  // The number stands in the statement, as it stands in the indexes.
  const most = sql.raw(String(ORDERED_NAME_CHARS))
  return [
    { isIn: sql<boolean>`char_length(${name}) <= ${most}`, columns: [name, ...columns.slice(1)] },
    { isIn: sql<boolean>`char_length(${name}) > ${most}`, columns },
  ]
}

/** ORDER BY of a listing on the table `alias`. */
export function orderOf(alias: string, order: string, dir: 'asc' | 'desc'): Sql<unknown> {
  return inOrder(orderedBy(alias, order), dir)
}

export function inOrder(columns: readonly Sql<unknown>[], dir: 'asc' | 'desc'): Sql<unknown> {
  const direction = dir === 'desc' ? sql`DESC` : sql`ASC`
  return sql.join(columns.map((column) => sql`${column} ${direction}`))
}

/** Shorter texts hold no trigram, so that no index helps: every name is looked at. */
const TRIGRAM_CHARS = 3

/** Whether an index finds the names that contain the text. */
export const hasTrigrams = (text: string): boolean => text.length >= TRIGRAM_CHARS

/** Whatever else than its capital PostgreSQL takes for the same letter of ASCII: the dotted I and the sign of the kelvin. */
const FURTHER_FORMS: Readonly<Record<string, readonly string[]>> = { i: ['\u0130'], k: ['\u212a'] }

/**
 * `ILIKE %text%` with the text's own wildcards taken literally. Where every name is looked at, and where the text has no
 * letters, by `LIKE`, which takes a third of the time.
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

/** The text in capitals, small letters and mixed; none for what is not ASCII, whose forms PostgreSQL knows better. */
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

/** Parses the `metadata` filter; throws `malformed` unless it is a JSON object. */
export function parseMetadataFilter(text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
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

/** All conditions joined by AND; true without any. */
export function allOf(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  return conditions.length === 0 ? sql<boolean>`true` : sql<boolean>`${sql.join([...conditions], sql` AND `)}`
}

/** Any of the conditions; false without any. */
export function anyOf(conditions: readonly Sql<boolean>[]): Sql<boolean> {
  const [only, ...more] = conditions
  if (only === undefined) return sql<boolean>`false`
  // One domain alone is a condition that an index can be walked by.
  if (more.length === 0) return only
  return sql<boolean>`(${sql.join(
    conditions.map((condition) => sql`(${condition})`),
    sql` OR `,
  )})`
}
