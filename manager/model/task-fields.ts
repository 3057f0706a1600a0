/**
 * The options of a task, one row each: the schemas of requests and answers, the column, the limits, the default, and its
 * use in runs. Schemas, statements and specs are generated from this table (docs/guides/add-a-task-option.md).
 */
import { Type } from 'typebox'
import type { Static, TNull, TObject, TOptional, TSchema, TUnion } from 'typebox'
import { parseSize } from '#core/bytes/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { recordOf, documented } from '#http/index.ts'
import { isId } from '#core/ids.ts'
import { DURATION_PATTERN, formatDurationMs, parseDurationMs } from '#core/time.ts'
import type { Json } from '#guests/wasm/index.ts'
import { COMPARATORS, EXCESS, MAX_BATCH, ORDERINGS } from '#queues/index.ts'
import type { Answers } from '#queues/index.ts'
import { HTTP_METHODS } from '#guests/wasm/index.ts'
import { readHttpGrant, type HttpGrant } from './http-grant.ts'
import { GRANT_KINDS, answersOf, type Grant, type Target, type Trigger } from './channel-fields.ts'
import {
  DEFAULT_BACKOFF_MS,
  DEFAULT_HTTP_BYTES,
  DEFAULT_HTTP_REQUESTS,
  MAX_HTTP_BYTES,
  MAX_HTTP_ORIGINS,
  MAX_HTTP_ORIGIN_CHARS,
  MAX_HTTP_REQUESTS,
  MAX_BACKOFF_MS,
  DEFAULT_MEMORY_LIMIT_BYTES,
  DEFAULT_OUTPUT_BYTES,
  DEFAULT_QUEUE_TIMEOUT_MS,
  DEFAULT_TIMEOUT_MS,
  MAX_MEMORY_LIMIT_BYTES,
  MAX_OUTPUT_BYTES,
  MAX_QUEUE_TIMEOUT_MS,
  MAX_TIMEOUT_MS,
  MIN_OUTPUT_BYTES,
} from './limits.ts'

const MAX_NAME_CHARS = 1024
const MAX_REFERENCE_CHARS = 2048
const MAX_INPUTS = 1_000
const MAX_ARGS = 1_000
const MAX_TEXT_CHARS = 32_768
const MAX_ENTRIES = 256
const MAX_LABELS = 64
const MAX_LABEL_CHARS = 256
const MAX_SUBTOPIC_CHARS = 1024
const MAX_GRANTS = 32
const MAX_TAG_CHARS = 1024
const MAX_ATTEMPTS = 100
const DEFAULT_PRIORITY = 50

/** A JSON number, or a decimal string for a 64-bit integer; for components any JSON value. */
export type RunInput = Json
export type OnLost = 'requeue' | 'fail' | 'wait'

export type Field<Value, Given extends TSchema, Shown extends TSchema> = {
  /** Name on the wire, if it differs from the column. */
  name?: string
  /** The wire object that contains it; a request with that object sets all of its members. */
  within?: 'retry'
  /** The schema of create and update; null sets the default. */
  given: Given
  /** The schema of answers. */
  shown: Shown
  default: Value
  /** Converts the given value; default: unchanged. Throws `malformed` with the field. */
  read?: (given: Static<Given>) => Value
  /** Converts the stored value for answers; default: unchanged; undefined: omitted. */
  show?: (value: Value, task: { schedule: string | null }) => Static<Shown> | undefined
  /** Some tasks do not show it. */
  isOptional?: true
  /** The column holds JSON. */
  json?: 'json' | 'jsonb'
  /**
   * Use in runs. `spec`: frozen in each run. `changed`: the same, if it is not the default. `start`: affects where and
   * how a run starts.
   */
  run?: 'spec' | 'changed' | 'start'
}

type Place = 'name' | 'within' | 'run' | 'isOptional'

/** Keeps the types of a row and its use in runs. */
function field<
  Value,
  Given extends TSchema,
  Shown extends TSchema,
  const Row extends { name?: string; within?: 'retry'; run?: 'spec' | 'changed' | 'start'; isOptional?: true },
>(row: Row & Field<Value, Given, Shown>): Field<Value, Given, Shown> & Pick<Row, keyof Row & Place> {
  return row
}

