/** Starts, stops and reads runs. The task of a run determines the permissions. */
import type { Actor } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { isId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskState } from '#proto/index.ts'
import type { Claims, ContentRef, GivenMessages } from '#queues/index.ts'
import { visibleIn } from '../access/access.ts'
import type { TaskAccess, TaskCaller } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { userCause } from '../model/cause.ts'
import type { RunCause } from '../model/cause.ts'
import type { RunOverrides, StartedRun } from '../model/start.ts'
import {
  findDrivingRun,
  findNewestRun,
  findRun,
  findRunInputs,
  listParts,
  listRuns,
  readLogs,
  readResult,
  searchRuns,
  type RunRecord,
} from '../store/runs.ts'
import type { TasksService } from '../tasks/service.ts'
import { createLogFollowers, type LogFollower, type LogFollowers, type LogReader } from './follow-logs.ts'
import { idempotencyOf } from './idempotency.ts'
import { overridesOf } from './overrides.ts'
import type { LogStreamNumber } from '../model/log-streams.ts'
import type { RunBody, RunsQuery } from './schema.ts'
import type { RunStarter } from './starter.ts'

export type RunsDeps = {
  database: Database
  access: TaskAccess
  tasks: TasksService
  starter: RunStarter
  /** Resolves when every run of the task has ended. */
  stopRuns: (taskKey: number, recordedFor?: Actor) => Promise<void>
  newId: () => string
  logger: Logger
}

/** The output to read: of the given run, else of the newest; of the given stream, else of all. */
export type LogSelection = { runId: string | undefined; stream: LogStreamNumber | undefined }
export type LogSource = Pick<LogFollower, 'runKey' | 'domainId' | 'stream'> & { taskId: string }

/** Origins of starts in place of a user key: users have positive keys. */
const ORIGINS = { schedule: -1, message: -2, workflow: -3, command: -4 } as const

export type SystemStart = {
  taskId: string
  domainId: string | null
  origin: keyof typeof ORIGINS
  /** Idempotency key of the start, such as the time of a tick. */
  key: string
  drivesTask: boolean
  cause: RunCause
  overrides?: RunOverrides
  trigger?: GivenMessages
  /** See `StartRequest`. */
  contents?: readonly (ContentRef | null)[]
  claims?: Claims
  /** Place of its cause in a trace. */
  traceparent?: string | undefined
  /** The id is assigned before, if the caller must know it. */
  runId?: string
}

export class RunsService {
  readonly #deps: RunsDeps
  readonly #following: LogFollowers

  constructor(deps: RunsDeps) {
    this.#deps = deps
    this.#following = createLogFollowers(deps)
  }

  /** Queues one run; the task's state follows it. Throws `invalid_state` while another run is active. */
  async start(
    caller: TaskCaller,
    taskId: string,
    body: RunBody | null | undefined,
    idempotencyKey: string | undefined,
    traceparent?: string,
  ): Promise<{ runId: string }> {
    const { tasks, starter, newId } = this.#deps
    const task = await tasks.require(caller, taskId, 'task_start')
    return await starter.start(task, {
      runId: newId(),
      overrides: overridesOf(body),
      drivesTask: true,
      cause: userCause(caller),
      traceparent,
      idempotency: idempotencyOf(caller, idempotencyKey, body),
      recordedFor: actorOf(caller),
    })
  }

  /** A start by a schedule, a workflow, a message or a command. The same key starts once. */
  async startFor(start: SystemStart): Promise<StartedRun> {
    const {
      taskId,
      domainId,
      origin,
      key,
      drivesTask,
      cause,
      overrides = {},
      trigger,
      contents,
      claims,
      traceparent,
    } = start
    const { runId = this.#deps.newId() } = start
    const idempotency = { userKey: ORIGINS[origin], key, bodyDigest: '' }
    const task = { id: taskId, domainId }
    return await this.#deps.starter.start(task, {
      runId,
      overrides,
      drivesTask,
      cause,
      idempotency,
      trigger,
      contents,
      claims,
      traceparent,
    })
  }

  /** Stops all active runs of the task. */
  async stopFor(taskKey: number): Promise<void> {
    await this.#deps.stopRuns(taskKey)
  }

  /** Resolves when every run of the task has ended: confirmed by its worker, or forced at the deadline. */
  async stop(caller: TaskCaller, taskId: string): Promise<void> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    await this.#deps.stopRuns(task.key, actorOf(caller))
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

  async list(caller: TaskCaller, taskId: string, range: PageRange) {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    return await listRuns(this.#deps.database.db, task.key, range)
  }

  /**
   * Runs of every task that the caller can read. Throws `forbidden` for a domain in which they may not read tasks,
   * `malformed` for a filter that is no id.
   */
  async search(caller: TaskCaller, query: RunsQuery) {
    const { access, database } = this.#deps
    const ids = ['task_id', 'worker_id', 'channel_id', 'user_id', 'workflow_id', 'replay_id'] as const
    for (const name of ids)
      if (query[name] !== undefined && !isId(query[name])) throw refusedField(name, 'must be a UUID')
    const domains = await visibleIn(access, caller, query.domain_id)
    return await searchRuns(database.db, {
      domains,
      taskId: query.task_id,
      workerId: query.worker_id,
      states: (query.state?.split(',') ?? []).map((state) => Number(state) as TaskState),
      reason: query.reason,
      cause: query.cause,
      channelId: query.channel_id,
      message: query.message,
      userId: query.user_id,
      workflowId: query.workflow_id,
      replayId: query.replay_id,
      from: query.from,
      to: query.to,
      cursor: query.cursor,
      offset: query.offset,
      limit: query.limit,
    })
  }

  async get(caller: TaskCaller, taskId: string, runId: string) {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#require(task.key, runId)
    const { db } = this.#deps.database
    const [results, inputs] = await Promise.all([readResult(db, run), findRunInputs(db, run.key)])
    return { run, results, inputs }
  }

  async logs(caller: TaskCaller, taskId: string, { runId, stream }: LogSelection): Promise<string | Buffer> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#selected(task.key, runId)
    return run === undefined ? '' : await readLogs(this.#deps.database.db, run.key, stream)
  }

  /** The run whose output is followed. Throws `not_found` for a task without a run. */
  async logSource(caller: TaskCaller, taskId: string, { runId, stream }: LogSelection): Promise<LogSource> {
    const task = await this.#deps.tasks.require(caller, taskId, 'task_read')
    const run = await this.#selected(task.key, runId)
    if (run === undefined) throw new ServiceError('not_found', 'the task has no runs: start or invoke it')
    return { taskId: task.id, domainId: task.domainId, runKey: run.key, stream }
  }

  /** Follows the output while the caller can read the task. */
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

  /** The run with this id; without an id the newest one of any kind. */
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

  /** The runs of a broadcast, each with its worker. */
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
