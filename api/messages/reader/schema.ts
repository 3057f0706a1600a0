/** Requests and responses of reads (contract section 8). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { documented } from '#http/index.ts'
import { Cursor, Next, cursorOf, pageQuery } from '#core/page.ts'

export const MAX_READ_LIMIT = 1000

export const COMPARATORS = ['eq', 'lt', 'le', 'gt', 'ge'] as const
export type Comparator = (typeof COMPARATORS)[number]

export const AGGREGATIONS = ['max', 'min', 'avg', 'sum', 'count'] as const
export type Aggregation = (typeof AGGREGATIONS)[number]

/**
 * The fields that a message can lack: `publisher` if a user or a task published it, `subtopic` if it was published to the channel itself.
 */
export const LACKABLE = ['publisher', 'subtopic'] as const
export type Lackable = (typeof LACKABLE)[number]

const WITHOUT_PATTERN = `^(${LACKABLE.join('|')})(,(${LACKABLE.join('|')}))*$`

/** An empty `publisher` or `subtopic` filters nothing, because older clients send it; this selects messages that have none. */
export const Without = Type.String({
  description:
    '`publisher`: only messages that a user or a task published; `subtopic`: only messages without a subtopic; `publisher,subtopic`: both. Not combined with the filter of the same name',
  ...documented({ pattern: WITHOUT_PATTERN }),
})

const PROTOCOLS = ['http', 'mqtt', 'coap', 'ws'] as const
const AGGREGATION_PATTERN = `^(${AGGREGATIONS.join('|')})(,(${AGGREGATIONS.join('|')}))*$`
/** A Go duration, or words. */
const INTERVAL_PATTERN = String.raw`^(([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+|[0-9]{1,9} ?(second|minute|hour|day|week|month|year)s?)$`

export const MessagesQuery = Type.Object({
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
  limit: Type.Integer({ minimum: 1, maximum: MAX_READ_LIMIT, default: 10 }),
  cursor: Type.Optional(
    cursorOf('The `next` of the page before, with the same other parameters; only in the order of time'),
  ),
  format: Type.String({
    default: 'messages',
    description: '`messages`: SenML records; `raw`: raw payloads; any other: JSON messages of that format name',
  }),
  subtopic: Type.Optional(Type.String({ description: 'Equality; `a/b` and `a.b` are the same' })),
  publisher: Type.Optional(Type.String({ description: 'Id of the client, or up to 100 ids separated by commas' })),
  without: Type.Optional(Without),
  protocol: Type.Optional(Type.String({ description: 'http, mqtt, coap or ws', ...documented({ enum: PROTOCOLS }) })),
  run: Type.Optional(
    Type.String({
      description:
        'Id of the run of a task that published the message; for eight days after it arrived, with `format=messages`',
    }),
  ),
  message: Type.Optional(
    Type.String({
      description: 'Id of the message, as `message_id` and `cause.message` of a run show it; not combined with `run`',
      ...documented({ pattern: '^[0-9]{1,19}/[0-9]{1,9}$' }),
    }),
  ),
  name: Type.Optional(
    Type.String({ description: 'Name of the record, base name included, or up to 100 names separated by commas' }),
  ),
  v: Type.Optional(Type.Number({ description: 'Compared with the numeric value' })),
  vb: Type.Optional(Type.Boolean({ description: 'Equals the boolean value' })),
  vs: Type.Optional(
    Type.String({
      description: 'String value; eq: equal, ge: contains, gt: contains and differs, le and lt: is contained in',
    }),
  ),
  vd: Type.Optional(Type.String({ description: 'Data value, base64url without padding' })),
  comparator: Type.Optional(Type.Enum([...COMPARATORS])),
  from: Type.Optional(Type.Number({ description: 'Seconds since 1970, inclusive; above 1e14: nanoseconds' })),
  to: Type.Optional(Type.Number({ description: 'Seconds since 1970, exclusive; above 1e14: nanoseconds' })),
  aggregation: Type.Optional(
    Type.String({
      description:
        'max, min, avg, sum or count per interval and series; needs from and to. Several, separated by commas, are in `values` of each message instead of `value`',
      ...documented({ pattern: AGGREGATION_PATTERN }),
    }),
  ),
  interval: Type.Optional(
    Type.String({
      description: 'Of the aggregation: `90s`, `1h30m`, `15 minutes`, `1 day`, `1 month`; default 1s',
      ...documented({ pattern: INTERVAL_PATTERN }),
    }),
  ),
  tz: Type.Optional(
    Type.String({
      description:
        'Time zone from whose midnight intervals count, and in which days, weeks and months begin; default UTC',
    }),
  ),
  order: Type.Optional(
    Type.String({
      description: 'time (default), name, unit, publisher, subtopic, protocol or value',
      ...documented({ enum: ['time', 'name', 'unit', 'publisher', 'subtopic', 'protocol', 'value'] }),
    }),
  ),
  dir: Type.Optional(Type.Enum(['asc', 'desc'])),
  only_total: Type.Optional(Type.Boolean({ description: 'Answer the total alone' })),
  links: Type.Optional(
    Type.Boolean({ description: 'Show `message_id`, and `run_id` and `task_id` of messages that a task published' }),
  ),
})
export type MessagesQuery = Static<typeof MessagesQuery>

