/**
 * The options of a task, one row each: what is given and shown on the wire, the column that holds it, its bounds, its default,
 * and its place in the runs of the task. Schemas, statements and specs are made from this table (docs/guides/add-a-task-option.md).
 */
import { Type } from 'typebox'
import type { Static, TNull, TObject, TOptional, TSchema, TUnion } from 'typebox'
import { parseSize } from '#core/bytes/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { recordOf, shown } from '#core/http/index.ts'
import { isId } from '#core/ids.ts'
import { DURATION_PATTERN, formatDurationMs, parseDurationMs } from '#core/time.ts'
import type { Json } from '#core/wasm/index.ts'
import { COMPARATORS } from '#queues/index.ts'
import { GRANT_KINDS, type Grant, type Target, type Trigger } from './channel-fields.ts'
import {
  BACKOFF_DEFAULT_MS,
  BACKOFF_MAX_MS,
  DEFAULT_MEMORY_LIMIT_BYTES,
  DEFAULT_OUTPUT_BYTES,
  DEFAULT_TIMEOUT_MS,
  MAX_MEMORY_LIMIT_BYTES,
  MAX_OUTPUT_BYTES,
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
const MAX_ATTEMPTS = 100
const DEFAULT_PRIORITY = 50

/** A JSON number, or a decimal string for a 64-bit integer; for components any JSON value. */
export type RunInput = Json
export type OnLost = 'requeue' | 'fail' | 'wait'

export type Field<Value, Given extends TSchema, Shown extends TSchema> = {
  /** Name on the wire, where it is not that of the column. */
  name?: string
  /** The object of the wire that it is a member of; whoever gives that object gives all of its members. */
  within?: 'retry'
  /** What create and update take; null stands for the default. */
  given: Given
  /** What answers show. */
  shown: Shown
  default: Value
  /** From what is given, as it is unless said. Throws `malformed` naming the field. */
  read?: (given: Static<Given>) => Value
  /** As it is shown, as it is unless said; undefined: not shown. */
  show?: (value: Value, task: { schedule: string | null }) => Static<Shown> | undefined
  /** Not shown by every task. */
  isOptional?: true
  /** The column holds JSON. */
  json?: 'json' | 'jsonb'
  /**
   * What the runs of the task have of it. `spec`: it is frozen in each run. `changed`: the same, where it is not the default.
   * `start`: it decides where and how a run begins.
   */
  run?: 'spec' | 'changed' | 'start'
}

type Place = 'name' | 'within' | 'run' | 'isOptional'

/** Keeps the types of a row, and which place it has. */
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
  description: 'Environment of the guest, kept sealed and shown as [redacted]',
})
const Labels = recordOf(Type.String({ maxLength: MAX_LABEL_CHARS }), {
  propertyNames: Type.String({ minLength: 1, maxLength: MAX_LABEL_CHARS }),
  maxProperties: MAX_LABELS,
  description: 'Labels that the worker must carry',
})
const Duration = Type.String({
  maxLength: 64,
  description: 'Go duration such as 90s or 1h30m',
  ...shown({ pattern: DURATION_PATTERN }),
})
const Size = Type.Union([Type.Integer({ minimum: 1 }), Type.String({ maxLength: 32 })], {
  description: 'Bytes, or a size such as 64MiB',
})
const OnLostName = Type.Enum(['requeue', 'fail', 'wait'])
const Metadata = recordOf(Type.Unknown())
const CatchUp = Type.Enum(['none', 'once'], {
  description: 'What follows ticks that passed while no manager ran: nothing, or one run',
})
const ChannelId = Type.String({
  maxLength: 36,
  description: 'Channel of the domain of the task',
  ...shown({ format: 'uuid' }),
})
const Subtopic = Type.String({
  maxLength: MAX_SUBTOPIC_CHARS,
  description: 'It and what lies below it; none: the whole channel',
})
const TriggerField = Type.Object(
  {
    channel_id: ChannelId,
    subtopic: Type.Optional(Subtopic),
    name: Type.Optional(Type.String({ maxLength: MAX_NAME_CHARS, description: 'Records of this name alone' })),
    when: Type.Optional(
      Type.Object(
        { comparator: Type.Enum([...COMPARATORS]), value: Type.Number() },
        { description: 'Numbers that meet it' },
      ),
    ),
    debounce: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'The last message counts, once none followed for so long',
        ...shown({ pattern: DURATION_PATTERN }),
      }),
    ),
    rate_limit: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Runs at most, such as 10/1m; what is beyond is dropped',
        ...shown({ pattern: '^[0-9]+/[0-9]+(ms|s|m|h)$' }),
      }),
    ),
  },
  { description: 'A message on the channel starts a run with its records' },
)
const TargetField = Type.Object({
  channel_id: ChannelId,
  subtopic: Type.Optional(Type.String({ maxLength: MAX_SUBTOPIC_CHARS })),
})
const GrantField = Type.Object({
  kind: Type.Enum([...GRANT_KINDS]),
  channel_id: ChannelId,
  subtopic: Type.Optional(Subtopic),
  name: Type.Optional(Type.String({ maxLength: MAX_LABEL_CHARS, description: 'Name by which the guest calls it' })),
})

