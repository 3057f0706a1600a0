/** Wire shapes of tasks (specification section Task, task-manager.md section 1). */
import type { Static } from 'typebox'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { Type } from '#core/schema.ts'
import { formatDurationMs, formatTime, parseDurationMs } from '#core/time.ts'
import type { Json } from '#core/wasm/index.ts'
import type { TaskState } from '#proto/index.ts'
import {
  DEFAULT_MEMORY_LIMIT_BYTES,
  DEFAULT_TIMEOUT_MS,
  MAX_MEMORY_LIMIT_BYTES,
  MAX_TIMEOUT_MS,
} from '../runs/limits.ts'
import { BACKOFF_DEFAULT_MS, BACKOFF_MAX_MS } from '../runs/retry.ts'
import { COMPARATORS, GRANT_KINDS } from '../channels/fields.ts'
import type { TaskFields, TaskRecord } from './repository.ts'

/** Lower-case UUID text; anything else is an unknown id, not a malformed one. */
export const TaskId = Type.String({ maxLength: 64, description: 'UUID' })
export const Timestamp = Type.String({ description: 'RFC 3339 in UTC; 0001-01-01T00:00:00Z: never' })

const MAX_NAME_CHARS = 1024
const MAX_INPUTS = 1_000
const MAX_ARGS = 1_000
const MAX_TEXT_CHARS = 32_768
const MAX_ENTRIES = 256
const MAX_LABELS = 64
const MAX_LABEL_CHARS = 256
export const DEFAULT_PRIORITY = 50
const MAX_ATTEMPTS = 100
/** Largest page of these listings, and what they give unasked. */
const PAGE_LIMIT = 100

export const Input = Type.Unsafe<Json>({
  description:
    'A number, or decimal text for a 64-bit integer; for a component any JSON value; in a workflow also {"from": "<task>", "result": 0}, a result of a task that it depends on',
})
export const Inputs = Type.Array(Input, { maxItems: MAX_INPUTS })
export const CliArgs = Type.Array(Type.String({ maxLength: MAX_TEXT_CHARS }), { maxItems: MAX_ARGS })
export const Env = Type.Record(
  Type.String({ pattern: '^[^=]+$', maxLength: MAX_LABEL_CHARS }),
  Type.String({ maxLength: MAX_TEXT_CHARS }),
  {
    maxProperties: MAX_ENTRIES,
  },
)
const Labels = Type.Record(
  Type.String({ minLength: 1, maxLength: MAX_LABEL_CHARS }),
  Type.String({ maxLength: MAX_LABEL_CHARS }),
  {
    maxProperties: MAX_LABELS,
    description: 'Labels that the worker must carry',
  },
)
const Duration = Type.String({ maxLength: 64, description: 'Go duration such as 90s or 1h30m' })
const Size = Type.Union([Type.Integer({ minimum: 1 }), Type.String({ maxLength: 32 })], {
  description: 'Bytes, or a size such as 64MiB',
})
export const RunIf = Type.Enum(['success', 'failure', 'always'])
const OnLost = Type.Enum(['requeue', 'fail', 'wait'])
const Metadata = Type.Record(Type.String(), Type.Unknown())
const CatchUp = Type.Enum(['none', 'once'], {
  description: 'What follows ticks that passed while no manager ran: nothing, or one run',
})

const MAX_GRANTS = 32
const ChannelId = Type.String({ maxLength: 36, description: 'Channel of the domain of the task' })
const Subtopic = Type.String({ maxLength: 1024, description: 'It and what lies below it; none: the whole channel' })

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
      Type.String({ maxLength: 64, description: 'The last message counts, once none followed for so long' }),
    ),
    rate_limit: Type.Optional(
      Type.String({ maxLength: 64, description: 'Runs at most, such as 10/1m; what is beyond is dropped' }),
    ),
  },
  { description: 'A message on the channel starts a run with its records' },
)
const TargetField = Type.Object({ channel_id: ChannelId, subtopic: Type.Optional(Type.String({ maxLength: 1024 })) })
const GrantField = Type.Object({
  kind: Type.Enum([...GRANT_KINDS]),
  channel_id: ChannelId,
  subtopic: Type.Optional(Subtopic),
  name: Type.Optional(Type.String({ maxLength: MAX_LABEL_CHARS, description: 'Name by which the guest calls it' })),
})

