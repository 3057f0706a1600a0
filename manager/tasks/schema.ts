/** Wire shapes of tasks (specification section Task, task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { MetadataFilter, OrderKey } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { recordOf, documented } from '#http/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { withOlderNames } from '#older/index.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import { GIVEN_FIELDS, SHOWN_FIELDS, Secrets, TASK_FIELDS, showFields } from '../model/task-fields.ts'
import { RECENT_RUNS } from '../store/runs.ts'
import type { TaskRecord } from '../store/tasks.ts'

/** Lower-case UUID; any other text is an unknown id, not a malformed one. */
export const TaskId = Type.String({ maxLength: 64, description: 'UUID', ...documented({ format: 'uuid' }) })
export const Timestamp = Type.String({
  description: 'RFC 3339 in UTC; `0001-01-01T00:00:00Z` means never',
  ...documented({}, 'Timestamp'),
})

const MAX_NAME_CHARS = 1024
/** Largest page of these listings, also the default. */
const PAGE_LIMIT = 100

export const RunIf = Type.Enum(['success', 'failure', 'always'])

/** Shown instead of a secret; if it is sent back, the secret is unchanged. */
export const REDACTED = '[redacted]'
const nullable = <T extends Parameters<typeof Type.Union>[0][number]>(type: T) => Type.Union([type, Type.Null()])

const writable = { ...GIVEN_FIELDS, secrets: Type.Optional(nullable(Secrets)) }
const Name = TASK_FIELDS.name.given

/** Fields of Propeller (`legacy-fields.ts`). Nulls are absent: Go clients send them for everything that was not set. */
const LEGACY_TASK_FIELDS = {
  proplet_id: Type.Optional(Type.String({ maxLength: 36, description: 'Older name of `worker_id`' })),
  file: Type.Optional(
    Type.String({
      description: 'The module in base64, at most 8 MiB; for larger ones use `PUT /tasks/{task_id}/upload`',
    }),
  ),
  is_recurring: Type.Optional(Type.Boolean({ description: 'Requires `schedule`' })),
  kind: Type.Optional(Type.String({ maxLength: 64, description: 'Only `standard`' })),
  mode: Type.Optional(Type.String({ maxLength: 64, description: 'Only `infer`' })),
  encrypted: Type.Optional(Type.Boolean({ description: 'Encrypted modules are not supported' })),
  kbs_resource_path: Type.Optional(Type.String({ maxLength: 1024, description: 'Key brokers are not supported' })),
  latent: Type.Optional(Type.Unknown({ description: 'Latent tasks are not supported' })),
}

export const NewTask = Type.Object(
  { name: Name, domain_id: Type.Optional(nullable(TaskId)), ...writable, ...LEGACY_TASK_FIELDS },
  { $id: 'TaskCreate' },
)
export type NewTask = Static<typeof NewTask>
/**
 * Fields that apply only in a workflow. Unknown fields are ignored (decision 43), but a client that sets one of these
 * expects an effect.
 */
const WORKFLOW_FIELDS = ['depends_on', 'run_if'] as const
export const NEW_TASK_FIELDS = [...Object.keys(NewTask.properties), ...WORKFLOW_FIELDS]
/** An empty name is ignored: older clients send every field. */
export const TaskUpdate = Type.Object({
  name: Type.Optional(Type.String({ maxLength: MAX_NAME_CHARS })),
  ...writable,
  ...LEGACY_TASK_FIELDS,
})
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

const TriggerStatus = Type.Object(
  {
    matched: Type.Integer({ description: 'Messages that matched the trigger' }),
    dropped: Type.Integer({ description: 'Matching messages that started no run' }),
    dropped_reason: nullable(Type.String()),
    last_match_at: Timestamp,
    expired: Type.Integer({ description: 'Matching messages that waited for longer than a week, and started no run' }),
    behind_since: Type.Optional(
      Type.String({
        description:
          'RFC 3339 in UTC: arrival of the oldest message that waits in its channel because too many runs wait, or for the rate; absent: none does',
      }),
    ),
  },
  documented({}, 'TriggerStatus'),
)

