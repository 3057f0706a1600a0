/** Wire shapes of runs, results and starts (task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import type { TextOrBytes } from '#core/bytes/index.ts'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { CAUSES } from '../model/cause.ts'
import { FAILURE_REASONS, REFUSED } from '../model/run.ts'
import { CliArgs, Env, Inputs } from '../model/task-fields.ts'
import { TaskId, Timestamp } from '../tasks/schema.ts'
import type { TaskState } from '#proto/index.ts'
import type { EndedRun } from '../model/run.ts'
import { LOG_STREAMS } from '../model/log-streams.ts'
import type { RunInputs, RunRecord } from '../store/runs.ts'

const PAGE_LIMIT = 100
const nullable = <T extends Parameters<typeof Type.Union>[0][number]>(type: T) => Type.Union([type, Type.Null()])

/** Fields that a start sets for its run only. */
const overrides = {
  cli_args: Type.Optional(CliArgs),
  env: Type.Optional(Env),
  stdin: Type.Optional(
    Type.Union([Type.String(), Type.Object({ base64: Type.String() })], {
      description: 'Standard input of a command: text, or bytes in base64',
    }),
  ),
  bytes: Type.Optional(
    Type.Enum(['base64'], { description: 'Lists of u8 in the result of a component are {"base64": text}' }),
  ),
}

