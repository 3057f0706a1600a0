/**
 * Advances workflows: when a run of one of their tasks ends here, and at intervals for ends at other managers. Every change is
 * conditional and every run has a predetermined id, so that several managers, or one that died halfway, start nothing twice. Domains
 * take turns, and an advance is a bounded step: a domain with long or wide workflows delays those of another by one step.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import { requireNextState } from '../model/lifecycle.ts'
import { readResult } from '../store/runs.ts'
import type { RunsService } from '../runs/service.ts'
import type { RunInput } from '../model/task-fields.ts'
import { DomainTurns } from './domain-turns.ts'
import { planSteps } from './plan.ts'
import { pickResult, parseResultReference } from '../model/result-references.ts'
import { needsAction, recordIn } from '../store/refusals.ts'
import { endRun, refuseStep } from '../store/workflows.ts'
import { beginSteps, endSteps, findOpenSteps, findStartedSteps, skipSteps, takeDue } from '../store/workflow-steps.ts'
import type { OpenSteps, StartedStep, StepProgress } from '../store/workflow-steps.ts'

export type EngineDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  /** Polling interval for ends at other managers. */
  intervalMs: number
}

/** If a manager dies after it took a run of a workflow, another one takes it after this. */
const CHECK_MS = 2_000
/** Workflows that are advanced at a time: an advance mostly waits for the database. */
const MAX_AT_A_TIME = 4
/** Steps that one advance starts. */
const MAX_STARTED = 20
/** Steps of open runs in memory, without their inputs. */
const MAX_KNOWN_STEPS = 50_000

