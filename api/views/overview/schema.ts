/** API schemas of the overviews of a domain and of the platform. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { documented } from '#http/index.ts'
import { Id, JournalItem, Timestamp } from '#api/identity/index.ts'

const Window = Type.Enum(['1h', '6h', '24h'])

export const OverviewQuery = Type.Object({
  window: Type.Enum(['1h', '6h', '24h'], {
    default: '1h',
    description: 'Length of the series, and age of the runs that are counted',
  }),
})
export type OverviewQuery = Static<typeof OverviewQuery>

const Count = Type.Integer({ minimum: 0 })
const Clients = Type.Object({ total: Count, online: Count })

const Samples = Type.Array(
  Type.Object({
    time: Timestamp,
    count: Type.Union([Count, Type.Null()], { description: '`null`: nothing was sampled, the platform did not run' }),
  }),
  {
    description:
      'How many were online, by steps of five minutes, or fifteen in the window of 24 hours, oldest first. A sample is taken in each five minutes; a step has the lowest of its samples, and the last step the present number',
  },
)

const Messages = Type.Object(
  {
    step_seconds: Count,
    series: Type.Array(
      Type.Object({
        time: Timestamp,
        seconds: Type.Number({ description: 'Length of the step; of the last one, what has passed of it' }),
        messages: Count,
        records: Count,
        messages_per_second: Type.Number(),
        records_per_second: Type.Number(),
      }),
      {
        description:
          'Arrivals by step, oldest first, at most 96; counted within seconds. Deleted messages stay counted',
      },
    ),
  },
  documented({}, 'MessageCounts'),
)

const Tasks = Type.Object({
  total: Count,
  scheduled: Count,
  running: Count,
  failed: Type.Integer({ minimum: 0, description: 'Tasks whose last run failed' }),
})
const Runs = Type.Object(
  {
    since: Timestamp,
    started: Count,
    open: Count,
    completed: Count,
    failed: Count,
    stopped: Count,
    step_seconds: Count,
    series: Type.Array(Type.Object({ time: Timestamp, started: Count, failed: Count }), {
      description:
        'The runs by the step in which they were started, and how many of these failed; oldest first, at most 96. Steps before `since` are absent',
    }),
  },
  {
    description: 'Runs that were started since `since`, by their present state; the newest 20,000 at most',
    ...documented({}, 'RunCounts'),
  },
)
const Workers = Type.Object({ alive: Count, draining: Count, dead: Count, slots: Count, used_slots: Count })
const LETTER_KINDS = ['task', 'consumer', 'subscription', 'rule'] as const
export type LetterKind = (typeof LETTER_KINDS)[number]
/** The limits apply to each kind. Further letters of a source are not counted. */
export const LETTER_BOUNDS = { sources: 50, letters: 1_000 } as const
/** Sources that the overview names. */
export const MAX_LETTER_SOURCES = 10

const NotExact = Type.Optional(
  Type.Boolean({
    description: '`false`: the counting ended at its limit, so there may be more. Absent: all are counted',
  }),
)

const DeadLetters = Type.Object(
  {
    total: Type.Integer({ minimum: 0, description: 'Of all sources, those that are not in the list too' }),
    total_exact: NotExact,
    sources: Type.Array(
      Type.Object({
        kind: Type.Enum([...LETTER_KINDS]),
        id: Id,
        name: Type.String({ description: 'Name of the task, named consumer or rule, contact of the subscription' }),
        count: Type.Integer({
          minimum: 1,
          maximum: LETTER_BOUNDS.letters,
          description: `\`${LETTER_BOUNDS.letters}\` if there are more`,
        }),
        count_exact: NotExact,
      }),
      { description: `Those with the most dead letters first, at most ${MAX_LETTER_SOURCES}` },
    ),
  },
  {
    description: `Messages that were given up, and are kept until they are retried or discarded. Those of tasks require \`task_read\`, those of named consumers \`consumer_read\`, those of rules \`rule_update\`. Of subscriptions to channels of the domain, the caller's own are counted; with a personal access token, none. At most ${LETTER_BOUNDS.letters.toLocaleString('en')} letters of each source are counted, and the newest ${LETTER_BOUNDS.sources} sources of each kind that have some`,
  },
)
export type DeadLetters = Static<typeof DeadLetters>

const WORKERS_OF_DOMAIN = 'Workers that can run tasks of the domain: its own and those of the platform'

export const DomainOverview = Type.Object(
  {
    domain_id: Id,
    time: Timestamp,
    window: Window,
    clients: Type.Object({ ...Clients.properties, series: Type.Optional(Samples) }),
    channels: Type.Object({ total: Count }),
    groups: Type.Object({ total: Count }),
    messages: Type.Optional(Messages),
    tasks: Type.Optional(Tasks),
    runs: Type.Optional(Runs),
    workers: Type.Optional(Type.Object({ ...Workers.properties, series: Samples }, { description: WORKERS_OF_DOMAIN })),
    dead_letters: DeadLetters,
    changes: Type.Optional(
      Type.Array(JournalItem, {
        description: 'The last ten changes in the domain, without sessions of devices, newest first',
      }),
    ),
  },
  {
    $id: 'DomainOverview',
    description:
      'State of a domain. Entities are those that the caller may read. `messages` and `changes` require `read` on the domain, `tasks` and `runs` require `task_read`, `workers` requires `worker_read`, the series of clients `client_read` on the domain; otherwise they are absent',
  },
)
export type DomainOverview = Static<typeof DomainOverview>

export const PlatformOverview = Type.Object(
  {
    time: Timestamp,
    window: Window,
    users: Type.Object({ total: Count }),
    domains: Type.Object({ total: Count }),
    clients: Clients,
    channels: Type.Object({ total: Count }),
    groups: Type.Object({ total: Count }),
    messages: Messages,
    tasks: Tasks,
    runs: Runs,
    workers: Workers,
  },
  { $id: 'PlatformOverview', description: 'State of the platform, over all domains' },
)
export type PlatformOverview = Static<typeof PlatformOverview>
