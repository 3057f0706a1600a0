/**
 * Drives workflows on: looks at runs of workflows when a run of one of their tasks ends here, and at intervals for what
 * ended elsewhere. Every move is conditional and every run has an id made beforehand, so that several managers, or one
 * that died halfway, start nothing twice.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { startRounds } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import { requireNextState } from '../model/lifecycle.ts'
import { readResult } from '../store/runs.ts'
import type { RunsService } from '../runs/service.ts'
import type { RunInput } from '../model/task-fields.ts'
import { planSteps } from './plan.ts'
import { pickResult, referenceOf } from '../model/references.ts'
import { endRun, findOpenRun, markSkipped, moveStep, takeDue } from '../store/workflows.ts'
import type { StepRecord, WorkflowRunRecord } from '../store/workflows.ts'

export type EngineDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  /** How often is looked for what ended at other managers. */
  intervalMs: number
}

/** Who takes a run of a workflow and dies is followed by another one after this. */
const CHECK_MS = 2_000

export class WorkflowEngine {
  readonly #deps: EngineDeps
  readonly #db: Queryable
  readonly #rounds: ReturnType<typeof startRounds>
  /** Runs of steps that were started here: when one ends, its workflow goes on at once. */
  readonly #watched = new Set<string>()
  #isWoken = false

  /** Begins to look at once. */
  constructor(deps: EngineDeps) {
    this.#deps = deps
    this.#db = deps.database.db
    this.#rounds = startRounds(() => this.#look())
  }

  /** There is something to do: looks now. */
  wake(): void {
    this.#isWoken = true
    this.#rounds.wake()
  }

  /** A run ended here. */
  ended(runId: string): void {
    if (this.#watched.has(runId)) this.wake()
  }

  async stop(): Promise<void> {
    await this.#rounds.stop()
  }

  async #look() {
    const { logger, intervalMs } = this.#deps
    const isAll = this.#isWoken
    this.#isWoken = false
    try {
      for (const key of await takeDue(this.#db, isAll, CHECK_MS)) {
        try {
          while (await this.#advance(key));
        } catch (error) {
          logger.warn({ err: error }, 'failed to advance a workflow; retrying')
        }
      }
      return { pauseMs: intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to look at workflows; trying again')
      return { pauseMs: intervalMs, isPokable: false }
    }
  }

  async #start(run: WorkflowRunRecord, step: StepRecord): Promise<void> {
    const { key } = run
    if (!(await moveStep(this.#db, key, step.taskKey, { from: TASK_STATE.pending, to: TASK_STATE.scheduled }))) return
    await this.#launch(run, step)
  }

  /** Repeats itself harmlessly: the run's id is the step's. */
  async #launch(run: WorkflowRunRecord, step: StepRecord): Promise<void> {
    this.#watched.add(step.runId)
    try {
      const inputs = await this.#fillIn(step, run.steps)
      await this.#deps.runs.startFor({
        taskId: step.taskId,
        domainId: run.domainId,
        origin: 'workflow',
        key: `workflow ${run.id}`,
        drivesTask: true,
        overrides: { inputs },
        runId: step.runId,
      })
    } catch (error) {
      this.#watched.delete(step.runId)
      if (!(error instanceof ServiceError) || error.kind === 'unavailable' || error.kind === 'timeout') throw error
      await moveStep(this.#db, run.key, step.taskKey, {
        from: TASK_STATE.scheduled,
        to: TASK_STATE.failed,
        error: error.message,
      })
    }
  }

  /** The step's inputs with the results of its parents. Throws `unprocessable` for a result that is not there. */
  async #fillIn(step: StepRecord, steps: readonly StepRecord[]): Promise<RunInput[]> {
    const filled: RunInput[] = []
    for (const input of step.inputs) {
      const reference = referenceOf(input)
      if (reference === undefined) {
        filled.push(input)
        continue
      }
      const parent = steps.find(({ name }) => name === reference.from)
      const results = parent === undefined ? null : await this.#resultsOf(parent.runId)
      const value = pickResult(results, reference)
      if (value === undefined)
        throw new ServiceError('unprocessable', `task ${reference.from} gave no result ${reference.result}`)
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

  /** One look at one run: takes in what ended, then does what follows. True when something moved. */
  async #advance(key: number): Promise<boolean> {
    const run = await findOpenRun(this.#db, key)
    if (run === undefined) return false
    let hasMoved = false
    for (const step of run.steps) {
      if (step.state !== TASK_STATE.scheduled) continue
      if (step.runState !== null) {
        this.#watched.delete(step.runId)
        const moved = await moveStep(this.#db, key, step.taskKey, { from: TASK_STATE.scheduled, to: step.runState })
        hasMoved = moved || hasMoved
        step.state = step.runState
      } else if (!step.runExists) await this.#launch(run, step)
    }
    const plan = planSteps(run.steps)
    const named = (name: string) => run.steps.find((step) => step.name === name) as StepRecord
    for (const name of plan.skip) {
      const { taskKey } = named(name)
      if (!(await moveStep(this.#db, key, taskKey, { from: TASK_STATE.pending, to: SKIPPED }))) continue
      await markSkipped(this.#db, taskKey)
      hasMoved = true
    }
    for (const name of plan.start) {
      await this.#start(run, named(name))
      hasMoved = true
    }
    if (plan.end !== undefined) await endRun(this.#db, key, plan.end)
    return hasMoved
  }
}

/** A task is skipped out of scheduled, which it enters when its turn comes (task-manager.md section 2). */
const SKIPPED = requireNextState(requireNextState(TASK_STATE.pending, 'start'), 'skip')
