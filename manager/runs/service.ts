/** Starting, stopping, waiting for and reading runs. Rights are checked by the task they belong to. */
import { createHash } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskCaller } from '../access.ts'
import type { TasksService } from '../tasks/service.ts'
import type { TriggerMessage } from '../channels/trigger-message.ts'
import type { ManagerTiming } from '../timing.ts'
import { AwaitedEnds, type RunEndings } from './endings.ts'
import { createLogFollowing, type LogFollower, type LogReader } from './follow-logs.ts'
import { createInvocations, overridesOf } from './invocations.ts'
import {
  findDrivingRun,
  findEnded,
  findRun,
  listParts,
  listRuns,
  readLogs,
  readResult,
  type RunRecord,
} from './repository.ts'
import type { RunBody } from './schema.ts'
import type { FailureReason } from './spec.ts'
import type { RunOverrides } from './start-runs.ts'
import { submitRuns, type Submission, type SubmitDeps } from './submit-runs.ts'
import type { RunWriter } from './writer.ts'

export type RunsDeps = SubmitDeps & {
  database: Database
  tasks: TasksService
  writer: RunWriter
  endings: RunEndings
  timing: ManagerTiming
  newId: () => string
  logger: Logger
}

export type RunsService = ReturnType<typeof createRunsService>

const MAX_IDEMPOTENCY_KEY_CHARS = 255

export function createRunsService(deps: RunsDeps) {
  const { database, tasks, writer, endings, timing, newId } = deps

  const following = createLogFollowing({ database, logger: deps.logger })

  // Ends that this manager did not write itself: the run's worker has its session at another one.
  const poll = setInterval(() => {
    const late = endings.lookForLate()
    if (late.length === 0) return
    findEnded(database.db, late).then(
      (rows) => {
        for (const row of rows) {
          endings.tell({
            runKey: row.key,
            runId: row.id,
            workerId: row.worker_id,
            state: row.state,
            reason: row.reason as FailureReason | null,
            error: row.error,
            results: row.results,
            staged: row.result_digest === null ? null : { digest: row.result_digest, sizeBytes: row.result_bytes ?? 0 },
            durationMs: row.duration_ms,
            prepareMs: row.prepare_ms,
            outputTruncated: row.output_truncated,
          })
        }
      },
      (error: unknown) => deps.logger.warn({ err: error }, 'ends of runs could not be read'),
    )
  }, timing.foreignRunPollMs)

  async function submit(submission: Submission, domainId: string | null) {
    const [submitted] = await submitRuns(deps, [submission], domainId)
    if (submitted === undefined || submitted instanceof Error) throw submitted ?? new Error('nothing was started')
    return submitted
  }

  async function stopAll(taskKey: number): Promise<void> {
    const held = await writer.stop(taskKey)
    const awaited = new AwaitedEnds(endings)
    for (const key of held) awaited.add(key)
    const ends = await awaited.within(timing.stopDeadlineMs)
    const silent = held.filter((key) => !ends.has(key))
    if (silent.length > 0) await writer.force(silent)
  }

  async function requireRun(taskKey: number, runId: string): Promise<RunRecord> {
    const run = isId(runId) ? await findRun(database.db, taskKey, runId) : undefined
    if (run === undefined) throw new ServiceError('not_found', 'the task has no such run')
    return run
  }

  async function presentPartResult({ isResultShown, resultBytes, ...result }: RunRecord) {
    if (isResultShown) return { results: await readResult(database.db, result) }
    return { results: null, ...(resultBytes === null ? {} : { result_bytes: resultBytes }) }
  }

  /** Parts of a broadcast, each with its worker. */
  async function presentParts(runId: string) {
    const parts = await listParts(database.db, runId)
    return await Promise.all(
      parts.map(async (part) => ({
        worker_id: part.workerId,
        run_id: part.id,
        state: part.state,
        ...(await presentPartResult(part)),
        error: part.error,
        reason: part.reason,
      })),
    )
  }

  return {
    /**
     * A start that nobody asked for over HTTP: of a schedule, a workflow, a message. With the same key it happens once.
     */
    async startFor(start: SystemStart): Promise<{ runId: string }> {
      const { taskId, domainId, origin, key, drivesTask, overrides = {}, trigger, runId = newId() } = start
      const idempotency = { userKey: ORIGINS[origin], key, bodyDigest: '' }
      return await submit({ taskId, runId, overrides, drivesTask, idempotency, trigger }, domainId)
    },

    /** Ends everything of the task that is under way. */
    stopFor: (taskKey: number) => stopAll(taskKey),

    /** Queues one run; the task's state follows it. Throws `invalid_state` while another one is under way. */
    async start(
      caller: TaskCaller,
      taskId: string,
      body: RunBody | null | undefined,
      idempotencyKey: string | undefined,
    ) {
      const task = await tasks.require(caller, taskId, 'task_start')
      const { runId } = await submit(
        {
          taskId: task.id,
          runId: newId(),
          overrides: overridesOf(body),
          drivesTask: true,
          idempotency: idempotencyKey === undefined ? undefined : idempotencyOf(caller, idempotencyKey, body),
        },
        task.domainId,
      )
      return { runId }
    },

    ...createInvocations(deps),

    /** Resolves when every run of the task has ended: confirmed by its worker, or forced at the deadline. */
    async stop(caller: TaskCaller, taskId: string): Promise<void> {
      const task = await tasks.require(caller, taskId, 'task_start')
      await stopAll(task.key)
    },

    /** Throws `invalid_state` while it is under way, unless it is to be stopped first. */
    async remove(caller: TaskCaller, taskId: string, force: boolean): Promise<void> {
      const task = await tasks.require(caller, taskId, 'task_delete')
      if (force) await stopAll(task.key)
      await tasks.remove(task)
    },

    async results(caller: TaskCaller, taskId: string) {
      const task = await tasks.get(caller, taskId)
      const run = await findDrivingRun(database.db, task.key)
      if (run === undefined) return { state: task.state, results: null, error: null, reason: null, runId: null }
      if (run.isGroup) {
        const { state, error, reason, id } = run
        return { state, results: await presentParts(id), error, reason, runId: id }
      }
      const hasResult = run.state !== TASK_STATE.scheduled && run.state !== TASK_STATE.running
      return {
        state: run.state,
        results: hasResult ? await readResult(database.db, run) : null,
        error: run.error,
        reason: run.reason,
        runId: run.id,
      }
    },

    async list(caller: TaskCaller, taskId: string, page: { offset: number; limit: number }) {
      const task = await tasks.require(caller, taskId, 'task_read')
      return await listRuns(database.db, task.key, page)
    },

    async get(caller: TaskCaller, taskId: string, runId: string) {
      const task = await tasks.require(caller, taskId, 'task_read')
      const run = await requireRun(task.key, runId)
      return { run, results: await readResult(database.db, run) }
    },

    /** Output of a run, of the task's last start when none is named. */
    async logs(
      caller: TaskCaller,
      taskId: string,
      query: { runId: string | undefined; stream: 1 | 2 | undefined },
    ): Promise<string> {
      const task = await tasks.require(caller, taskId, 'task_read')
      const run =
        query.runId === undefined
          ? await findDrivingRun(database.db, task.key)
          : await requireRun(task.key, query.runId)
      return run === undefined ? '' : await readLogs(database.db, run.key, query.stream)
    },

    /** Whose output is followed, and what of it. Throws `not_found` for a task that was never started. */
    async logSource(
      caller: TaskCaller,
      taskId: string,
      query: { runId: string | undefined; stream: 1 | 2 | undefined },
    ): Promise<LogSource> {
      const task = await tasks.require(caller, taskId, 'task_read')
      const run =
        query.runId === undefined
          ? await findDrivingRun(database.db, task.key)
          : await requireRun(task.key, query.runId)
      if (run === undefined) throw new ServiceError('not_found', 'the task has not been started')
      return { taskId: task.id, domainId: task.domainId, runKey: run.key, stream: query.stream }
    },

    /** The output as it comes, for as long as the caller may read the task. */
    async followLogs(
      { taskId, ...source }: LogSource,
      authenticate: () => Promise<TaskCaller>,
      reader: LogReader,
    ): Promise<{ close(): void }> {
      const authorize = async () => await tasks.require(await authenticate(), taskId, 'task_read')
      return await following.follow({ ...source, authorize, reader })
    },

    close(): void {
      following.close()
      clearInterval(poll)
    },
  }
}