/** The newest record of each series of a channel that matches the filters. */
export const LatestQuery = Type.Object({
  cursor: Type.Optional(Cursor),
  ...Type.Pick(MessagesQuery, ['offset', 'limit', 'subtopic', 'publisher', 'without', 'name', 'only_total']).properties,
  protocol: Type.Optional(
    Type.String({
      description: 'By which the newest record came: http, mqtt, coap or ws',
      ...documented({ enum: PROTOCOLS }),
    }),
  ),
})
export type LatestQuery = Static<typeof LatestQuery>

/** Series of one answer: those of a chart. */
const MAX_SERIES = 100
const DEFAULT_SERIES = 20
/** Intervals of the range, and those of all series of the answer together. */
export const MAX_INTERVALS = 1_000
export const MAX_SERIES_INTERVALS = 50_000

/** The aggregates of several series in one answer. */
export const SeriesQuery = Type.Object({
  ...pageQuery({ limit: DEFAULT_SERIES, maxLimit: MAX_SERIES }),
  ...Type.Pick(MessagesQuery, ['subtopic', 'publisher', 'without', 'name', 'protocol', 'interval', 'tz']).properties,
  from: Type.Number({ description: 'Seconds since 1970, inclusive; above 1e14: nanoseconds' }),
  to: Type.Number({ description: 'Seconds since 1970, exclusive; above 1e14: nanoseconds' }),
  aggregation: Type.String({
    default: 'avg,min,max,count',
    description: 'One or several of max, min, avg, sum and count, separated by commas',
    ...documented({ pattern: AGGREGATION_PATTERN }),
  }),
})
export type SeriesQuery = Static<typeof SeriesQuery>

const Column = Type.Optional(Type.Array(Type.Union([Type.Number(), Type.Null()])))

/** The page is in columns: a name is sent once for each series, a time once for all of them. */
export const SeriesPage = Type.Object(
  {
    total: Type.Integer({ description: 'Series that match and have numeric values in the range' }),
    offset: Type.Optional(Type.Integer({ description: 'Absent on a page of a cursor' })),
    limit: Type.Integer(),
    aggregation: Type.String(),
    interval: Type.String(),
    next: Next,
    times: Type.Array(Type.Number(), {
      description: 'Beginnings of the intervals in which at least one of the series has a value, in seconds since 1970',
    }),
    series: Type.Array(
      Type.Object({
        publisher: Type.String({ description: 'Id of the client; empty for a user' }),
        subtopic: Type.Optional(Type.String()),
        name: Type.String(),
        unit: Type.Optional(Type.String()),
        records: Type.Integer({ description: 'Numeric values in the range' }),
        values: Type.Object(Object.fromEntries(AGGREGATIONS.map((name) => [name, Column])), {
          description: 'Results by their name, one for each of `times`; null without a value in the interval',
        }),
      }),
    ),
  },
  { $id: 'SeriesPage' },
)
export type SeriesPage = Static<typeof SeriesPage>