export const LastError = Type.Object(
  {
    at: Timestamp,
    reason: Type.String({ description: 'Why, of the last refusal' }),
    count: Type.Integer({ description: 'Refusals since the last success' }),
    source: Type.Enum(['schedule', 'message', 'workflow', 'publication', 'replay', 'right'], {
      description:
        'What was refused: a start of its schedule, of a message or of its workflow, a publication, the rest of a replay, or a right of its grantor',
    }),
  },
  {
    description: 'What was refused outside of a request since the last success; absent: nothing',
    ...documented({}, 'LastError'),
  },
)

export const Task = Type.Object(
  {
    id: TaskId,
    domain_id: Type.Optional(TaskId),
    name: TASK_FIELDS.name.shown,
    state: Type.Integer({
      description: '0 pending, 1 scheduled, 2 running, 3 completed, 4 failed, 5 skipped, 6 stopped, 7 unknown',
    }),
    ...SHOWN_FIELDS,
    proplet_id: Type.Optional(Type.String({ description: 'Older name of `worker_id`' })),
    is_recurring: Type.Optional(Type.Boolean({ description: 'true; absent without a schedule' })),
    next_tick_at: Type.Optional(Timestamp),
    missed_ticks: Type.Optional(
      Type.Integer({
        description:
          'Times of its schedule that started no run: it was still running, could not be started within 60 s, or newer times were due; of a longer downtime, the first 60 are counted. Absent without a schedule',
      }),
    ),
    offline_since: Type.Optional(
      Type.String({
        description:
          'RFC 3339 in UTC: since when the worker of an offline task starts its ticks. Absent: the task manager starts them, and `next_tick_at` is the next one',
      }),
    ),
    trigger_status: Type.Optional(TriggerStatus),
    granted_by: Type.Optional(
      Type.String({
        description:
          'User with whose rights the task uses its channels and answers commands; absent if it does neither, or they were deleted',
        ...documented({ format: 'uuid' }),
      }),
    ),
    activity: Type.Optional(
      Type.Enum(['active', 'paused', 'failing'], {
        description:
          'Of a task with a trigger or a schedule or that answers commands, and of a paused one. paused: the user who granted its channels or commands has lost a right. failing: its last run has failed, or what it does outside of requests is refused until a person changes something',
      }),
    ),
    last_run: Type.Optional(
      Type.Object(
        {
          id: TaskId,
          state: Type.Integer({ description: 'As the state of a task' }),
          at: Type.String({ description: 'When it ended, or when it was created while it has not ended' }),
        },
        {
          description:
            'Newest run of a task with a trigger or a schedule or that answers commands, whatever started it',
        },
      ),
    ),
    last_error: Type.Optional(LastError),
    recent_runs: Type.Optional(
      Type.Object(
        {
          runs: Type.Integer({ description: `At most ${RECENT_RUNS}` }),
          failed: Type.Integer(),
          seconds: Type.Number({ description: 'From the start of the oldest of them to now' }),
        },
        { description: 'With `recent=true` on a single task: its newest runs' },
      ),
    ),
    secrets: recordOf(Type.String()),
    workflow_id: Type.Optional(TaskId),
    depends_on: Type.Optional(Type.Array(Type.String())),
    run_if: Type.Optional(RunIf),
    module: Type.Optional(Module),
    run_id: Type.Optional(TaskId),
    results: Type.Unknown({
      description:
        'Result of the last run, as in `/tasks/{task_id}/results`; null: none, a broadcast, or too large to be shown here',
    }),
    result_bytes: Type.Optional(
      Type.Integer({
        description:
          'Size of an omitted result, which `/tasks/{task_id}/results` shows: above 4 KiB in a list, above 256 KiB in the single task',
      }),
    ),
    error: nullable(Type.String({ description: 'Why the last run failed' })),
    reason: nullable(Type.String({ description: 'Failure reason, such as timeout, trap or oom' })),
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
  metadata: Type.Optional(MetadataFilter),
  worker_id: Type.Optional(
    Type.String({ maxLength: 64, description: 'Tasks whose last run was assigned to this worker' }),
  ),
  domain_id: Type.Optional(Type.String({ maxLength: 64, description: 'Tasks of this domain' })),
  trigger: Type.Optional(Type.Boolean({ description: 'true: tasks that messages start; false: the others' })),
  channel_id: Type.Optional(
    Type.String({ maxLength: 64, description: 'Tasks whose trigger, `publish_result` or grant names this channel' }),
  ),
  order: OrderKey,
  dir: Type.Optional(Direction),
})
export type TaskQuery = Static<typeof TaskQuery>

