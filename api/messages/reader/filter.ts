/** The validated query of a reader, with the values that are stored. */
import { refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { RECORDS_FORMAT } from '../ingest/content.ts'
import { PROTOCOLS } from '../model/message.ts'
import { parseBase64Url } from '../senml/index.ts'
import { END_TIME_SECONDS, MIN_TIME_SECONDS } from '../senml/time.ts'
import type { Interval } from './interval.ts'
import { parseInterval } from './interval.ts'
import type { Aggregation, Comparator, Lackable, MessagesQuery } from './schema.ts'
import { AGGREGATIONS, LACKABLE } from './schema.ts'

export type Filter = {
  fromSeconds: number | undefined
  toSeconds: number | undefined
  /** Canonical: elements joined by `.`; empty: messages without a subtopic. */
  subtopic: string | undefined
  /** Records of any of them; an empty id: of users and tasks. */
  publisherIds: readonly string[] | undefined
  names: readonly string[] | undefined
  /** The stored number; -1 for a protocol that does not exist. */
  protocol: number | undefined
  /** The run of a task that published the message. */
  runId: string | undefined
  message: MessagePlace | undefined
  value: number | undefined
  boolValue: boolean | undefined
  stringValue: string | undefined
  dataValue: Uint8Array | undefined
  comparator: Comparator
}

/** A message by its batch and its number in it. */
export type MessagePlace = { batch: number; message: number }

/** `by` has at least one name, and none twice. */
export type AggregationRequest = { by: readonly Aggregation[]; interval: Interval; timeZone: string }

/** The number of names, and of publishers, of one query. */
const MAX_LISTED = 100

/** The default interval of an aggregation. */
export const DEFAULT_INTERVAL = '1s'

/** A larger time is in nanoseconds, which older clients send (contract decision 19). */
const NANOSECONDS_ABOVE = 1e14

/** An empty text filters nothing. Throws `malformed`. */
export function parseFilter(query: MessagesQuery): Filter {
  const { subtopic, publisher, name, protocol, vs, vd } = query
  const without = parseWithout(query)
  const dataValue = isGiven(vd) ? parseBase64Url(vd) : undefined
  if (isGiven(vd) && dataValue === undefined) throw refusedField('vd', 'must be base64url without padding')
  return {
    fromSeconds: toSeconds(query.from),
    toSeconds: toSeconds(query.to),
    subtopic: without.has('subtopic') ? '' : isGiven(subtopic) ? canonicalSubtopic(subtopic) : undefined,
    publisherIds: without.has('publisher') ? [''] : isGiven(publisher) ? parseList('publisher', publisher) : undefined,
    names: isGiven(name) ? parseList('name', name) : undefined,
    protocol: isGiven(protocol) ? PROTOCOLS.findIndex((known) => known === protocol) : undefined,
    runId: isGiven(query.run) ? parseRun(query.run, query.format) : undefined,
    message: isGiven(query.message) ? parseMessage(query.message, query.run) : undefined,
    value: query.v,
    boolValue: query.vb,
    stringValue: isGiven(vs) ? vs : undefined,
    dataValue,
    comparator: query.comparator ?? 'eq',
  }
}

function isGiven(text: string | undefined): text is string {
  return text !== undefined && text !== ''
}

/** Filters by name of what messages may lack. */
type WithoutQuery = { readonly without?: string | undefined } & { readonly [Filter in Lackable]?: string | undefined }

/**
 * Reads the names of the fields that the messages must lack. Throws `malformed` for other names, and together with a filter of the same
 * name.
 */
export function parseWithout(query: WithoutQuery): ReadonlySet<Lackable> {
  const { without } = query
  if (!isGiven(without)) return NOTHING
  const names = without.split(',', LACKABLE.length + 1).map((text) => {
    const name = LACKABLE.find((known) => known === text)
    if (name === undefined)
      throw refusedField('without', `must be ${LACKABLE.join(' or ')}, or both separated by a comma`)
    if (isGiven(query[name])) throw refusedField('without', `must not contain ${name} together with the filter ${name}`)
    return name
  })
  return new Set(names)
}

const NOTHING: ReadonlySet<Lackable> = new Set()

/** Tasks publish SenML alone. */
function parseRun(run: string, format: string): string {
  if (!isId(run)) throw refusedField('run', 'must be the id of a run')
  if (format !== RECORDS_FORMAT) throw refusedField('run', `requires the format ${RECORDS_FORMAT}`)
  return run
}

/** The form in which `message_id` shows a message. */
const MESSAGE_ID = /^(\d{1,19})\/(\d{1,9})$/

function parseMessage(id: string, run: string | undefined): MessagePlace {
  const [, batch, message] = (MESSAGE_ID.exec(id) ?? []).map(Number)
  if (batch === undefined || message === undefined || !Number.isSafeInteger(batch))
    throw refusedField('message', 'must be the id of a message, such as 4711/0')
  if (isGiven(run)) throw refusedField('message', 'must not be combined with run')
  return { batch, message }
}

/** A comma is neither in names of records (RFC 8428 section 4.5.1) nor in ids. Throws `malformed`. */
function parseList(field: 'name' | 'publisher', text: string): readonly string[] {
  const listed = text.split(',')
  if (listed.length > MAX_LISTED) throw refusedField(field, `must list at most ${MAX_LISTED} values`)
  return listed
}

/** The aggregations of the query, if it asks for any. Throws `malformed`. */
export function parseAggregation(query: MessagesQuery): AggregationRequest | undefined {
  if (query.aggregation === undefined) return undefined
  const by = query.aggregation.split(',', AGGREGATIONS.length + 1).map(parseOneAggregation)
  if (new Set(by).size < by.length) throw refusedField('aggregation', 'must not contain a name twice')
  for (const bound of ['from', 'to'] as const) {
    if ((query[bound] ?? 0) === 0) throw refusedField(bound, 'must be given with an aggregation, and not be 0')
  }
  const timeZone = query.tz ?? 'UTC'
  if (!isTimeZone(timeZone)) throw refusedField('tz', 'must be a time zone such as Europe/Belgrade')
  return { by, interval: parseInterval(query.interval ?? DEFAULT_INTERVAL), timeZone }
}

function parseOneAggregation(text: string): Aggregation {
  const by = AGGREGATIONS.find((name) => name === text.toLowerCase())
  if (by !== undefined) return by
  throw refusedField('aggregation', `must be one or several of ${AGGREGATIONS.join(', ')}, separated by commas`)
}

/** Clamped to what can be stored, so that every number is a time that PostgreSQL can compare with. */
function toSeconds(time: number | undefined): number | undefined {
  if (time === undefined) return undefined
  const seconds = Math.abs(time) > NANOSECONDS_ABOVE ? time / 1e9 : time
  return Math.min(Math.max(seconds, MIN_TIME_SECONDS), END_TIME_SECONDS)
}

/** The stored form of a subtopic. An invalid subtopic matches nothing. */
function canonicalSubtopic(subtopic: string): string {
  return subtopic
    .split(/[/.]/)
    .filter((element) => element !== '')
    .join('.')
}

function isTimeZone(name: string): boolean {
  // Offsets such as +02:00 mean the opposite to PostgreSQL (POSIX), so names only.
  if (!/^[A-Za-z][A-Za-z0-9_+/-]*$/.test(name)) return false
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== ''
  } catch {
    return false
  }
}