const none = <Value>(value: Value | null): Value | undefined => value ?? undefined
const emptyAsNone = (text: string): string | null => (text === '' ? null : text)

export const Input = Type.Unsafe<Json>({
  description:
    'A number, or decimal text for a 64-bit integer; for a component any JSON value; in a workflow also {"from": "<task>", "result": 0}, a result of a task that it depends on',
})
export const Inputs = Type.Array(Input, { maxItems: MAX_INPUTS })
export const CliArgs = Type.Array(Type.String({ maxLength: MAX_TEXT_CHARS }), { maxItems: MAX_ARGS })
export const Env = recordOf(Type.String({ maxLength: MAX_TEXT_CHARS }), {
  propertyNames: Type.String({ pattern: '^[^=]+$', maxLength: MAX_LABEL_CHARS }),
  maxProperties: MAX_ENTRIES,
})
export const Secrets = recordOf(Type.String({ maxLength: MAX_TEXT_CHARS }), {
  propertyNames: Type.String({ pattern: '^[^=]+$', maxLength: MAX_LABEL_CHARS }),
  maxProperties: MAX_LABELS,
  description: 'Environment variables of the guest, stored encrypted and shown as [redacted]',
})
const Labels = recordOf(Type.String({ maxLength: MAX_LABEL_CHARS }), {
  propertyNames: Type.String({ minLength: 1, maxLength: MAX_LABEL_CHARS }),
  maxProperties: MAX_LABELS,
  description: 'Labels that the worker must have',
})
const Duration = Type.String({
  maxLength: 64,
  description: 'Go duration such as 90s or 1h30m',
  ...documented({ pattern: DURATION_PATTERN }),
})
const Size = Type.Union([Type.Integer({ minimum: 1 }), Type.String({ maxLength: 32 })], {
  description: 'Bytes, or a size such as 64MiB',
})
const OnLostName = Type.Enum(['requeue', 'fail', 'wait'])
const Metadata = recordOf(Type.Unknown())
const CatchUp = Type.Enum(['none', 'once'], {
  description: 'Runs for ticks that were missed while no manager ran: none, or one',
})
const ChannelId = Type.String({
  maxLength: 36,
  description: 'Channel of the domain of the task',
  ...documented({ format: 'uuid' }),
})
const Subtopic = Type.String({
  maxLength: MAX_SUBTOPIC_CHARS,
  description: 'A subtopic, including those below it; empty: the whole channel',
})
const TriggerField = Type.Object(
  {
    channel_id: ChannelId,
    subtopic: Type.Optional(Subtopic),
    name: Type.Optional(Type.String({ maxLength: MAX_NAME_CHARS, description: 'Only records with this name' })),
    when: Type.Optional(
      Type.Object(
        { comparator: Type.Enum([...COMPARATORS]), value: Type.Number() },
        { description: 'Condition for numeric values' },
      ),
    ),
    debounce: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Time without further messages after which the last message starts a run',
        ...documented({ pattern: DURATION_PATTERN }),
      }),
    ),
    rate_limit: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Largest number of runs, such as 10/1m',
        ...documented({ pattern: '^[0-9]+/[0-9]+(ms|s|m|h)$' }),
      }),
    ),
    excess: Type.Optional(
      Type.Enum([...EXCESS], {
        description: 'What becomes of messages beyond rate_limit: drop (when absent), or wait for the next window',
      }),
    ),
    batch: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_BATCH,
        description: 'Largest number of messages that one run gets as a list; absent: one, which is not a list',
      }),
    ),
    order: Type.Optional(
      Type.Enum([...ORDERINGS], {
        description:
          'Which messages run one after another: those of one client, all of the channel, or none (when absent)',
      }),
    ),
  },
  { description: 'A message on the channel starts a run with its records', ...documented({}, 'Trigger') },
)
const TargetField = Type.Object(
  {
    channel_id: ChannelId,
    subtopic: Type.Optional(Type.String({ maxLength: MAX_SUBTOPIC_CHARS })),
  },
  documented({}, 'ResultChannel'),
)
const GrantField = Type.Object(
  {
    kind: Type.Enum([...GRANT_KINDS]),
    channel_id: ChannelId,
    subtopic: Type.Optional(Subtopic),
    name: Type.Optional(Type.String({ maxLength: MAX_LABEL_CHARS, description: 'Name by which the guest calls it' })),
  },
  documented({}, 'Grant'),
)
/** The names of commands, and the ids and tags of clients, as in the room of devices. */
const AnswersField = Type.Object(
  {
    command: Type.String({
      minLength: 1,
      maxLength: 64,
      pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$',
      description: 'Name of the commands',
    }),
    client_id: Type.Optional(
      Type.String({ maxLength: 36, description: 'Only those to this client', ...documented({ format: 'uuid' }) }),
    ),
    group: Type.Optional(
      Type.String({
        maxLength: 36,
        description: 'Only those to clients directly in this group',
        ...documented({ format: 'uuid' }),
      }),
    ),
    tag: Type.Optional(
      Type.String({ minLength: 1, maxLength: MAX_TAG_CHARS, description: 'Only those to clients with this tag' }),
    ),
  },
  {
    description:
      'The commands to clients of the domain that the task answers instead of the clients: a run gets the command, and its result is that of the command',
    ...documented({}, 'AnsweredCommands'),
  },
)