/** A task in `GET /tasks` and in a workflow; only the single task has the exports and imports of its module. */
export const ListedTask = Type.Object(
  { ...Task.properties, module: Type.Optional(Type.Omit(Module, ['exports', 'imports'])) },
  { $id: 'ListedTask', description: 'Task without the exports and imports of its module' },
)
export type ListedTask = Static<typeof ListedTask>

export const TaskPage = Type.Object({ ...pageFields, tasks: Type.Array(ListedTask) })

/** Throws `unprocessable` with the first of them that is set to a non-empty value. */
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

/** Records are kept, and are never changed: each is presented once. */
function once<Shown>(present: (task: TaskRecord) => Shown): (task: TaskRecord) => Shown {
  const known = new WeakMap<TaskRecord, Shown>()
  return (task) => {
    const shown = known.get(task) ?? present(task)
    known.set(task, shown)
    return shown
  }
}

export const presentTask = once<Task>((task) => {
  const { module: listed, ...shown } = presentListedTask(task)
  if (listed === undefined || task.module === null) return shown
  return { ...shown, module: { ...listed, exports: task.module.exports, imports: task.module.imports } }
})

/** Presents a task as a list shows it. */
export const presentInList = once((task) => presentListedTask(task))

/** Undefined for a task that is started by hand, unless it is paused (contract decision 96). */
function activityOf(task: TaskRecord): Task['activity'] {
  if (task.paused_at !== null) return 'paused'
  const { trigger, schedule, answers, needs_action: needsAction, last_run: run } = task
  if (trigger === null && schedule === null && answers === null) return undefined
  return needsAction === true || run?.state === TASK_STATE.failed ? 'failing' : 'active'
}

function shownStatus(status: NonNullable<TaskRecord['trigger_status']>): NonNullable<Task['trigger_status']> {
  const { last_match_at: matchedAt, behind_since: behindSince, ...counts } = status
  return {
    ...counts,
    last_match_at: formatTime(matchedAt),
    ...(behindSince === null ? {} : { behind_since: formatTime(behindSince) }),
  }
}

export function presentListedTask(task: TaskRecord): ListedTask {
  const { trigger_status: status, last_run: run, last_error: error, module } = task
  const activity = activityOf(task)
  return {
    id: task.id,
    ...(task.domain_id === null ? {} : { domain_id: task.domain_id }),
    state: task.state satisfies TaskState,
    ...showFields(task),
    ...(task.worker_id === null ? {} : withOlderNames('manager/tasks/schema.ts', { worker_id: task.worker_id })),
    ...(task.schedule === null ? {} : { is_recurring: true }),
    ...(task.schedule === null || task.next_tick_at === null ? {} : { next_tick_at: formatTime(task.next_tick_at) }),
    ...(task.schedule === null ? {} : { missed_ticks: task.missed_ticks }),
    ...(task.offline_since === null ? {} : { offline_since: formatTime(task.offline_since) }),
    ...(status === null ? {} : { trigger_status: shownStatus(status) }),
    ...(task.granted_by === null ? {} : { granted_by: task.granted_by }),
    ...(activity === undefined ? {} : { activity }),
    ...(run === null ? {} : { last_run: { ...run, at: formatTime(run.at) } }),
    ...(error === null ? {} : { last_error: { ...error, at: formatTime(error.at) } }),
    secrets: Object.fromEntries(task.secret_names.map((name) => [name, REDACTED])),
    ...(task.workflow_id === null
      ? {}
      : { workflow_id: task.workflow_id, depends_on: task.depends_on, run_if: task.run_if }),
    ...(module === null ? {} : { module: { digest: module.digest, size: module.sizeBytes, kind: module.kind } }),
    ...(task.run_id === null ? {} : { run_id: task.run_id }),
    results: task.results ?? null,
    ...(task.result_bytes === null ? {} : { result_bytes: task.result_bytes }),
    error: task.error,
    reason: task.reason,
    start_time: formatTime(task.start_time),
    finish_time: formatTime(task.finish_time),
    created_at: formatTime(task.created_at),
    updated_at: formatTime(task.updated_at),
  }
}