/** Overrides of a start for its run; the body is optional. */
export const StartBody = Type.Optional(nullable(Type.Object({ inputs: Type.Optional(Inputs), ...overrides })))
/** Deadlines of an invocation: for the result, and for a worker. */
const waits = {
  timeout: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'How long to wait for the results, between 1ms and 1h; default: 60s',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
  ),
  wait: Type.Optional(
    Type.String({
      maxLength: 64,
      description:
        'How long to wait for a worker that fits before the call fails, at most 60s; default: 0s. If one fits and is busy, the run waits until `timeout`',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
  ),
}

export const InvokeBody = Type.Optional(
  nullable(
    Type.Object({
      inputs: Type.Optional(Inputs),
      ...overrides,
      ...waits,
    }),
  ),
)
/** Limit of runs per call. */
const MAX_INVOCATIONS = 1_000

export const InvokeManyBody = Type.Object({
  inputs: Type.Array(Inputs, {
    minItems: 1,
    maxItems: MAX_INVOCATIONS,
    description: 'Inputs of each run; [] for a function that takes none',
  }),
  ...overrides,
  ...waits,
})
export type InvokeManyBody = Static<typeof InvokeManyBody>

export type RunBody = {
  inputs?: Static<typeof Inputs>
  cli_args?: string[]
  env?: Record<string, string>
  stdin?: TextOrBytes
  bytes?: 'base64'
}

export const Started = Type.Object({ started: Type.Boolean({ description: 'true' }), run_id: TaskId })
export const Stopped = Type.Object({ stopped: Type.Boolean({ description: 'true' }) })

const State = Type.Integer({ minimum: 0, maximum: 7 })
const Results = Type.Unknown({
  description:
    'Array of the returned values; of a command: exit_code, stdout, stderr (text, or {"base64": text} if it is not UTF-8); of a component: the value; of a broadcast: worker_id, run_id, state, results, error and reason of each worker, with result_bytes instead of results beyond 8 MiB in total; null: none',
})
const Words = nullable(Type.String())
const Frames = Type.Optional(
  Type.Array(Type.String(), {
    description: 'Stack of the guest after a trap, the innermost of at most 20 frames first',
  }),
)

export const Invoked = Type.Object({
  results: Results,
  run_id: TaskId,
  worker_id: Words,
  duration_ms: nullable(Type.Number()),
  state: State,
  reason: Words,
  error: Words,
  frames: Frames,
})

export const InvokedMany = Type.Object({
  runs: Type.Array(
    Type.Object({
      run_id: nullable(TaskId),
      state: nullable(State),
      results: Results,
      result_bytes: Type.Optional(
        Type.Integer({ description: 'Size of an omitted result: 256 KiB or more, or beyond 16 MiB in total' }),
      ),
      worker_id: Words,
      duration_ms: nullable(Type.Number()),
      reason: Words,
      error: Words,
      frames: Frames,
    }),
    {
      description:
        'In the order of the inputs. State 1: not ended in time, the run continues; null, without a run_id: not started, with the reason in error',
    },
  ),
})

export const TaskResults = Type.Object({
  state: State,
  results: Results,
  error: Words,
  reason: Words,
  run_id: nullable(TaskId),
})

const Cause = Type.Object(
  {
    type: Type.Enum([...CAUSES]),
    user_id: Type.Optional(TaskId),
    channel_id: Type.Optional(TaskId),
    message: Type.Optional(Type.String({ description: 'Batch and number of the message in the log, as `4711/0`' })),
    messages: Type.Optional(Type.Integer({ description: 'Messages of the run, of which `message` is the first' })),
    replay_id: Type.Optional(TaskId),
    tick: Type.Optional(Timestamp),
    workflow_id: Type.Optional(TaskId),
    workflow_run_id: Type.Optional(TaskId),
    client_id: Type.Optional(TaskId),
    command: Type.Optional(Type.String({ description: 'Name of the command, which has the id of the run' })),
  },
  {
    description:
      'Why the run was started: by a user (`user_id`), a message (`channel_id`, `message`), a replay (`channel_id`, `replay_id`), a schedule (`tick`), a workflow (`workflow_id`, `workflow_run_id`) or a command to a client (`client_id`, `command`)',
  },
)

export const Run = Type.Object(
  {
    id: TaskId,
    task_id: TaskId,
    task_name: Type.String(),
    domain_id: Type.Optional(TaskId),
    cause: Type.Optional(Cause),
    kind: Type.Enum(['start', 'invoke', 'broadcast'], {
      description: 'broadcast: the part of one worker of a start on every worker',
    }),
    parent_id: Type.Optional({
      ...TaskId,
      description: 'Id of the broadcast run that this run of one worker belongs to',
    }),
    state: State,
    attempt: Type.Integer(),
    fence: nullable(Type.Integer()),
    worker_id: Words,
    module_digest: Type.String({ description: 'Empty: it was refused, and its task had no module' }),
    module_reference: Type.Optional(Type.String()),
    module_notes: Type.Optional(
      Type.Array(Type.String(), { description: 'Warnings from the resolution of the reference' }),
    ),
    created_at: Timestamp,
    assigned_at: Timestamp,
    running_at: Timestamp,
    finished_at: Timestamp,
    duration_ms: nullable(Type.Number()),
    prepare_ms: nullable(Type.Number()),
    reason: Words,
    error: Words,
    frames: Frames,
    function: Type.Optional(Type.String({ description: 'Of a single run: the exported function, if it is known' })),
    inputs: Type.Optional(
      Type.Array(Type.Unknown(), {
        description:
          'Of a single run: what it was started with. A run that a message or a command started omits them: read the message or the command of its cause',
      }),
    ),
    cli_args: Type.Optional(Type.Array(Type.String())),
    input_bytes: Type.Optional(Type.Integer({ description: 'Size of omitted inputs and arguments: above 256 KiB' })),
    results: Results,
    result_bytes: Type.Optional(
      Type.Integer({
        description:
          'Size of an omitted result: a list shows results of at most 4 KiB, the single run and /results show all',
      }),
    ),
    output_truncated: Type.Boolean(),
    ran_offline: Type.Optional(
      Type.Boolean({
        description: 'true: its worker started it without a task manager, and reported it afterwards. Otherwise absent',
      }),
    ),
    earlier_attempts: Type.Array(
      Type.Object({
        attempt: Type.Integer(),
        fence: Type.Integer(),
        worker_id: Words,
        assigned_at: Timestamp,
        running_at: Timestamp,
        ended_at: Timestamp,
        reason: Type.String(),
        error: Words,
      }),
    ),
  },
  { $id: 'Run', description: 'Run with all its attempts' },
)
export type Run = Static<typeof Run>

export const RunQuery = Type.Object(pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }))
const Seconds = Type.Number({ minimum: 0, maximum: 1e11, description: 'Start of the run, in seconds since 1970' })
const UuidFilter = (description: string) =>
  Type.Optional(Type.String({ maxLength: 64, description, ...documented({ format: 'uuid' }) }))

