/** Invocations: runs that a caller waits for, one or many in one call (task-manager.md section 1). */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs, parseDurationMs, sleep } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskCaller } from '../access/access.ts'
import type { RunOverrides } from '../model/start.ts'
import { readResult } from '../store/runs.ts'
import type { TaskIdentity } from '../store/tasks.ts'
import type { TasksService } from '../tasks/service.ts'
import { AwaitedEnds, type EndedRun, type RunEndings } from '../writer/endings.ts'
import { NoWorkerFits } from '../writer/fitting-workers.ts'
import { overridesOf } from './overrides.ts'
import type { Invocation, InvokeManyBody, RunBody } from './schema.ts'
import type { RunStarter } from './starter.ts'

export type InvocationsDeps = {
  database: Database
  tasks: TasksService
  starter: RunStarter
  endings: RunEndings
  /** Why no worker fits, for this caller. */
  explainUnfit: (caller: TaskCaller, taskId: string) => Promise<ServiceError>
  newId: () => string
}

/** How long a caller waits for results, unless the call says otherwise. */
const DEFAULT_WAIT_MS = 60_000
const MAX_WAIT_MS = 3_600_000
/** How long a call may wait for a worker that fits, and how often it looks. */
const MAX_FIT_WAIT_MS = 60_000
const FIT_AGAIN_MS = 250
/** Calls that wait at this process, and of one domain. */
const MAX_WAITING = 4000
const MAX_WAITING_PER_DOMAIN = 1000
/** Of all results in one answer; those beyond it, and each that is stored in parts, are shown by their runs alone. */
const MAX_SHOWN_BYTES = 16 * 1024 * 1024

/** For the results, and for a worker that fits. */
type Waits = { waitMs: number; fitWaitMs: number }

/** A run that was started; `ended` undefined: not within the time. */
type Begun = { runId: string; ended: EndedRun | undefined }

export class Invocations {
  readonly #deps: InvocationsDeps
  readonly #slots = new Slots({ what: 'calls that wait for runs', max: MAX_WAITING, share: MAX_WAITING_PER_DOMAIN })

  constructor(deps: InvocationsDeps) {
    this.#deps = deps
  }

  /** One run and its result. Throws `timeout` naming the run, which goes on, and `invalid_state` saying why no worker fits. */
  async invoke(
    caller: TaskCaller,
    taskId: string,
    body: (RunBody & { timeout?: string; wait?: string }) | null | undefined,
  ) {
    const waits = waitsOf(body ?? {})
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    const [begun] = await this.#run(caller, task, [overridesOf(body)], waits)
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
   * A run for each of the inputs, told together when all have ended or the time is over; those that have not ended go
   * on. Throws the refusal of the first one when none could be started.
   */
  async invokeMany(caller: TaskCaller, taskId: string, body: InvokeManyBody): Promise<Invocation[]> {
    const waits = waitsOf(body)
    const task = await this.#deps.tasks.require(caller, taskId, 'task_start')
    const { inputs, ...shared } = body
    const overrides = inputs.map((own) => overridesOf({ ...shared, inputs: own }))
    let shownBytes = 0
    return (await this.#run(caller, task, overrides, waits)).map((begun): Invocation => {
      if (begun instanceof Error) return refused(begun)
      const { runId, ended } = begun
      if (ended === undefined) return { ...NOTHING, runId, state: TASK_STATE.scheduled }
      const resultBytes = ended.staged?.sizeBytes ?? (ended.results === null ? 0 : Buffer.byteLength(ended.results))
      shownBytes += resultBytes
      if (ended.staged !== null || shownBytes > MAX_SHOWN_BYTES) return { ...ended, results: null, resultBytes }
      return { ...ended, results: parsed(ended.results) }
    })
  }

  /** Starts them and waits: each with its outcome or refusal, and with its end where that has come in time. */
  async #run(
    caller: TaskCaller,
    task: TaskIdentity,
    overrides: readonly RunOverrides[],
    waits: Waits,
  ): Promise<(Begun | Error)[]> {
    try {
      return await this.#slots.run(task.domainId, () => this.#runInSlot(task, overrides, waits))
    } catch (error) {
      throw error instanceof NoWorkerFits ? await this.#deps.explainUnfit(caller, task.id) : error
    }
  }

  async #runInSlot(
    task: TaskIdentity,
    overrides: readonly RunOverrides[],
    { waitMs, fitWaitMs }: Waits,
  ): Promise<(Begun | Error)[]> {
    const { starter, endings, newId } = this.#deps
    const awaited = new AwaitedEnds(endings)
    const submissions = overrides.map((own) => ({
      runId: newId(),
      overrides: own,
      drivesTask: false,
      needsWorker: true,
      idempotency: undefined,
    }))
    const fitByMs = monotonicMs() + fitWaitMs
    const start = () =>
      starter.startMany(task, submissions, ({ runKey }) => {
        if (runKey !== undefined) awaited.add(runKey)
      })
    let started = await start()
    while (started.every((one) => one instanceof NoWorkerFits) && monotonicMs() < fitByMs) {
      await sleep(Math.min(FIT_AGAIN_MS, Math.max(0, fitByMs - monotonicMs())))
      started = await start()
    }
    const [first] = started
    if (first instanceof Error && started.every((one) => one instanceof Error)) throw first
    const ends = await awaited.within(waitMs)
    return started.map((one) => {
      if (one instanceof Error) return one
      return { runId: one.runId, ended: one.runKey === undefined ? undefined : ends.get(one.runKey) }
    })
  }

  async #resultOf({ staged, results }: EndedRun): Promise<unknown> {
    if (staged === null) return parsed(results)
    return await readResult(this.#deps.database.db, { results: null, resultDigest: staged.digest })
  }
}

const NOTHING = { workerId: null, durationMs: null, reason: null, error: null, results: null } as const

/** What is no refusal of ours is the whole call's. */
function refused(error: Error): Invocation {
  if (!(error instanceof ServiceError) || error.kind === 'internal') throw error
  return { ...NOTHING, runId: null, state: null, error: error.message }
}

function parsed(text: string | null): unknown {
  return text === null ? null : (JSON.parse(text) as unknown)
}

function waitsOf({ timeout, wait }: { timeout?: string; wait?: string }): Waits {
  const waitMs = timeout === undefined ? DEFAULT_WAIT_MS : parseDurationMs(timeout, '/timeout')
  if (waitMs < 1 || waitMs > MAX_WAIT_MS) throw refusedField('/timeout', 'must be 1ms to 1h')
  const fitWaitMs = wait === undefined ? 0 : parseDurationMs(wait, '/wait')
  if (fitWaitMs > MAX_FIT_WAIT_MS) throw refusedField('/wait', 'must be 0s to 60s')
  return { waitMs, fitWaitMs }
}
