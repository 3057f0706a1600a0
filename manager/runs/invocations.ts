/** Invocations: runs whose caller waits for the result, one or many per call (task-manager.md section 1). */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs, parseDurationMs, sleep } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskCaller } from '../access/access.ts'
import { userCause } from '../model/cause.ts'
import type { RunCause } from '../model/cause.ts'
import type { EndedRun } from '../model/run.ts'
import type { RunOverrides, StartRequest, StartedRun } from '../model/start.ts'
import { findRunKey, readResult } from '../store/runs.ts'
import type { TaskIdentity } from '../store/tasks.ts'
import type { TasksService } from '../tasks/service.ts'
import { AwaitedEnds, type RunEndings } from '../writer/endings.ts'
import { NoWorkerFits } from '../writer/fitting-workers.ts'
import { idempotencyOf } from './idempotency.ts'
import { overridesOf } from './overrides.ts'
import type { Invocation, InvokeManyBody, RunBody } from './schema.ts'
import type { RunStarter } from './starter.ts'

export type InvocationsDeps = {
  database: Database
  tasks: TasksService
  starter: RunStarter
  endings: RunEndings
  /** The reason why no worker fits, as far as this caller can see it. */
  explainUnfit: (caller: TaskCaller, taskId: string) => Promise<ServiceError>
  newId: () => string
}

/** Default wait of a caller for results. */
const DEFAULT_WAIT_MS = 60_000
const MAX_WAIT_MS = 3_600_000
/** A caller that waits for less learns of the run before it has ended. */
const MIN_AWAITED_MS = 200
/** Longest wait of a call for a fitting worker, and the polling interval. */
const MAX_FIT_WAIT_MS = 60_000
const FIT_AGAIN_MS = 250
/** Waiting calls of this process, and per domain. */
const MAX_WAITING = 4000
const MAX_WAITING_PER_DOMAIN = 1000
/** Total of the results in one answer; results beyond it, and results stored in parts, are only in their runs. */
const MAX_SHOWN_BYTES = 16 * 1024 * 1024

/** Deadlines for the results and for a fitting worker. */
type Waits = { waitMs: number; fitWaitMs: number }

/** `traceparent`: place of the caller in a trace; `idempotency`: of a single run. */
type Begin = Waits & { traceparent: string | undefined; idempotency?: StartRequest['idempotency'] }
/** A started run; `ended` undefined: not within the deadline. */
type Begun = { runId: string; ended: EndedRun | undefined }

export class Invocations {
  readonly #deps: InvocationsDeps
  readonly #slots = new Slots({ what: 'calls that wait for runs', max: MAX_WAITING, share: MAX_WAITING_PER_DOMAIN })

  constructor(deps: InvocationsDeps) {
    this.#deps = deps
  }

  /**
   * Starts one run and returns its result. Throws `timeout` with the id of the run, which continues, and `invalid_state`
   * with the reasons why no worker fits. A repeated key waits for the run that the first call started, at any manager.
   */
  async invoke(
    caller: TaskCaller,
    taskId: string,
    body: (RunBody & { timeout?: string; wait?: string }) | null | undefined,
    { traceparent, idempotencyKey }: { traceparent?: string | undefined; idempotencyKey?: string | undefined } = {},
  ) {
    const begin = { ...waitsOf(body ?? {}), traceparent, idempotency: idempotencyOf(caller, idempotencyKey, body) }
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    const [begun] = await this.#run(caller, task, [overridesOf(body)], begin)
    if (begun === undefined || begun instanceof Error) throw begun ?? new Error('nothing was started')
    const { runId, ended } = begun
    if (ended !== undefined) return { ...ended, results: await this.#resultOf(ended) }
    throw new ServiceError(
      'timeout',
      `run ${runId} has not ended yet; its result will be at /tasks/${task.id}/runs/${runId}`,
      { details: [{ path: 'run_id', message: runId }] },
    )
  }

  /**
   * Starts a run for each of the inputs and returns when all have ended or the deadline has passed; unfinished runs
   * continue. Throws the error of the first one if none could be started.
   */
  async invokeMany(
    caller: TaskCaller,
    taskId: string,
    body: InvokeManyBody,
    traceparent?: string,
  ): Promise<Invocation[]> {
    const begin = { ...waitsOf(body), traceparent }
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    const { inputs, ...shared } = body
    const overrides = inputs.map((own) => overridesOf({ ...shared, inputs: own }))
    let shownBytes = 0
    return (await this.#run(caller, task, overrides, begin)).map((begun): Invocation => {
      if (begun instanceof Error) return refused(begun)
      const { runId, ended } = begun
      if (ended === undefined) return { ...NOTHING, runId, state: TASK_STATE.scheduled }
      const resultBytes = ended.staged?.sizeBytes ?? (ended.results === null ? 0 : Buffer.byteLength(ended.results))
      shownBytes += resultBytes
      if (ended.staged !== null || shownBytes > MAX_SHOWN_BYTES) return { ...ended, results: null, resultBytes }
      return { ...ended, results: parsed(ended.results) }
    })
  }

