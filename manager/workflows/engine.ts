/**
 * Drives workflows on: looks at runs of workflows when a run of one of their tasks ends here, and at intervals for what
 * ended elsewhere. Every move is conditional and every run has an id made beforehand, so that several managers, or one
 * that died halfway, start nothing twice.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { startRounds } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { TASK_STATE } from '#proto/index.ts'
import { requireNextState } from '../lifecycle.ts'
import { readResult } from '../runs/repository.ts'
import type { RunsService } from '../runs/service.ts'
import type { RunInput } from '../runs/spec.ts'
import { planSteps } from './plan.ts'
import { pickResult, referenceOf } from './references.ts'
import { endRun, findOpenRun, markSkipped, moveStep, takeDue } from './repository.ts'
import type { StepRecord, WorkflowRunRecord } from './repository.ts'

export type EngineDeps = {
  database: Database
  runs: Pick<RunsService, 'startFor'>
  logger: Logger
  /** How often is looked for what ended at other managers. */
  intervalMs: number
}

export type WorkflowEngine = ReturnType<typeof startWorkflowEngine>

/** Who takes a run of a workflow and dies is followed by another one after this. */
const CHECK_MS = 2_000

export function startWorkflowEngine({ database, runs, logger, intervalMs }: EngineDeps) {
  const { db } = database
  /** Runs of steps that were started here: when one ends, its workflow goes on at once. */
  const watched = new Set<string>()
  let isPoked = false

  async function start(run: WorkflowRunRecord, step: StepRecord): Promise<void> {
    const { key } = run
    if (!(await moveStep(db, key, step.taskKey, { from: TASK_STATE.pending, to: TASK_STATE.scheduled }))) return
    await launch(run, step)
  }

  /** Repeats itself harmlessly: the run's id is the step's. */
  async function launch(run: WorkflowRunRecord, step: StepRecord): Promise<void> {
    watched.add(step.runId)
    try {
      const inputs = await fillIn(step, run.steps)
      await runs.startFor({
        taskId: step.taskId,
        domainId: run.domainId,
        origin: 'workflow',
        key: `workflow ${run.id}`,
        drivesTask: true,
        overrides: { inputs },
        runId: step.runId,
      })
    } catch (error) {
      watched.delete(step.runId)
      if (!(error instanceof ServiceError) || error.kind === 'unavailable' || error.kind === 'timeout') throw error
      await moveStep(db, run.key, step.taskKey, {
        from: TASK_STATE.scheduled,
        to: TASK_STATE.failed,
        error: error.message,
      })
    }
  }

  /** The step's inputs with the results of its parents. Throws `unprocessable` for a result that is not there. */
  async function fillIn(step: StepRecord, steps: readonly StepRecord[]): Promise<RunInput[]> {
    const filled: RunInput[] = []
    for (const input of step.inputs) {
      const reference = referenceOf(input)
      if (reference === undefined) {
        filled.push(input)
        continue
      }
      const parent = steps.find(({ name }) => name === reference.from)
      const results = parent === undefined ? null : await resultsOf(parent.runId)
      const value = pickResult(results, reference)
      if (value === undefined)
        throw new ServiceError('unprocessable', `task ${reference.from} gave no result ${reference.result}`)
      filled.push(value)
    }
    return filled
  }

  async function resultsOf(runId: string): Promise<unknown> {
    const { rows } = await sql<{ results: unknown; resultDigest: string | null }>`
      SELECT results, result_digest AS "resultDigest" FROM runs WHERE id = ${runId}`.execute(db)
    const [row] = rows
    return row === undefined ? null : await readResult(db, row)
  }

  /** One look at one run: takes in what ended, then does what follows. True when something moved. */
  async function advance(key: number): Promise<boolean> {
    const run = await findOpenRun(db, key)
    if (run === undefined) return false
    let hasMoved = false
    for (const step of run.steps) {
      if (step.state !== TASK_STATE.scheduled) continue
      if (step.runState !== null) {
        watched.delete(step.runId)
        const moved = await moveStep(db, key, step.taskKey, { from: TASK_STATE.scheduled, to: step.runState })
        hasMoved = moved || hasMoved
        step.state = step.runState
      } else if (!step.runExists) await launch(run, step)
    }
    const plan = planSteps(run.steps)
    const named = (name: string) => run.steps.find((step) => step.name === name) as StepRecord
    for (const name of plan.skip) {
      const { taskKey } = named(name)
      if (!(await moveStep(db, key, taskKey, { from: TASK_STATE.pending, to: SKIPPED }))) continue
      await markSkipped(db, taskKey)
      hasMoved = true
    }
    for (const name of plan.start) {
      await start(run, named(name))
      hasMoved = true
    }
    if (plan.end !== undefined) await endRun(db, key, plan.end)
    return hasMoved
  }

  const rounds = startRounds(async () => {
    const isAll = isPoked
    isPoked = false
    try {
      for (const key of await takeDue(db, isAll, CHECK_MS)) {
        try {
          while (await advance(key));
        } catch (error) {
          logger.warn({ err: error }, 'a workflow could not be driven on yet')
        }
      }
      return { pauseMs: intervalMs, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'workflows could not be looked at')
      return { pauseMs: intervalMs, isPokable: false }
    }
  })

  function poke(): void {
    isPoked = true
    rounds.poke()
  }

  return {
    poke,
    /** A run ended here. */
    ended(runId: string): void {
      if (watched.has(runId)) poke()
    },
    stop: () => rounds.stop(),
  }
}

/** A task is skipped out of scheduled, which it enters when its turn comes (task-manager.md section 2). */
const SKIPPED = requireNextState(requireNextState(TASK_STATE.pending, 'start'), 'skip')
