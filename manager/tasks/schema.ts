/** Wire shapes of tasks (specification section Task, task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatDurationMs, formatTime, parseDurationMs } from '#core/time.ts'
import type { TaskState } from '#proto/index.ts'
import {
  DEFAULT_MEMORY_LIMIT_BYTES,
  DEFAULT_TIMEOUT_MS,
  MAX_MEMORY_LIMIT_BYTES,
  MAX_TIMEOUT_MS,
} from '../runs/limits.ts'
import { BACKOFF_DEFAULT_MS, BACKOFF_MAX_MS } from '../runs/retry.ts'
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

export const Input = Type.Union([Type.Number(), Type.String({ maxLength: 64 })], {
  description: 'A number, or decimal text for a 64-bit integer',
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
const OnLost = Type.Enum(['requeue', 'fail', 'wait'])
const Metadata = Type.Record(Type.String(), Type.Unknown())
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

export const TaskPage = Type.Object({ ...pageFields, tasks: Type.Array(Task) })

/**
 * Fields that would change what a task does and that this version does not serve. Unknown fields are ignored (decision
 * 43), but to ignore one of these would be to promise something and not do it.
 */
const UNSERVED_FIELDS = [
  'broadcast',
  'schedule',
  'timezone',
  'catch_up',
  'daemon',
  'trigger',
  'depends_on',
  'run_if',
  'publish_result',
  'grants',
  'secrets',
] as const

/** Throws `unprocessable` naming the first of them that is set to anything but nothing. */
export function refuseUnserved(body: Readonly<Record<string, unknown>>): void {
  const found = UNSERVED_FIELDS.find((field) => isSet(body[field]))
  if (found === undefined) return
  throw new ServiceError('unprocessable', `${found} is not offered by this version: leave it out`, {
    details: [{ path: `/${found}`, message: 'is not offered by this version' }],
  })
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

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path} ${message}`, { details: [{ path, message }] })
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
    throw refuse('/memory_limit', `must be 1 to ${MAX_MEMORY_LIMIT_BYTES} bytes, or a size such as 64MiB`)
  }
  return size
}

function parseBoundedDuration(text: string, path: string, maxMs: number): number {
  const durationMs = parseDurationMs(text, path)
  if (durationMs < 1 || durationMs > maxMs) throw refuse(path, `must be 1ms to ${formatDurationMs(maxMs)}`)
  return Math.round(durationMs)
}

const WORKER_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The fields that a body sets; null sets the default. Throws `malformed` for a duration or size out of range. */
export function fromBody(body: TaskUpdate): Partial<TaskFields> {
  const set = <T, V>(value: T | null | undefined, key: keyof TaskFields, read: (value: T) => V, fallback: V) =>
    value === undefined ? {} : { [key]: value === null ? fallback : read(value) }
  const same = <T>(value: T): T => value
  const { worker_id: workerId, image_url: imageUrl } = body
  if (typeof workerId === 'string' && workerId !== '' && !WORKER_ID.test(workerId))
    throw refuse('/worker_id', 'must be the id of a worker')
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
}

export function presentTask(task: TaskRecord): Task {
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
    ...(task.module === null
      ? {}
      : {
          module: {
            digest: task.module.digest,
            size: task.module.sizeBytes,
            kind: task.module.kind,
            exports: task.module.exports,
            imports: task.module.imports,
          },
        }),
    ...(task.runId === null ? {} : { run_id: task.runId }),
    start_time: formatTime(task.startTime),
    finish_time: formatTime(task.finishTime),
    created_at: formatTime(task.createdAt),
    updated_at: formatTime(task.updatedAt),
  }
}