  /** Starts runs and waits: each with its outcome or error, and with its end if it came in time. */
  async #run(
    caller: TaskCaller,
    task: TaskIdentity,
    overrides: readonly RunOverrides[],
    begin: Begin,
  ): Promise<(Begun | Error)[]> {
    try {
      return await this.#slots.run(task.domainId, () =>
        this.#runInSlot(task, overrides, { ...begin, cause: userCause(caller) }),
      )
    } catch (error) {
      throw error instanceof NoWorkerFits ? await this.#deps.explainUnfit(caller, task.id) : error
    }
  }

  async #runInSlot(
    task: TaskIdentity,
    overrides: readonly RunOverrides[],
    { waitMs, fitWaitMs, traceparent, idempotency, cause }: Begin & { cause: RunCause },
  ): Promise<(Begun | Error)[]> {
    const { starter, endings, newId } = this.#deps
    const awaited = new AwaitedEnds(endings)
    let untilMs = 0
    const submissions = overrides.map((own) => ({
      runId: newId(),
      overrides: own,
      drivesTask: false,
      cause,
      needsWorker: true,
      isAwaited: waitMs >= MIN_AWAITED_MS,
      idempotency,
      traceparent,
    }))
    const fitByMs = monotonicMs() + fitWaitMs
    const start = () => {
      untilMs = monotonicMs() + waitMs
      return starter.startMany(task, submissions, ({ runKey, ended }) => {
        if (runKey !== undefined && ended === undefined) awaited.add(runKey)
      })
    }
    let started = await start()
    while (started.every((one) => one instanceof NoWorkerFits) && monotonicMs() < fitByMs) {
      await sleep(Math.min(FIT_AGAIN_MS, Math.max(0, fitByMs - monotonicMs())))
      started = await start()
    }
    const [first] = started
    if (first instanceof Error && started.every((one) => one instanceof Error)) throw first
    const known = await this.#awaitRepeated(started, awaited)
    const ends = await awaited.within(Math.max(0, untilMs - monotonicMs()))
    return started.map((one) => {
      if (one instanceof Error) return one
      if (one.ended !== undefined) return { runId: one.runId, ended: one.ended }
      const runKey = one.runKey ?? known.get(one.runId)
      return { runId: one.runId, ended: runKey === undefined ? undefined : ends.get(runKey) }
    })
  }

  /** Runs that an earlier call started, perhaps at another manager; returns their keys by id. Throws `not_found`. */
  async #awaitRepeated(started: readonly (StartedRun | Error)[], awaited: AwaitedEnds): Promise<Map<string, number>> {
    const keys = new Map<string, number>()
    for (const one of started) {
      if (one instanceof Error || one.runKey !== undefined) continue
      const runKey = await findRunKey(this.#deps.database.db, one.runId)
      if (runKey === undefined) throw new ServiceError('not_found', `run ${one.runId} of this key was deleted`)
      awaited.add(runKey)
      keys.set(one.runId, runKey)
    }
    return keys
  }

  async #resultOf({ staged, results }: EndedRun): Promise<unknown> {
    if (staged === null) return parsed(results)
    return await readResult(this.#deps.database.db, { results: null, resultDigest: staged.digest })
  }
}

const NOTHING = { workerId: null, durationMs: null, reason: null, error: null, frames: [], results: null } as const

/** An error that is not a ServiceError fails the whole call. */
function refused(error: Error): Invocation {
  if (!(error instanceof ServiceError) || error.kind === 'internal') throw error
  return { ...NOTHING, runId: null, state: null, error: error.message }
}

function parsed(text: string | null): unknown {
  return text === null ? null : (JSON.parse(text) as unknown)
}

function waitsOf({ timeout, wait }: { timeout?: string; wait?: string }): Waits {
  const waitMs = timeout === undefined ? DEFAULT_WAIT_MS : parseDurationMs(timeout, '/timeout')
  if (waitMs < 1 || waitMs > MAX_WAIT_MS) throw refusedField('/timeout', 'must be between 1ms and 1h')
  const fitWaitMs = wait === undefined ? 0 : parseDurationMs(wait, '/wait')
  if (fitWaitMs > MAX_FIT_WAIT_MS) throw refusedField('/wait', 'must be between 0s and 60s')
  return { waitMs, fitWaitMs }
}
