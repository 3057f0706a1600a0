/** The query of a reader, checked and in the terms of the store. */
import { refusedField } from '#core/errors/index.ts'
import { PROTOCOLS } from '../model/message.ts'
import { parseBase64Url } from '../senml/index.ts'
import { END_TIME_SECONDS, MIN_TIME_SECONDS } from '../senml/time.ts'
import type { Interval } from './interval.ts'
import { parseInterval } from './interval.ts'
import type { Aggregation, Comparator, MessagesQuery } from './schema.ts'
import { AGGREGATIONS } from './schema.ts'

export type Filter = {
  fromSeconds: number | undefined
  toSeconds: number | undefined
  /** Canonical: elements joined by `.`. */
  subtopic: string | undefined
  publisherId: string | undefined
  name: string | undefined
  /** The stored number; -1 for a protocol that does not exist. */
  protocol: number | undefined
  value: number | undefined
  boolValue: boolean | undefined
  stringValue: string | undefined
  dataValue: Uint8Array | undefined
  comparator: Comparator
}

export type AggregationRequest = { by: Aggregation; interval: Interval; timeZone: string }

/** Above this a time is in nanoseconds, as older clients send it (contract decision 19). */
const NANOSECONDS_ABOVE = 1e14

/** An empty text filters nothing. Throws `malformed`. */
export function parseFilter(query: MessagesQuery): Filter {
  const { subtopic, publisher, name, protocol, vs, vd } = query
  const dataValue = isGiven(vd) ? parseBase64Url(vd) : undefined
  if (isGiven(vd) && dataValue === undefined) throw refusedField('vd', 'must be base64url without padding')
  return {
    fromSeconds: toSeconds(query.from),
    toSeconds: toSeconds(query.to),
    subtopic: isGiven(subtopic) ? canonicalSubtopic(subtopic) : undefined,
    publisherId: isGiven(publisher) ? publisher : undefined,
    name: isGiven(name) ? name : undefined,
    protocol: isGiven(protocol) ? PROTOCOLS.findIndex((known) => known === protocol) : undefined,
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

/** The aggregation of the query, if it asks for one. Throws `malformed`. */
export function parseAggregation(query: MessagesQuery): AggregationRequest | undefined {
  if (query.aggregation === undefined) return undefined
  const by = AGGREGATIONS.find((name) => name === query.aggregation?.toLowerCase())
  if (by === undefined) throw refusedField('aggregation', `must be one of ${AGGREGATIONS.join(', ')}`)
  for (const bound of ['from', 'to'] as const) {
    if ((query[bound] ?? 0) === 0) throw refusedField(bound, 'must be given with an aggregation, and not be 0')
  }
  const timeZone = query.tz ?? 'UTC'
  if (!isTimeZone(timeZone)) throw refusedField('tz', 'must be a time zone such as Europe/Belgrade')
  return { by, interval: parseInterval(query.interval ?? '1s'), timeZone }
}

/** Clamped to what can be stored, so that every number is a time that PostgreSQL can compare with. */
function toSeconds(time: number | undefined): number | undefined {
  if (time === undefined) return undefined
  const seconds = Math.abs(time) > NANOSECONDS_ABOVE ? time / 1e9 : time
  return Math.min(Math.max(seconds, MIN_TIME_SECONDS), END_TIME_SECONDS)
}

/** As a publish is stored; a subtopic that nothing can be published under simply matches nothing. */
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
