/**
 * Advances workflows: checks their runs when a run of one of their tasks ends here, and at intervals for ends at other
 * managers. Every change is conditional and every run has a predetermined id, so that several managers, or one that died
 * halfway, start nothing twice.
 */
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
import { planSteps } from './plan.ts'
import { pickResult, parseResultReference } from '../model/result-references.ts'
import { endRun, findOpenRun, markSkipped, moveStep, takeDue } from '../store/workflows.ts'
import type { StepRecord, WorkflowRunRecord } from '../store/workflows.ts'

export type EngineDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  /** Polling interval for ends at other managers. */
  intervalMs: number
}

/** If a manager dies after it took a run of a workflow, another one takes it after this. */
const CHECK_MS = 2_000

export class WorkflowEngine {
  readonly #deps: EngineDeps
  readonly #db: Queryable
  readonly #rounds: ReturnType<typeof startRounds>
  /** Runs of steps that were started here: the workflow advances when one ends. */
  readonly #watched = new Set<string>()
  #isWoken = false

  /** Starts the first round. */
  constructor(deps: EngineDeps) {
    this.#deps = deps
    this.#db = deps.database.db
    this.#rounds = startRounds(() => this.#look())
  }

  /** Starts a round now. */
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
      return { pauseMs: intervalMs, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check workflows; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  }

  async #start(run: WorkflowRunRecord, step: StepRecord): Promise<void> {
    const { key } = run
    if (!(await moveStep(this.#db, key, step.taskKey, { from: TASK_STATE.pending, to: TASK_STATE.scheduled }))) return
    await this.#launch(run, step)
  }

  /** Safe to repeat: the run has the id of the step. */
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
        cause: { type: 'workflow', workflow_id: run.workflowId, workflow_run_id: run.id },
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

  /** The step's inputs with the results of its parents. Throws `unprocessable` for a missing result. */
  async #fillIn(step: StepRecord, steps: readonly StepRecord[]): Promise<RunInput[]> {
    const filled: RunInput[] = []
    for (const input of step.inputs) {
      const reference = parseResultReference(input)
      if (reference === undefined) {
        filled.push(input)
        continue
      }
      const parent = steps.find(({ name }) => name === reference.from)
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

  /** Checks one run: processes ended steps, then starts the next ones. True if any step changed. */
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

/** A task becomes skipped from scheduled, which it enters when its turn comes (task-manager.md section 2). */
const SKIPPED = requireNextState(requireNextState(TASK_STATE.pending, 'start'), 'skip')