/** Filters of `GET /runs`. */
export const RunsQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  domain_id: Type.Optional(Type.String({ maxLength: 64, description: 'Runs of this domain' })),
  task_id: UuidFilter('Runs of this task'),
  worker_id: UuidFilter('Runs whose present or last attempt is on this worker'),
  state: Type.Optional(
    Type.String({ pattern: '^[1-7](,[1-7]){0,6}$', description: 'Comma-separated states, as `1,2` for open runs' }),
  ),
  reason: Type.Optional(Type.Enum([...FAILURE_REASONS, REFUSED], { description: 'Why the run failed' })),
  cause: Type.Optional(Type.Enum([...CAUSES], { description: 'Why the run was started' })),
  channel_id: UuidFilter('Runs for messages of this channel'),
  message: Type.Optional(
    Type.String({ pattern: '^\\d{1,19}/\\d{1,9}$', description: 'Runs of this message, as `cause.message` names it' }),
  ),
  user_id: UuidFilter('Runs that this user started'),
  workflow_id: UuidFilter('Runs of this workflow'),
  replay_id: UuidFilter('Runs of this replay'),
  from: Type.Optional(Seconds),
  to: Type.Optional(Seconds),
})
export type RunsQuery = Static<typeof RunsQuery>

export const RunPage = Type.Object({ ...pageFields, runs: Type.Array(Run) })
export const LogQuery = Type.Object({
  run_id: Type.Optional(TaskId),
  stream: Type.Optional(Type.Enum([...LOG_STREAMS])),
  follow: Type.Optional(Type.Boolean()),
})

/** One of many invocations: its end, its state at the deadline, or the reason why it was not started. */
export type Invocation = Pick<EndedRun, 'workerId' | 'durationMs' | 'reason' | 'error' | 'frames'> & {
  runId: string | null
  /** null: not started. */
  state: TaskState | null
  results: unknown
  /** Size of an omitted result, which the run itself shows. */
  resultBytes?: number
}

/** `Id` and `State` are null only for one of many. */
export function presentInvocation<Id, State>(
  invocation: Omit<Invocation, 'runId' | 'state'> & { runId: Id; state: State },
) {
  const { results, runId, workerId, durationMs, state, reason, error, frames, resultBytes } = invocation
  return {
    results,
    run_id: runId,
    worker_id: workerId,
    duration_ms: durationMs,
    state,
    reason,
    error,
    ...(frames.length === 0 ? {} : { frames: [...frames] }),
    ...(resultBytes === undefined ? {} : { result_bytes: resultBytes }),
  }
}

export function presentInputs(
  given: RunInputs | undefined,
): Pick<Run, 'function' | 'inputs' | 'cli_args' | 'input_bytes'> {
  if (given === undefined) return {}
  const { called, inputs, cliArgs, inputBytes } = given
  return {
    ...(called === null ? {} : { function: called }),
    ...(Array.isArray(inputs) ? { inputs } : {}),
    ...(cliArgs === null ? {} : { cli_args: cliArgs }),
    ...(inputs === null && inputBytes > 0 ? { input_bytes: inputBytes } : {}),
  }
}

export function presentRun(run: RunRecord, results: unknown): Run {
  return {
    id: run.id,
    task_id: run.taskId,
    task_name: run.taskName,
    ...(run.domainId === null ? {} : { domain_id: run.domainId }),
    ...(run.cause === null ? {} : { cause: run.cause }),
    kind: run.parentId !== null ? 'broadcast' : run.drivesTask ? 'start' : 'invoke',
    ...(run.parentId === null ? {} : { parent_id: run.parentId }),
    state: run.state,
    attempt: run.attempt,
    fence: run.fence,
    worker_id: run.workerId,
    module_digest: run.moduleDigest,
    ...(run.moduleReference === null ? {} : { module_reference: run.moduleReference }),
    ...(run.moduleNotes.length === 0 ? {} : { module_notes: run.moduleNotes }),
    created_at: formatTime(run.createdAt),
    assigned_at: formatTime(run.assignedAt),
    running_at: formatTime(run.runningAt),
    finished_at: formatTime(run.finishedAt),
    duration_ms: run.durationMs,
    prepare_ms: run.prepareMs,
    reason: run.reason,
    error: run.error,
    ...(run.frames.length === 0 ? {} : { frames: run.frames }),
    results,
    ...(run.resultBytes === null ? {} : { result_bytes: run.resultBytes }),
    output_truncated: run.outputTruncated,
    ...(run.ranOffline ? { ran_offline: true } : {}),
    earlier_attempts: run.earlier.map((attempt) => ({
      attempt: attempt.attempt,
      fence: attempt.fence,
      worker_id: attempt.workerId,
      assigned_at: formatTime(attempt.assignedAt),
      running_at: formatTime(attempt.runningAt),
      ended_at: formatTime(attempt.endedAt),
      reason: attempt.reason,
      error: attempt.error,
    })),
  }
}