const HttpAllowFields = {
  origin: Type.String({
    maxLength: MAX_HTTP_ORIGIN_CHARS,
    description: 'Scheme, host and port, such as https://api.example.com or https://api.example.com:8443',
  }),
}
const HttpMethods = Type.Array(Type.Enum([...HTTP_METHODS]), {
  minItems: 1,
  maxItems: HTTP_METHODS.length,
  description: 'Default: GET and HEAD',
})
const HTTP_DESCRIPTION =
  'The HTTP requests that a run can send: to these origins with these methods, to public addresses, without following redirects'
const HttpField = Type.Object(
  {
    allow: Type.Array(
      Type.Object({ ...HttpAllowFields, methods: Type.Optional(HttpMethods) }, documented({}, 'AllowedOrigin')),
      { minItems: 1, maxItems: MAX_HTTP_ORIGINS },
    ),
    max_requests: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_HTTP_REQUESTS,
        description: `Number of requests of a run. Default: ${DEFAULT_HTTP_REQUESTS}`,
      }),
    ),
    max_bytes: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_HTTP_BYTES,
        description: `Bytes of all requests and responses of a run together. Default: ${DEFAULT_HTTP_BYTES}`,
      }),
    ),
    timeout: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Time that all requests of a run can take together, at most 10m. Default: 30s',
        ...documented({ pattern: DURATION_PATTERN }),
      }),
    ),
  },
  { description: HTTP_DESCRIPTION, ...documented({}, 'HttpGrant') },
)
const ShownHttp = Type.Object(
  {
    allow: Type.Array(Type.Object({ ...HttpAllowFields, methods: HttpMethods }, documented({}, 'ShownAllowedOrigin'))),
    max_requests: Type.Integer({ description: 'Number of requests of a run' }),
    max_bytes: Type.Integer({ description: 'Bytes of all requests and responses of a run together' }),
    timeout: Type.String({ description: 'Time that all requests of a run can take together' }),
  },
  { description: HTTP_DESCRIPTION, ...documented({}, 'ShownHttpGrant') },
)

