/** Starting, stopping and reading runs. Rights are checked by the task they belong to. */
import { createHash } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TriggerMessage } from '#queues/index.ts'
import type { TaskCaller } from '../access/access.ts'
import type { RunOverrides } from '../model/start.ts'
import {
  findDrivingRun,
  findNewestRun,
  findRun,
  listParts,
  listRuns,
  readLogs,
  readResult,
  type RunRecord,
} from '../store/runs.ts'
import type { TasksService } from '../tasks/service.ts'
import { createLogFollowing, type LogFollower, type LogFollowing, type LogReader } from './follow-logs.ts'
import { overridesOf } from './overrides.ts'
import type { RunBody } from './schema.ts'
import type { RunStarter } from './starter.ts'

export type RunsDeps = {
  database: Database
  tasks: TasksService
  starter: RunStarter
  /** Resolves when every run of the task has ended. */
  stopRuns: (taskKey: number) => Promise<void>
  newId: () => string
  logger: Logger
}

const MAX_IDEMPOTENCY_KEY_CHARS = 255

/** Which output is read: of the task's last start when no run is named, of both streams when none is. */
export type LogSelection = { runId: string | undefined; stream: 1 | 2 | undefined }
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

export class RunsService {
  readonly #deps: RunsDeps
  readonly #following: LogFollowing

  constructor(deps: RunsDeps) {
    this.#deps = deps
    this.#following = createLogFollowing(deps)
  }

  /** Queues one run; the task's state follows it. Throws `invalid_state` while another one is under way. */
  async start(
    caller: TaskCaller,
    taskId: string,
    body: RunBody | null | undefined,
    idempotencyKey: string | undefined,
  ): Promise<{ runId: string }> {
    const { tasks, starter, newId } = this.#deps
    const task = await tasks.require(caller, taskId, 'task_start')
    return await starter.start(task, {
      runId: newId(),
      overrides: overridesOf(body),
      drivesTask: true,
      idempotency: idempotencyKey === undefined ? undefined : idempotencyOf(caller, idempotencyKey, body),
    })
  }

  /** A start that nobody asked for over HTTP: of a schedule, a workflow, a message. With the same key it happens once. */
  async startFor(start: SystemStart): Promise<{ runId: string }> {
    const { taskId, domainId, origin, key, drivesTask, overrides = {}, trigger, runId = this.#deps.newId() } = start
    const idempotency = { userKey: ORIGINS[origin], key, bodyDigest: '' }
    const task = { id: taskId, domainId }
    return await this.#deps.starter.start(task, { runId, overrides, drivesTask, idempotency, trigger })
  }

  /** Ends everything of the task that is under way. */
  async stopFor(taskKey: number): Promise<void> {
    await this.#deps.stopRuns(taskKey)
  }

  /** Resolves when every run of the task has ended: confirmed by its worker, or forced at the deadline. */
  async stop(caller: TaskCaller, taskId: string): Promise<void> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    await this.#deps.stopRuns(task.key)
  }

  async results(caller: TaskCaller, taskId: string) {
    const { database, tasks } = this.#deps
    const task = await tasks.get(caller, taskId)
    const run = await findDrivingRun(database.db, task.key)
    if (run === undefined) return { state: task.state, results: null, error: null, reason: null, runId: null }
    const { state, error, reason, id: runId } = run
    if (run.isBroadcast) return { state, results: await this.#partsOf(runId), error, reason, runId }
    const hasResult = state !== TASK_STATE.scheduled && state !== TASK_STATE.running
    return { state, results: hasResult ? await readResult(database.db, run) : null, error, reason, runId }
  }

  async list(caller: TaskCaller, taskId: string, page: { offset: number; limit: number }) {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    return await listRuns(this.#deps.database.db, task.key, page)
  }

  async get(caller: TaskCaller, taskId: string, runId: string) {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#require(task.key, runId)
    return { run, results: await readResult(this.#deps.database.db, run) }
  }

  async logs(caller: TaskCaller, taskId: string, { runId, stream }: LogSelection): Promise<string> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#selected(task.key, runId)
    return run === undefined ? '' : await readLogs(this.#deps.database.db, run.key, stream)
  }

  /** Whose output is followed, and what of it. Throws `not_found` for a task without a run. */
  async logSource(caller: TaskCaller, taskId: string, { runId, stream }: LogSelection): Promise<LogSource> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#selected(task.key, runId)
    if (run === undefined) throw new ServiceError('not_found', 'the task has no run yet: start or invoke it')
    return { taskId: task.id, domainId: task.domainId, runKey: run.key, stream }
  }

  /** The output as it comes, for as long as the caller may read the task. */
  async followLogs(
    { taskId, ...source }: LogSource,
    authenticate: () => Promise<TaskCaller>,
    reader: LogReader,
  ): Promise<{ close(): void }> {
    const authorize = async () => await this.#deps.tasks.require(await authenticate(), taskId, 'task_read')
    return await this.#following.follow({ ...source, authorize, reader })
  }

  close(): void {
    this.#following.close()
  }

  /** The run with this id; the newest one of any kind when none is named. */
  async #selected(taskKey: number, runId: string | undefined): Promise<RunRecord | undefined> {
    return runId === undefined
      ? await findNewestRun(this.#deps.database.db, taskKey)
      : await this.#require(taskKey, runId)
  }

  async #require(taskKey: number, runId: string): Promise<RunRecord> {
    const run = isId(runId) ? await findRun(this.#deps.database.db, taskKey, runId) : undefined
    if (run === undefined) throw new ServiceError('not_found', 'the task has no such run')
    return run
  }

  /** Parts of a broadcast, each with its worker. */
  async #partsOf(runId: string) {
    const parts = await listParts(this.#deps.database.db, runId)
    return await Promise.all(
      parts.map(async (part) => ({
        worker_id: part.workerId,
        run_id: part.id,
        state: part.state,
        ...(await this.#partResult(part)),
        error: part.error,
        reason: part.reason,
      })),
    )
  }

  async #partResult({ isResultShown, resultBytes, ...result }: RunRecord) {
    if (isResultShown) return { results: await readResult(this.#deps.database.db, result) }
    return { results: null, ...(resultBytes === null ? {} : { result_bytes: resultBytes }) }
  }
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