/** Shown in place of a secret; written back, it leaves the secret as it is. */
export const REDACTED = '[redacted]'
const Secrets = Type.Record(
  Type.String({ pattern: '^[^=]+$', maxLength: MAX_LABEL_CHARS }),
  Type.String({ maxLength: MAX_TEXT_CHARS }),
  { maxProperties: MAX_LABELS, description: 'Environment of the guest, kept sealed and shown as [redacted]' },
)
const nullable = <T extends Parameters<typeof Type.Union>[0][number]>(type: T) => Type.Union([type, Type.Null()])

const writable = {
  inputs: Type.Optional(nullable(Inputs)),
  cli_args: Type.Optional(nullable(CliArgs)),
  image_url: Type.Optional(nullable(Type.String({ maxLength: 2048, description: 'OCI reference of the module' }))),
  function: Type.Optional(
    nullable(
      Type.String({ maxLength: MAX_NAME_CHARS, description: 'Exported function; default: the name of the task' }),
    ),
  ),
  env: Type.Optional(nullable(Env)),
  labels: Type.Optional(nullable(Labels)),
  worker_id: Type.Optional(nullable(Type.String({ maxLength: 36, description: 'The only worker that may run it' }))),
  priority: Type.Optional(nullable(Type.Integer({ minimum: 0, maximum: 100 }))),
  timeout: Type.Optional(nullable(Duration)),
  memory_limit: Type.Optional(nullable(Size)),
  retry: Type.Optional(
    nullable(
      Type.Object({
        max_attempts: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: MAX_ATTEMPTS }))),
        backoff: Type.Optional(nullable(Duration)),
      }),
    ),
  ),
  on_lost: Type.Optional(nullable(OnLost)),
  metadata: Type.Optional(nullable(Metadata)),
  broadcast: Type.Optional(nullable(Type.Boolean({ description: 'A start runs it once on every worker that fits' }))),
  daemon: Type.Optional(
    nullable(
      Type.Boolean({ description: 'It has no deadline, and is started again when it ends, until it is stopped' }),
    ),
  ),
  schedule: Type.Optional(nullable(Type.String({ description: 'Cron expression of five or six fields' }))),
  timezone: Type.Optional(nullable(Type.String({ maxLength: 64, description: 'Of the schedule; UTC unless said' }))),
  catch_up: Type.Optional(nullable(CatchUp)),
  trigger: Type.Optional(nullable(TriggerField)),
  publish_result: Type.Optional(nullable(TargetField)),
  grants: Type.Optional(nullable(Type.Array(GrantField, { maxItems: MAX_GRANTS }))),
  secrets: Type.Optional(nullable(Secrets)),
}

const Name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS })

export const NewTask = Type.Object(
  { name: Name, domain_id: Type.Optional(nullable(TaskId)), ...writable },
  { $id: 'NewTask' },
)
export type NewTask = Static<typeof NewTask>
export const TaskUpdate = Type.Object({ name: Type.Optional(Name), ...writable })
export type TaskUpdate = Static<typeof TaskUpdate>

const Extern = Type.Object({
  name: Type.String(),
  kind: Type.String(),
  params: Type.Array(Type.String()),
  results: Type.Array(Type.String()),
})

export const Module = Type.Object({
  digest: Type.String(),
  size: Type.Integer({ description: 'Bytes' }),
  kind: Type.String(),
  exports: Type.Array(Extern),
  imports: Type.Array(Type.Object({ module: Type.String(), ...Extern.properties })),
})