export type LogSource = Pick<LogFollower, 'runKey' | 'domainId' | 'stream'> & { taskId: string }

/** Who starts, in place of the user of an Idempotency-Key: users have positive keys. */
const ORIGINS = { schedule: -1, message: -2, workflow: -3 } as const

export type SystemStart = {
  taskId: string
  domainId: string | null
  origin: keyof typeof ORIGINS
  /** What is started, such as the time of a tick: once. */
  key: string
  drivesTask: boolean
  overrides?: RunOverrides
  trigger?: TriggerMessage
  /** Made before by who must know it. */
  runId?: string
}

/** Scope: caller and task (contract decision 54). Without a principal all callers are one. */
function idempotencyOf(caller: TaskCaller, key: string, body: RunBody | null | undefined) {
  if (key.length === 0 || key.length > MAX_IDEMPOTENCY_KEY_CHARS) {
    throw new ServiceError('malformed', `Idempotency-Key must have 1 to ${MAX_IDEMPOTENCY_KEY_CHARS} characters`)
  }
  const { inputs, cli_args: cliArgs, env } = body ?? {}
  const canonical = JSON.stringify([
    inputs ?? null,
    cliArgs ?? null,
    Object.entries(env ?? {}).toSorted(([left], [right]) => (left < right ? -1 : 1)),
  ])
  return { userKey: caller?.key ?? 0, key, bodyDigest: createHash('sha256').update(canonical).digest('hex') }
}