/** By the column of `tasks` that holds it. */
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
    given: Type.String({ maxLength: 36, description: 'The only worker that may run it' }),
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
      description: 'Bound of stdout and of stderr of a run, each; what is beyond is dropped and marked as truncated',
    }),
    shown: Type.Integer({ description: 'Bytes' }),
    default: DEFAULT_OUTPUT_BYTES,
    run: 'changed',
  }),
  max_attempts: field({
    within: 'retry',
    given: Type.Integer({ minimum: 1, maximum: MAX_ATTEMPTS }),
    shown: Type.Integer(),
    // The default of the reason for which an attempt failed.
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
    default: BACKOFF_DEFAULT_MS,
    read: (text) => readDuration(text, '/retry/backoff', BACKOFF_MAX_MS),
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
    given: Type.Boolean({ description: 'A start runs it once on every worker that fits' }),
    shown: Type.Boolean(),
    default: false as boolean,
    run: 'start',
  }),
  daemon: field({
    given: Type.Boolean({
      description: 'It has no deadline, and is started again when it ends, until it is stopped',
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
    given: Type.String({ maxLength: 64, description: 'Of the schedule; UTC unless said' }),
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
}

type Fields = typeof TASK_FIELDS
export type TaskColumn = keyof Fields
type AnyField = Field<unknown, TSchema, TSchema>
const wireName = (column: string, { name = column }: AnyField) => name
const ROWS = Object.entries(TASK_FIELDS) as unknown as [TaskColumn, AnyField][]

/** What a task says about itself, by column. */
export type TaskFields = { [C in TaskColumn]: Fields[C]['default'] }

export const TASK_COLUMNS = ROWS.map(([column]) => column)

type InPlace<Place> = { [C in TaskColumn]: Fields[C] extends { run: Place } ? C : never }[TaskColumn]
const columnsIn = <Place extends string>(place: Place) =>
  ROWS.filter(([, { run }]) => run === place).map(([column]) => column) as InPlace<Place>[]

/** What a start needs to know of a task. */
export type StartFields = Pick<TaskFields, InPlace<'spec' | 'changed' | 'start'>>
export const START_COLUMNS = ROWS.filter(([, { run }]) => run !== undefined).map(([column]) => column)

/** What each run of a task has of it: absent is the default. */
export type SpecFields = Pick<TaskFields, InPlace<'spec'>> & {
  [C in InPlace<'changed'>]?: Exclude<TaskFields[C], null>
}
const SPEC_COLUMNS = columnsIn('spec')
const CHANGED_COLUMNS = columnsIn('changed')

/** The spec is written with every run: what says nothing is left out. */
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

/** Name on the wire, within its object where it is a member of one. */
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

/** Schemas of what a body may set: all of the fields but the name. */
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

/** By name on the wire, in the order of the table. */
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

/** The fields that a body sets, by column; null sets the default. Throws `malformed` for what is out of range. */
export function readFields(body: Readonly<Record<string, unknown>>): Partial<TaskFields> {
  const fields: Record<string, unknown> = {}
  for (const [column, row] of ROWS) {
    const parent = row.within === undefined ? body : (body[row.within] as typeof body | null | undefined)
    if (parent === undefined) continue
    const given = parent?.[wireName(column, row)]
    // An object of the wire is taken as a whole.
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
  if (durationMs < 1 || durationMs > maxMs) throw refusedField(path, `must be 1ms to ${formatDurationMs(maxMs)}`)
  return Math.round(durationMs)
}

/** Bytes of a size in either form. Throws `malformed` naming the field. */
function readSize(value: number | string, path: string, minBytes: number, maxBytes: number): number {
  const size = typeof value === 'number' ? value : (parseSize(value) ?? NaN)
  if (!Number.isInteger(size) || size < minBytes || size > maxBytes)
    throw refusedField(path, `must be ${minBytes} to ${maxBytes} bytes, or a size such as 64MiB`)
  return size
}