export const Task = Type.Object(
  {
    id: TaskId,
    domain_id: Type.Optional(TaskId),
    name: Type.String(),
    state: Type.Integer({
      description: '0 pending, 1 scheduled, 2 running, 3 completed, 4 failed, 5 skipped, 6 stopped, 7 unknown',
    }),
    inputs: Type.Array(Input),
    cli_args: Type.Union([Type.Array(Type.String()), Type.Null()]),
    image_url: Type.Optional(Type.String()),
    function: Type.Optional(Type.String()),
    env: Type.Record(Type.String(), Type.String()),
    labels: Type.Record(Type.String(), Type.String()),
    worker_id: Type.Optional(Type.String()),
    priority: Type.Integer(),
    timeout: Type.String(),
    memory_limit: Type.Integer({ description: 'Bytes' }),
    retry: Type.Object({ max_attempts: Type.Optional(Type.Integer()), backoff: Type.String() }),
    on_lost: OnLost,
    metadata: Metadata,
    broadcast: Type.Boolean(),
    daemon: Type.Boolean(),
    schedule: Type.Optional(Type.String()),
    timezone: Type.Optional(Type.String()),
    catch_up: Type.Optional(CatchUp),
    next_tick_at: Type.Optional(Timestamp),
    trigger: Type.Optional(TriggerField),
    trigger_status: Type.Optional(
      Type.Object({
        matched: Type.Integer({ description: 'Messages that met the trigger' }),
        dropped: Type.Integer({ description: 'Of those, messages that started nothing' }),
        dropped_reason: nullable(Type.String()),
        last_match_at: Timestamp,
      }),
    ),
    publish_result: Type.Optional(TargetField),
    grants: Type.Array(GrantField),
    secrets: Type.Record(Type.String(), Type.String()),
    workflow_id: Type.Optional(TaskId),
    depends_on: Type.Optional(Type.Array(Type.String())),
    run_if: Type.Optional(RunIf),
    module: Type.Optional(Module),
    run_id: Type.Optional(TaskId),
    start_time: Timestamp,
    finish_time: Timestamp,
    created_at: Timestamp,
    updated_at: Timestamp,
  },
  { $id: 'Task', description: 'Task' },
)
export type Task = Static<typeof Task>

export const TaskQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  state: Type.Optional(Type.Integer({ minimum: 0, maximum: 7 })),
  name: Type.Optional(Type.String({ maxLength: MAX_NAME_CHARS })),
  metadata: Type.Optional(
    Type.String({ maxLength: 16_384, description: 'JSON object that the metadata must contain' }),
  ),
  worker_id: Type.Optional(Type.String({ maxLength: 64, description: 'Tasks whose last run went to this worker' })),
  order: Type.String({ maxLength: 32, default: 'updated_at', description: 'name, created_at or updated_at' }),
  dir: Type.Optional(Direction),
})
export type TaskQuery = Static<typeof TaskQuery>

/** What a task is listed as, in `GET /tasks` and in a workflow: what its module exports and imports is shown with the task alone. */
export const ListedTask = Type.Object(
  { ...Task.properties, module: Type.Optional(Type.Omit(Module, ['exports', 'imports'])) },
  { $id: 'ListedTask', description: 'Task without the exports and imports of its module' },
)
export type ListedTask = Static<typeof ListedTask>

export const TaskPage = Type.Object({ ...pageFields, tasks: Type.Array(ListedTask) })

/**
 * Fields that mean something among other tasks only. Unknown fields are ignored (decision 43), but to ignore one of these
 * would be to promise something and not do it.
 */
const WORKFLOW_FIELDS = ['depends_on', 'run_if'] as const

/** Throws `unprocessable` naming the first of them that is set to anything but nothing. */
export function refuseWorkflowFields(body: Readonly<Record<string, unknown>>): void {
  const found = WORKFLOW_FIELDS.find((field) => isSet(body[field]))
  if (found === undefined) return
  throw new ServiceError(
    'unprocessable',
    `${found} belongs to the tasks of a workflow: create one with POST /workflows`,
    {
      details: [{ path: `/${found}`, message: 'belongs to the tasks of a workflow' }],
    },
  )
}