export class WorkflowEngine {
  readonly #deps: EngineDeps
  readonly #db: Queryable
  readonly #rounds: ReturnType<typeof startRounds>
  /** Runs of steps that were started here, with the runs of their workflows, which advance when they end. */
  readonly #watched = new Map<string, { domainId: string | null; key: number }>()
  /** The steps of open runs as they were left, so that an advance reads only those that are started. */
  readonly #known = new BoundedCache<number, OpenSteps>({
    maxSize: MAX_KNOWN_STEPS,
    sizeOf: ({ steps }) => steps.length,
  })
  readonly #turns = new DomainTurns()
  readonly #advancing = new Set<number>()
  /** Ended steps of runs that were being advanced. */
  readonly #again = new Set<number>()
  readonly #working = new Set<Promise<void>>()
  #isStopped = false

  /** Starts the first round. */
  constructor(deps: EngineDeps) {
    this.#deps = deps
    this.#db = deps.database.db
    this.#rounds = startRounds(() => this.#look())
  }

  /** Looks for due runs now, such as one that was just started. */
  wake(): void {
    this.#rounds.wake()
  }

  /** A run ended here. */
  ended(runId: string): void {
    const workflow = this.#watched.get(runId)
    if (workflow === undefined) return
    this.#turns.add(workflow.domainId, workflow.key)
    this.#serve()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#rounds.stop()
    await Promise.all(this.#working)
  }

  async #look() {
    const { logger, intervalMs } = this.#deps
    try {
      for (const { domainId, key } of await takeDue(this.#db, CHECK_MS)) this.#turns.add(domainId, key)
      this.#serve()
      return { pauseMs: intervalMs, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check workflows; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  }

  #serve(): void {
    while (!this.#isStopped && this.#working.size < MAX_AT_A_TIME) {
      const next = this.#turns.take()
      if (next === undefined) return
      if (this.#advancing.has(next.key)) {
        this.#again.add(next.key)
        continue
      }
      this.#advancing.add(next.key)
      const working = this.#take(next).finally(() => {
        this.#working.delete(working)
        this.#advancing.delete(next.key)
        if (this.#again.delete(next.key)) this.#turns.add(next.domainId, next.key)
        this.#serve()
      })
      this.#working.add(working)
    }
  }

  /** Never rejects. */
  async #take({ key }: { key: number }): Promise<void> {
    try {
      if (await this.#advance(key)) this.#again.add(key)
    } catch (error) {
      this.#known.delete(key)
      this.#deps.logger.warn({ err: error }, 'failed to advance a workflow; retrying')
    }
  }

  /** Safe to repeat: the run has the id of the step. False if it was refused, and the step has failed. */
  async #launch(run: OpenSteps, step: StepProgress, given: readonly RunInput[]): Promise<boolean> {
    this.#watched.set(step.runId, { domainId: run.domainId, key: run.key })
    try {
      const inputs = await this.#fillIn(given, run)
      await this.#deps.runs.startFor({
        taskId: step.taskId,
        domainId: run.domainId,
        origin: 'workflow',
        key: `workflow ${run.id}`,
        drivesTask: true,
        cause: { type: 'workflow', workflow_id: run.workflowId, workflow_run_id: run.id },
        overrides: { inputs },
        runId: step.runId,
      })
      return true
    } catch (error) {
      this.#watched.delete(step.runId)
      if (!(error instanceof ServiceError) || error.kind === 'unavailable' || error.kind === 'timeout') throw error
      await this.#refuse(run, step, error)
      return false
    }
  }

  /** The step has failed, and so has its task: with a run that never began, which says why. */
  async #refuse(run: OpenSteps, step: StepProgress, refusal: ServiceError): Promise<void> {
    const { key: runKey, id, workflowId } = run
    const { taskKey } = step
    const reason = refusal.message
    await this.#deps.database.transaction(async (tx) => {
      const cause = { type: 'workflow', workflow_id: workflowId, workflow_run_id: id } as const
      if (!(await refuseStep(tx, { runKey, taskKey, reason, cause }))) return
      await recordIn(tx, [{ taskKey, source: 'workflow', reason, count: 1, needsAction: needsAction(refusal) }])
    })
    this.#deps.logger.info({ workflow: workflowId, task: step.taskId, reason }, 'a step of a workflow was refused')
  }

  /** The inputs with the results of parents. Throws `unprocessable` for a missing result. */
  async #fillIn(inputs: readonly RunInput[], run: OpenSteps): Promise<RunInput[]> {
    const filled: RunInput[] = []
    for (const input of inputs) {
      const reference = parseResultReference(input)
      if (reference === undefined) {
        filled.push(input)
        continue
      }
      const parent = run.byName.get(reference.from)
      const results = parent === undefined ? null : await this.#resultsOf(parent.runId)
      const value = pickResult(results, reference)
      if (value === undefined)
        throw new ServiceError('unprocessable', `task ${reference.from} has no result ${reference.result}`)
      filled.push(value)
    }
    return filled
  }

  async #resultsOf(runId: string): Promise<unknown> {
    const { rows } = await sql<{ results: unknown; resultDigest: string | null }>`
      SELECT results, result_digest AS "resultDigest" FROM runs WHERE id = ${runId}`.execute(this.#db)
    const [row] = rows
    return row === undefined ? null : await readResult(this.#db, row)
  }

  /** Processes ended steps, then starts the next ones. True if there is more to do at once. */
  async #advance(key: number): Promise<boolean> {
    const started = await findStartedSteps(this.#db, key)
    const run = started === undefined ? undefined : await this.#stepsOf(key, started)
    if (started === undefined || run === undefined) {
      this.#forget(key)
      return false
    }
    const isCurrent = (await this.#end(run, started)) && (await this.#skip(run))
    if (!isCurrent) return this.#readAgain(key)
    const begun = await this.#begin(run, started)
    if (begun !== 'waiting') return begun === 'changed' ? this.#readAgain(key) : true
    const { end } = planSteps(run.steps)
    if (end === undefined) return false
    await endRun(this.#db, key, end)
    this.#forget(key)
    return false
  }

  #readAgain(key: number): true {
    this.#known.delete(key)
    return true
  }

  #forget(key: number): void {
    for (const step of this.#known.get(key)?.steps ?? []) this.#watched.delete(step.runId)
    this.#known.delete(key)
  }

  /** What is known of the run, unless another manager has changed it: then other steps are started than is known. */
  async #stepsOf(key: number, started: readonly StartedStep[]): Promise<OpenSteps | undefined> {
    const known = this.#known.get(key)
    const keys = new Set(started.map(({ taskKey }) => taskKey))
    const open = known?.steps.filter(({ state }) => state === TASK_STATE.scheduled)
    if (open?.length === keys.size && open.every(({ taskKey }) => keys.has(taskKey))) return known
    const run = await findOpenSteps(this.#db, key)
    if (run !== undefined) this.#known.set(key, run)
    return run
  }

  /** False if another manager has changed one of the steps. */
  async #end(run: OpenSteps, started: readonly StartedStep[]): Promise<boolean> {
    const ends = started.flatMap(({ taskKey, runState }) => (runState === null ? [] : [{ taskKey, state: runState }]))
    if (ends.length === 0) return true
    const moved = await endSteps(this.#db, run.key, ends)
    for (const { taskKey, state } of ends) {
      const step = run.byTask.get(taskKey)
      if (step === undefined) return false
      this.#watched.delete(step.runId)
      step.state = state
    }
    return moved === ends.length
  }

  /** Skips steps, and those that are skipped because of them. False if another manager has changed one of them. */
  async #skip(run: OpenSteps): Promise<boolean> {
    for (;;) {
      const skipped = planSteps(run.steps).skip.map((name) => run.byName.get(name) as StepProgress)
      if (skipped.length === 0) return true
      const moved = await skipSteps(
        this.#db,
        run.key,
        skipped.map(({ taskKey }) => taskKey),
        SKIPPED,
      )
      if (moved !== skipped.length) return false
      for (const step of skipped) step.state = SKIPPED
    }
  }

  /**
   * Starts steps, and again those whose run is missing. `more`: a step was refused, or more than some can start. `changed`: another manager
   * has changed one of them. `waiting`: nothing can be done before a run ends.
   */
  async #begin(run: OpenSteps, started: readonly StartedStep[]): Promise<'more' | 'changed' | 'waiting'> {
    const launches: Promise<boolean>[] = started.flatMap(({ taskKey, runExists, inputs }) => {
      const step = run.byTask.get(taskKey)
      return runExists || step === undefined ? [] : [this.#launch(run, step, inputs ?? [])]
    })
    const ready = planSteps(run.steps).start.map((name) => run.byName.get(name) as StepProgress)
    const some = ready.slice(0, MAX_STARTED)
    const begun =
      some.length === 0
        ? []
        : await beginSteps(
            this.#db,
            run.key,
            some.map(({ taskKey }) => taskKey),
          )
    for (const { taskKey, inputs } of begun) {
      const step = run.byTask.get(taskKey) as StepProgress
      step.state = TASK_STATE.scheduled
      launches.push(this.#launch(run, step, inputs))
    }
    const settled = await Promise.allSettled(launches)
    const failed = settled.find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
    const hasRefused = settled.some((one) => one.status === 'fulfilled' && !one.value)
    if (hasRefused || begun.length < some.length) return 'changed'
    return ready.length > some.length ? 'more' : 'waiting'
  }
}

/** A task becomes skipped from scheduled, which it enters when its turn comes (task-manager.md section 2). */
const SKIPPED = requireNextState(requireNextState(TASK_STATE.pending, 'start'), 'skip')