/** One stored message; which fields it has depends on its format. */
export const StoredMessage = Type.Object({
  channel: Type.String(),
  subtopic: Type.Optional(Type.String()),
  publisher: Type.String({ description: 'Id of the client; empty for a user' }),
  protocol: Type.String(),
  name: Type.Optional(Type.String()),
  unit: Type.Optional(Type.String()),
  time: Type.Optional(Type.Number({ description: 'Seconds since 1970' })),
  update_time: Type.Optional(Type.Number()),
  value: Type.Optional(Type.Number()),
  values: Type.Optional(
    Type.Object(Object.fromEntries(AGGREGATIONS.map((name) => [name, Type.Optional(Type.Number())])), {
      description: 'Results by their name, when several aggregations are requested',
    }),
  ),
  string_value: Type.Optional(Type.String()),
  bool_value: Type.Optional(Type.Boolean()),
  data_value: Type.Optional(Type.String({ description: 'base64url without padding' })),
  sum: Type.Optional(Type.Number()),
  message_id: Type.Optional(
    Type.String({ description: 'With `links=true`: `GET /runs?message=` finds the runs that the message started' }),
  ),
  run_id: Type.Optional(
    Type.String({
      description: 'With `links=true`: the run of a task that published it, for eight days after it arrived',
    }),
  ),
  task_id: Type.Optional(Type.String({ description: 'With `links=true`: the task of that run' })),
  created: Type.Optional(Type.Number({ description: 'JSON and raw: time of reception, seconds since 1970' })),
  content_type: Type.Optional(Type.String({ description: 'Raw' })),
  payload: Type.Optional(Type.Unknown({ description: 'JSON: the object as it was sent; raw: the bytes in base64' })),
})
export type StoredMessage = Static<typeof StoredMessage>

export const MessagesPage = Type.Object({
  offset: Type.Integer(),
  limit: Type.Integer(),
  format: Type.String(),
  total: Type.Integer({ description: 'Messages that match' }),
  total_exact: Type.Optional(
    Type.Boolean({
      description:
        '`false`: the total takes too long to count. `total` is then a lower bound, above `offset` plus the messages of the page if more follow',
    }),
  ),
  messages: Type.Array(StoredMessage),
  next: Next,
  subtopic: Type.Optional(Type.String()),
  publisher: Type.Optional(Type.String()),
  without: Type.Optional(Type.String()),
  protocol: Type.Optional(Type.String()),
  run: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  v: Type.Optional(Type.Number()),
  vb: Type.Optional(Type.Boolean()),
  vs: Type.Optional(Type.String()),
  vd: Type.Optional(Type.String()),
  comparator: Type.Optional(Type.String()),
  from: Type.Optional(Type.Number()),
  to: Type.Optional(Type.Number()),
  aggregation: Type.Optional(Type.String()),
  interval: Type.Optional(Type.String()),
  tz: Type.Optional(Type.String()),
  order: Type.Optional(Type.String()),
  dir: Type.Optional(Type.String()),
})
export type MessagesPage = Static<typeof MessagesPage>

/** The page as it is sent: with `only_total` it has the total and no messages. */
export const MessagesAnswer = Type.Object(
  {
    ...Type.Partial(MessagesPage).properties,
    total: Type.Integer(),
    messages: Type.Array(StoredMessage),
  },
  documented({}, 'MessagesPage'),
)