function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === false || value === '') return false
  return typeof value !== 'object' || Object.keys(value).length > 0
}

const SIZE = /^(\d{1,12}) ?(|[KMG]i?)B?$/i
const SIZE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  K: 1e3,
  M: 1e6,
  G: 1e9,
  KI: 1024,
  MI: 1024 ** 2,
  GI: 1024 ** 3,
}

/** Bytes of a size in either form. Throws `malformed` naming the field. */
function parseSize(value: number | string): number {
  const match = typeof value === 'string' ? SIZE.exec(value.trim()) : null
  const size =
    typeof value === 'number'
      ? value
      : match === null
        ? NaN
        : Number(match[1]) * (SIZE_UNITS[(match[2] ?? '').toUpperCase()] ?? NaN)
  if (!Number.isInteger(size) || size < 1 || size > MAX_MEMORY_LIMIT_BYTES) {
    throw refusedField('/memory_limit', `must be 1 to ${MAX_MEMORY_LIMIT_BYTES} bytes, or a size such as 64MiB`)
  }
  return size
}

function parseBoundedDuration(text: string, path: string, maxMs: number): number {
  const durationMs = parseDurationMs(text, path)
  if (durationMs < 1 || durationMs > maxMs) throw refusedField(path, `must be 1ms to ${formatDurationMs(maxMs)}`)
  return Math.round(durationMs)
}

/** The fields that a body sets; null sets the default. Throws `malformed` for a duration or size out of range. */
export function fromBody(body: TaskUpdate): Partial<TaskFields> {
  const set = <T, V>(value: T | null | undefined, key: keyof TaskFields, read: (value: T) => V, fallback: V) =>
    value === undefined ? {} : { [key]: value === null ? fallback : read(value) }
  const same = <T>(value: T): T => value
  const { worker_id: workerId, image_url: imageUrl } = body
  if (typeof workerId === 'string' && workerId !== '' && !isId(workerId))
    throw refusedField('/worker_id', 'must be the id of a worker')
  return {
    ...set(body.name, 'name', same, ''),
    ...set(body.inputs, 'inputs', same, []),
    ...(body.cli_args === undefined ? {} : { cliArgs: body.cli_args }),
    ...(imageUrl === undefined ? {} : { imageUrl: imageUrl === '' ? null : imageUrl }),
    ...(body.function === undefined ? {} : { function: body.function === '' ? null : body.function }),
    ...set(body.env, 'env', same, {}),
    ...set(body.labels, 'labels', same, {}),
    ...(workerId === undefined ? {} : { workerId: workerId === '' ? null : workerId }),
    ...set(body.priority, 'priority', same, DEFAULT_PRIORITY),
    ...set(
      body.timeout,
      'timeoutMs',
      (text) => parseBoundedDuration(text, '/timeout', MAX_TIMEOUT_MS),
      DEFAULT_TIMEOUT_MS,
    ),
    ...set(body.memory_limit, 'memoryLimitBytes', parseSize, DEFAULT_MEMORY_LIMIT_BYTES),
    ...(body.retry === undefined ? {} : { maxAttempts: body.retry?.max_attempts ?? null }),
    ...(body.retry === undefined
      ? {}
      : {
          backoffMs:
            typeof body.retry?.backoff === 'string'
              ? parseBoundedDuration(body.retry.backoff, '/retry/backoff', BACKOFF_MAX_MS)
              : BACKOFF_DEFAULT_MS,
        }),
    ...set(body.on_lost, 'onLost', same, 'requeue'),
    ...set(body.metadata, 'metadata', same, {}),
    ...set(body.broadcast, 'broadcast', same, false),
    ...set(body.daemon, 'daemon', same, false),
    ...(body.schedule === undefined ? {} : { schedule: body.schedule === '' ? null : body.schedule }),
    ...set(body.timezone, 'timezone', same, 'UTC'),
    ...set(body.catch_up, 'catchUp', same, 'none'),
    ...(body.trigger === undefined ? {} : { trigger: body.trigger }),
    ...(body.publish_result === undefined ? {} : { publishResult: body.publish_result }),
    ...set(body.grants, 'grants', same, []),
  }
}