/** The fields of a task, by column of `tasks`. */
export const TASK_FIELDS = {
  name: field({
    given: Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS }),
    shown: Type.String(),
    default: '' as string,
    run: 'start',
  }),
  inputs: field({
    given: Inputs,
    shown: Type.Array(Input),
    default: [] as RunInput[],
    json: 'json',
    run: 'spec',
  }),
  cli_args: field({
    given: CliArgs,
    shown: Type.Union([Type.Array(Type.String()), Type.Null()]),
    default: null as string[] | null,
    json: 'json',
    run: 'changed',
  }),
  image_url: field({
    given: Type.String({ maxLength: MAX_REFERENCE_CHARS, description: 'OCI reference of the module' }),
    shown: Type.String(),
    default: null as string | null,
    read: emptyAsNone,
    show: none,
    isOptional: true,
    run: 'start',
  }),
  function: field({
    given: Type.String({
      maxLength: MAX_NAME_CHARS,
      description: 'Exported function; default: the name of the task',
    }),
    shown: Type.String(),
    default: null as string | null,
    read: emptyAsNone,
    show: none,
    isOptional: true,
    run: 'spec',
  }),
  env: field({
    given: Env,
    shown: recordOf(Type.String()),
    default: {} as Record<string, string>,
    json: 'json',
    run: 'spec',
  }),
  labels: field({
    given: Labels,
    shown: recordOf(Type.String()),
    default: {} as Record<string, string>,
    json: 'jsonb',
    run: 'start',
  }),
  worker_id: field({
    given: Type.String({ maxLength: 36, description: 'The only worker that can run the task' }),
    shown: Type.String(),
    default: null as string | null,
    read: readWorkerId,
    show: none,
    isOptional: true,
    run: 'start',
  }),
  priority: field({
    given: Type.Integer({ minimum: 0, maximum: 100 }),
    shown: Type.Integer(),
    default: DEFAULT_PRIORITY,
    run: 'start',
  }),
  timeout_ms: field({
    name: 'timeout',
    given: Duration,
    shown: Type.String(),
    default: DEFAULT_TIMEOUT_MS,
    read: (text) => readDuration(text, '/timeout', MAX_TIMEOUT_MS),
    show: formatDurationMs,
    run: 'spec',
  }),
  queue_timeout_ms: field({
    name: 'queue_timeout',
    given: Type.String({
      maxLength: 64,
      description:
        'How long a run waits for a worker that fits, at most 720h; then it fails with the reason queue_timeout',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
    shown: Type.String(),
    default: DEFAULT_QUEUE_TIMEOUT_MS,
    read: (text) => readDuration(text, '/queue_timeout', MAX_QUEUE_TIMEOUT_MS),
    show: formatDurationMs,
    run: 'changed',
  }),
  memory_limit_bytes: field({
    name: 'memory_limit',
    given: Size,
    shown: Type.Integer({ description: 'Bytes' }),
    default: DEFAULT_MEMORY_LIMIT_BYTES,
    read: (size) => readSize(size, '/memory_limit', 1, MAX_MEMORY_LIMIT_BYTES),
    run: 'spec',
  }),
  max_output_bytes: field({
    given: Type.Integer({
      minimum: MIN_OUTPUT_BYTES,
      maximum: MAX_OUTPUT_BYTES,
      description:
        'Size limit of stdout and of stderr of a run, each; output beyond it is dropped and marked as truncated',
    }),
    shown: Type.Integer({ description: 'Bytes' }),
    default: DEFAULT_OUTPUT_BYTES,
    run: 'changed',
  }),
  max_attempts: field({
    within: 'retry',
    given: Type.Integer({ minimum: 1, maximum: MAX_ATTEMPTS }),
    shown: Type.Integer(),
    // The default depends on the reason of the failure.
    default: null as number | null,
    show: none,
    isOptional: true,
    run: 'spec',
  }),
  backoff_ms: field({
    name: 'backoff',
    within: 'retry',
    given: Duration,
    shown: Type.String(),
    default: DEFAULT_BACKOFF_MS,
    read: (text) => readDuration(text, '/retry/backoff', MAX_BACKOFF_MS),
    show: formatDurationMs,
    run: 'spec',
  }),
  on_lost: field({ given: OnLostName, shown: OnLostName, default: 'requeue' as OnLost, run: 'spec' }),
  metadata: field({
    given: Metadata,
    shown: Metadata,
    default: {} as Record<string, unknown>,
    json: 'jsonb',
  }),
  broadcast: field({
    given: Type.Boolean({ description: 'A start runs the task once on every matching worker' }),
    shown: Type.Boolean(),
    default: false as boolean,
    run: 'start',
  }),
  daemon: field({
    given: Type.Boolean({
      description: 'The task has no timeout and is restarted when it ends, until it is stopped',
    }),
    shown: Type.Boolean(),
    default: false as boolean,
    run: 'changed',
  }),
  schedule: field({
    given: Type.String({ description: 'Cron expression of five or six fields' }),
    shown: Type.String(),
    default: null as string | null,
    read: emptyAsNone,
    show: none,
    isOptional: true,
  }),
  timezone: field({
    given: Type.String({ maxLength: 64, description: 'Time zone of the schedule; default: UTC' }),
    shown: Type.String(),
    default: 'UTC' as string,
    show: (timezone, { schedule }) => (schedule === null ? undefined : timezone),
    isOptional: true,
  }),
  catch_up: field({
    given: CatchUp,
    shown: CatchUp,
    default: 'none' as 'none' | 'once',
    show: (catchUp, { schedule }) => (schedule === null ? undefined : catchUp),
    isOptional: true,
  }),
  offline: field({
    given: Type.Boolean({
      description:
        'The worker of `worker_id` starts the ticks of `schedule` by its own clock, with a task manager or without one, and reports the runs afterwards. Requires both fields, and is refused with secrets, channels, commands, `broadcast`, `daemon` and in a workflow',
    }),
    shown: Type.Boolean(),
    default: false as boolean,
    show: (offline) => (offline ? true : undefined),
    isOptional: true,
  }),
  trigger: field({
    given: TriggerField,
    shown: TriggerField,
    default: null as Trigger | null,
    show: none,
    isOptional: true,
    json: 'json',
  }),
  publish_result: field({
    given: TargetField,
    shown: TargetField,
    default: null as Target | null,
    show: none,
    isOptional: true,
    json: 'json',
    run: 'changed',
  }),
  grants: field({
    given: Type.Array(GrantField, { maxItems: MAX_GRANTS }),
    shown: Type.Array(GrantField),
    default: [] as Grant[],
    json: 'json',
    run: 'changed',
  }),
  answers: field({
    given: AnswersField,
    shown: AnswersField,
    default: null as Answers | null,
    read: answersOf,
    show: none,
    isOptional: true,
    json: 'json',
  }),
  http: field({
    given: HttpField,
    shown: ShownHttp,
    default: null as HttpGrant | null,
    read: readHttpGrant,
    show: none,
    isOptional: true,
    json: 'json',
    run: 'changed',
  }),
}

type Fields = typeof TASK_FIELDS
export type TaskColumn = keyof Fields
type AnyField = Field<unknown, TSchema, TSchema>
const wireName = (column: string, { name = column }: AnyField) => name
const ROWS = Object.entries(TASK_FIELDS) as unknown as [TaskColumn, AnyField][]

/** The stored fields of a task, by column. */
export type TaskFields = { [C in TaskColumn]: Fields[C]['default'] }

export const TASK_COLUMNS = ROWS.map(([column]) => column)

type InPlace<Place> = { [C in TaskColumn]: Fields[C] extends { run: Place } ? C : never }[TaskColumn]
const columnsIn = <Place extends string>(place: Place) =>
  ROWS.filter(([, { run }]) => run === place).map(([column]) => column) as InPlace<Place>[]

/** The fields that a start needs. */
export type StartFields = Pick<TaskFields, InPlace<'spec' | 'changed' | 'start'>>
export const START_COLUMNS = ROWS.filter(([, { run }]) => run !== undefined).map(([column]) => column)

/** The fields in the spec of each run; an absent field has its default. */
export type SpecFields = Pick<TaskFields, InPlace<'spec'>> & {
  [C in InPlace<'changed'>]?: Exclude<TaskFields[C], null>
}
const SPEC_COLUMNS = columnsIn('spec')
const CHANGED_COLUMNS = columnsIn('changed')

/** The spec is written with every run: defaults are omitted. */
export function specOf(task: StartFields): SpecFields {
  const spec: Record<string, unknown> = {}
  for (const column of SPEC_COLUMNS) spec[column] = task[column]
  for (const column of CHANGED_COLUMNS) {
    const value: unknown = task[column]
    const isDefault = Array.isArray(value) ? value.length === 0 : value === TASK_FIELDS[column].default
    if (!isDefault) spec[column] = value
  }
  return spec as SpecFields
}

export const NEW_TASK = Object.fromEntries(ROWS.map(([column, row]) => [column, row.default])) as TaskFields

/** Name on the wire; for a member of an object the name of the object. */
type OwnName<C extends TaskColumn> = Fields[C] extends { name: infer Name extends string } ? Name : C
type WireName<C extends TaskColumn> = Fields[C] extends { within: infer Group extends string } ? Group : OwnName<C>
type MembersOf<Group> = { [C in TaskColumn]: Fields[C] extends { within: Group } ? C : never }[TaskColumn]

type OrNothing<Schema extends TSchema> = TOptional<TUnion<[Schema, TNull]>>
type GivenSchema<C extends TaskColumn> = Fields[C] extends { within: infer Group }
  ? TObject<{ [M in MembersOf<Group> as OwnName<M>]: OrNothing<Fields[M]['given']> }>
  : Fields[C]['given']
type ShownSchema<C extends TaskColumn> = Fields[C] extends { isOptional: true }
  ? TOptional<Fields[C]['shown']>
  : Fields[C]['shown']

/** Schemas of the fields in request bodies, without the name. */
type GivenSchemas = { [C in Exclude<TaskColumn, 'name'> as WireName<C>]: OrNothing<GivenSchema<C>> }
/** Schemas of the fields of an answer. */
type ShownSchemas = {
  [C in Exclude<TaskColumn, 'name'> as WireName<C>]: Fields[C] extends { within: infer Group }
    ? TObject<{ [M in MembersOf<Group> as OwnName<M>]: ShownSchema<M> }>
    : ShownSchema<C>
}

const orNothing = (schema: TSchema) => Type.Optional(Type.Union([schema, Type.Null()]))
export const GIVEN_FIELDS = schemasOf(({ given }) => orNothing(given), orNothing) as unknown as GivenSchemas
export const SHOWN_FIELDS = schemasOf(
  ({ shown, isOptional }) => (isOptional ? Type.Optional(shown) : shown),
  (object) => object,
) as unknown as ShownSchemas

/** Returns the schemas by name on the wire, in the order of the table. */
function schemasOf(
  schemaOf: (row: AnyField) => TSchema,
  groupOf: (members: TSchema) => TSchema,
): Record<string, TSchema> {
  const schemas: Record<string, TSchema> = {}
  const groups: Record<string, Record<string, TSchema>> = {}
  for (const [column, row] of ROWS) {
    if (column === 'name') continue
    if (row.within === undefined) {
      schemas[wireName(column, row)] = schemaOf(row)
      continue
    }
    const members = (groups[row.within] ??= {})
    members[wireName(column, row)] = schemaOf(row)
    schemas[row.within] = groupOf(Type.Object(members))
  }
  return schemas
}

/** The fields that a body sets, by column; null sets the default. Throws `malformed` for values out of range. */
export function readFields(body: Readonly<Record<string, unknown>>): Partial<TaskFields> {
  const fields: Record<string, unknown> = {}
  for (const [column, row] of ROWS) {
    const parent = row.within === undefined ? body : (body[row.within] as typeof body | null | undefined)
    if (parent === undefined) continue
    const given = parent?.[wireName(column, row)]
    // An object of the wire is replaced as a whole.
    if (given === undefined && row.within === undefined) continue
    fields[column] =
      given === undefined || given === null ? row.default : row.read === undefined ? given : row.read(given)
  }
  return fields as Partial<TaskFields>
}

/** The fields of a task as answers show them. */
export function showFields(task: TaskFields): Static<TObject<ShownSchemas>> & { name: string } {
  const shown: Record<string, unknown> = {}
  for (const [column, row] of ROWS) {
    const value: unknown = row.show === undefined ? task[column] : row.show(task[column], task)
    if (value === undefined) continue
    const name = wireName(column, row)
    if (row.within === undefined) shown[name] = value
    else shown[row.within] = { ...(shown[row.within] as object | undefined), [name]: value }
  }
  return shown as ReturnType<typeof showFields>
}

function readWorkerId(id: string): string | null {
  if (id !== '' && !isId(id)) throw refusedField('/worker_id', 'must be the id of a worker')
  return emptyAsNone(id)
}

function readDuration(text: string, path: string, maxMs: number): number {
  const durationMs = parseDurationMs(text, path)
  if (durationMs < 1 || durationMs > maxMs)
    throw refusedField(path, `must be between 1ms and ${formatDurationMs(maxMs)}`)
  return Math.round(durationMs)
}

/** Bytes of a size in either form. Throws `malformed` with the field. */
function readSize(value: number | string, path: string, minBytes: number, maxBytes: number): number {
  const size = typeof value === 'number' ? value : (parseSize(value) ?? NaN)
  if (!Number.isInteger(size) || size < minBytes || size > maxBytes)
    throw refusedField(path, `must be between ${minBytes} and ${maxBytes} bytes, or a size such as 64MiB`)
  return size
}
