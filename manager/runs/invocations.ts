/** Invocations: runs that a caller waits for, one or many in one call (task-manager.md section 1, decision 0042). */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { parseDurationMs } from '#core/time.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import type { TaskCaller } from '../access.ts'
import type { TasksService } from '../tasks/service.ts'
import { AwaitedEnds, type EndedRun, type RunEndings } from './endings.ts'
import { readResult } from './repository.ts'
import type { InvokeManyBody, RunBody } from './schema.ts'
import type { RunOverrides } from './start-runs.ts'
import { submitRuns, type SubmitDeps, type Submission } from './submit-runs.ts'

export type InvocationsDeps = SubmitDeps & {
  database: Database
  tasks: TasksService
  endings: RunEndings
  newId: () => string
}

/** How long a caller waits unless he says otherwise. */
const DEFAULT_WAIT_MS = 60_000
const MAX_WAIT_MS = 3_600_000
/** Calls that wait at this process, and of one domain. */
const MAX_WAITING = 4000
const MAX_WAITING_PER_DOMAIN = 1000
/** Of all results in one answer; those beyond it, and each that is stored in parts, are shown by their runs alone. */
const MAX_SHOWN_BYTES = 16 * 1024 * 1024

/** One of many: how it ended, where it stands at the deadline, or why it was not started. */
export type Invocation = Pick<EndedRun, 'workerId' | 'durationMs' | 'reason' | 'error'> & {
  runId: string | null
  /** null: it was not started. */
  state: TaskState | null
  results: unknown
  /** Of a result that is not shown here: the run itself shows it. */
  resultBytes?: number
}

export function createInvocations(deps: InvocationsDeps) {
  const { database, tasks, endings, newId } = deps
  const slots = new Slots({
    what: 'calls that wait for runs',
    max: MAX_WAITING,
    share: MAX_WAITING_PER_DOMAIN,
  })

  const submissionOf = (taskId: string, overrides: RunOverrides): Submission => ({
    taskId,
    runId: newId(),
    overrides,
    drivesTask: false,
    idempotency: undefined,
  })

  /** Starts them and waits: each with its outcome or refusal, and with its end where that has come in time. */
  async function run(submissions: readonly Submission[], domainId: string | null, waitMs: number) {
    return await slots.run(domainId, () => runInSlot(submissions, domainId, waitMs))
  }

  async function runInSlot(submissions: readonly Submission[], domainId: string | null, waitMs: number) {
    const awaited = new AwaitedEnds(endings)
    const submitted = await submitRuns(deps, submissions, domainId, ({ runKey }) => {
      if (runKey !== undefined) awaited.add(runKey)
    })
    const [first] = submitted
    if (first instanceof Error && submitted.every((one) => one instanceof Error)) throw first
    const ends = await awaited.within(waitMs)
    return submitted.map((one) => {
      if (one instanceof Error) return one
      return { runId: one.runId, ended: one.runKey === undefined ? undefined : ends.get(one.runKey) }
    })
  }

  return {
    /** One run and its result. Throws `timeout` naming the run, which goes on. */
    async invoke(caller: TaskCaller, taskId: string, body: (RunBody & { timeout?: string }) | null | undefined) {
      const waitMs = waitOf(body?.timeout)
      const task = await tasks.require(caller, taskId, 'task_start')
      const [begun] = await run([submissionOf(task.id, overridesOf(body))], task.domainId, waitMs)
      if (begun === undefined || begun instanceof Error) throw begun ?? new Error('nothing was started')
      const { runId, ended } = begun
      if (ended !== undefined) {
        const { staged } = ended
        const results =
          staged === null
            ? parsed(ended.results)
            : await readResult(database.db, { results: null, resultDigest: staged.digest })
        return { ...ended, results }
      }
      throw new ServiceError(
        'timeout',
        `run ${runId} has not ended yet; its result will be at /tasks/${task.id}/runs/${runId}`,
        { details: [{ path: 'run_id', message: runId }] },
      )
    },

    /**
     * A run for each of the inputs, told together when all have ended or the time is over; those that have not ended go
     * on. Throws the refusal of the first one when none could be started.
     */
    async invokeMany(caller: TaskCaller, taskId: string, body: InvokeManyBody): Promise<Invocation[]> {
      const waitMs = waitOf(body.timeout)
      const task = await tasks.require(caller, taskId, 'task_start')
      const { inputs, ...shared } = body
      const submissions = inputs.map((own) => submissionOf(task.id, overridesOf({ ...shared, inputs: own })))
      let shownBytes = 0
      return (await run(submissions, task.domainId, waitMs)).map((begun): Invocation => {
        if (begun instanceof Error) return refused(begun)
        const { runId, ended } = begun
        if (ended === undefined) return { ...NOTHING, runId, state: TASK_STATE.scheduled }
        const resultBytes = ended.staged?.sizeBytes ?? (ended.results === null ? 0 : Buffer.byteLength(ended.results))
        shownBytes += resultBytes
        if (ended.staged !== null || shownBytes > MAX_SHOWN_BYTES) return { ...ended, results: null, resultBytes }
        return { ...ended, results: parsed(ended.results) }
      })
    },
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

/** What a body changes for its runs alone. */
export function overridesOf(body: RunBody | null | undefined): RunOverrides {
  return {
    ...(body?.inputs === undefined ? {} : { inputs: body.inputs }),
    ...(body?.cli_args === undefined ? {} : { cliArgs: body.cli_args }),
    ...(body?.env === undefined ? {} : { env: body.env }),
  }
}

function waitOf(text: string | undefined): number {
  if (text === undefined) return DEFAULT_WAIT_MS
  const waitMs = parseDurationMs(text, 'timeout')
  if (waitMs < 1 || waitMs > MAX_WAIT_MS) throw new ServiceError('malformed', 'timeout must be 1ms to 1h')
  return waitMs
}