export const NEW_TASK_FIELDS: Omit<TaskFields, 'name'> = {
  inputs: [],
  cliArgs: null,
  imageUrl: null,
  function: null,
  env: {},
  labels: {},
  workerId: null,
  priority: DEFAULT_PRIORITY,
  timeoutMs: DEFAULT_TIMEOUT_MS,
  memoryLimitBytes: DEFAULT_MEMORY_LIMIT_BYTES,
  maxAttempts: null,
  backoffMs: BACKOFF_DEFAULT_MS,
  onLost: 'requeue',
  metadata: {},
  broadcast: false,
  daemon: false,
  schedule: null,
  timezone: 'UTC',
  catchUp: 'none',
  trigger: null,
  publishResult: null,
  grants: [],
}

function presentSchedule(task: TaskRecord): Partial<Task> {
  if (task.schedule === null) return {}
  const { schedule, timezone, catchUp } = task
  const next = task.nextTickAt === null ? {} : { next_tick_at: formatTime(task.nextTickAt) }
  return { schedule, timezone, catch_up: catchUp, ...next }
}

export function presentTask(task: TaskRecord): Task {
  const { module: listed, ...shown } = presentListedTask(task)
  if (listed === undefined || task.module === null) return shown
  return { ...shown, module: { ...listed, exports: task.module.exports, imports: task.module.imports } }
}

export function presentListedTask(task: TaskRecord): ListedTask {
  return {
    id: task.id,
    ...(task.domainId === null ? {} : { domain_id: task.domainId }),
    name: task.name,
    state: task.state satisfies TaskState,
    inputs: [...task.inputs],
    cli_args: task.cliArgs === null ? null : [...task.cliArgs],
    ...(task.imageUrl === null ? {} : { image_url: task.imageUrl }),
    ...(task.function === null ? {} : { function: task.function }),
    env: { ...task.env },
    labels: { ...task.labels },
    ...(task.workerId === null ? {} : { worker_id: task.workerId }),
    priority: task.priority,
    timeout: formatDurationMs(task.timeoutMs),
    memory_limit: task.memoryLimitBytes,
    retry: {
      ...(task.maxAttempts === null ? {} : { max_attempts: task.maxAttempts }),
      backoff: formatDurationMs(task.backoffMs),
    },
    on_lost: task.onLost,
    metadata: { ...task.metadata },
    broadcast: task.broadcast,
    daemon: task.daemon,
    ...presentSchedule(task),
    ...(task.trigger === null ? {} : { trigger: task.trigger }),
    ...(task.triggerStatus === null
      ? {}
      : {
          trigger_status: {
            matched: task.triggerStatus.matched,
            dropped: task.triggerStatus.dropped,
            dropped_reason: task.triggerStatus.droppedReason,
            last_match_at: formatTime(task.triggerStatus.lastMatchAt),
          },
        }),
    ...(task.publishResult === null ? {} : { publish_result: task.publishResult }),
    grants: [...task.grants],
    secrets: Object.fromEntries(task.secretNames.map((name) => [name, REDACTED])),
    ...(task.workflowId === null
      ? {}
      : { workflow_id: task.workflowId, depends_on: [...task.dependsOn], run_if: task.runIf }),
    ...(task.module === null
      ? {}
      : { module: { digest: task.module.digest, size: task.module.sizeBytes, kind: task.module.kind } }),
    ...(task.runId === null ? {} : { run_id: task.runId }),
    start_time: formatTime(task.startTime),
    finish_time: formatTime(task.finishTime),
    created_at: formatTime(task.createdAt),
    updated_at: formatTime(task.updatedAt),
  }
}
