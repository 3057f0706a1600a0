/** Wire shapes of runs, results and starts (task-manager.md section 1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { shown } from '#core/http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { CliArgs, Env, Inputs } from '../model/task-fields.ts'
import { TaskId, Timestamp } from '../tasks/schema.ts'
import type { TaskState } from '#proto/index.ts'
import type { EndedRun } from '../writer/endings.ts'
import type { RunRecord } from '../store/runs.ts'

const PAGE_LIMIT = 100
const nullable = <T extends Parameters<typeof Type.Union>[0][number]>(type: T) => Type.Union([type, Type.Null()])

/** What a start changes for its run alone; nothing at all is fine. */
export const StartBody = Type.Optional(
  nullable(Type.Object({ inputs: Type.Optional(Inputs), cli_args: Type.Optional(CliArgs), env: Type.Optional(Env) })),
)
/** Of an invocation: the one for its result, the other for a worker. */
const waits = {
  timeout: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'How long to wait for the results: 60s unless given, 1ms to 1h',
      ...shown({ pattern: DURATION_PATTERN }),
    }),
  ),
  wait: Type.Optional(
    Type.String({
      maxLength: 64,
      description:
        'How long to wait for a worker that fits before the call is refused: 0s unless given, at most 60s. Where one fits and is busy, the run waits until `timeout`',
      ...shown({ pattern: DURATION_PATTERN }),
    }),
  ),
}

export const InvokeBody = Type.Optional(
  nullable(
    Type.Object({
      inputs: Type.Optional(Inputs),
      cli_args: Type.Optional(CliArgs),
      env: Type.Optional(Env),
      ...waits,
    }),
  ),
)
/** Runs that one call may start. */
const MAX_INVOCATIONS = 1_000

export const InvokeManyBody = Type.Object({
  inputs: Type.Array(Inputs, {
    minItems: 1,
    maxItems: MAX_INVOCATIONS,
    description: 'Inputs of each run; [] for a function that takes none',
  }),
  cli_args: Type.Optional(CliArgs),
  env: Type.Optional(Env),
  ...waits,
})
export type InvokeManyBody = Static<typeof InvokeManyBody>

export type RunBody = { inputs?: Static<typeof Inputs>; cli_args?: string[]; env?: Record<string, string> }

export const Started = Type.Object({ started: Type.Boolean({ description: 'true' }), run_id: TaskId })
export const Stopped = Type.Object({ stopped: Type.Boolean({ description: 'true' }) })

const State = Type.Integer({ minimum: 0, maximum: 7 })
const Results = Type.Unknown({
  description:
    'Array of the returned values; of a command: exit_code, stdout, stderr; of a component: the value; of a broadcast: worker_id, run_id, state, results, error and reason of each worker, with result_bytes in place of results beyond 8 MiB in all; null: none',
})
const Words = nullable(Type.String())

export const Invoked = Type.Object({
  results: Results,
  run_id: TaskId,
  worker_id: Words,
  duration_ms: nullable(Type.Number()),
  state: State,
  reason: Words,
  error: Words,
})

export const InvokedMany = Type.Object({
  runs: Type.Array(
    Type.Object({
      run_id: nullable(TaskId),
      state: nullable(State),
      results: Results,
      result_bytes: Type.Optional(
        Type.Integer({ description: 'Size of a result that is not shown here: 256 KiB or more, or 16 MiB in all' }),
      ),
      worker_id: Words,
      duration_ms: nullable(Type.Number()),
      reason: Words,
      error: Words,
    }),
    {
      description:
        'In the order of the inputs. State 1: not ended in time, it goes on; null, without a run_id: not started, error says why',
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

export const Run = Type.Object(
  {
    id: TaskId,
    kind: Type.Enum(['start', 'invoke', 'broadcast'], {
      description: 'broadcast: the run of one worker, below the run parent_id',
    }),
    parent_id: Type.Optional(TaskId),
    state: State,
    attempt: Type.Integer(),
    fence: nullable(Type.Integer()),
    worker_id: Words,
    module_digest: Type.String(),
    module_reference: Type.Optional(Type.String()),
    module_notes: Type.Optional(
      Type.Array(Type.String(), { description: 'What to know about how the reference was resolved' }),
    ),
    created_at: Timestamp,
    assigned_at: Timestamp,
    running_at: Timestamp,
    finished_at: Timestamp,
    duration_ms: nullable(Type.Number()),
    prepare_ms: nullable(Type.Number()),
    reason: Words,
    error: Words,
    results: Results,
    result_bytes: Type.Optional(
      Type.Integer({
        description:
          'Size of a result that only the single run and /results show: a list shows results of at most 4 KiB',
      }),
    ),
    output_truncated: Type.Boolean(),
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
export const RunPage = Type.Object({ ...pageFields, runs: Type.Array(Run) })
export const LogQuery = Type.Object({
  run_id: Type.Optional(TaskId),
  stream: Type.Optional(Type.Enum(['stdout', 'stderr'])),
  follow: Type.Optional(Type.Boolean()),
})

/** One of many: how it ended, where it stands at the deadline, or why it was not started. */
export type Invocation = Pick<EndedRun, 'workerId' | 'durationMs' | 'reason' | 'error'> & {
  runId: string | null
  /** null: it was not started. */
  state: TaskState | null
  results: unknown
  /** Of a result that is not shown here: the run itself shows it. */
  resultBytes?: number
}

/** `Id` and `State` are null only of one among many. */
export function presentInvocation<Id, State>(
  invocation: Omit<Invocation, 'runId' | 'state'> & { runId: Id; state: State },
) {
  const { results, runId, workerId, durationMs, state, reason, error, resultBytes } = invocation
  return {
    results,
    run_id: runId,
    worker_id: workerId,
    duration_ms: durationMs,
    state,
    reason,
    error,
    ...(resultBytes === undefined ? {} : { result_bytes: resultBytes }),
  }
}

export function presentRun(run: RunRecord, results: unknown): Run {
  return {
    id: run.id,
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
    results,
    ...(run.resultBytes === null ? {} : { result_bytes: run.resultBytes }),
    output_truncated: run.outputTruncated,
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
