/**
 * Starts the runs of functions that decide for rules, and gives their results to the rules. The id of the run was chosen with its messages, so a start that
 * is repeated after a kill is the same run. The end is read from the row of the run, which a worker, a stop or a deadline has written.
 */
import { setImmediate } from 'node:timers/promises'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { endedRuleCalls, isTemporary, startRuleCallReader } from '#queues/index.ts'
import type { RuleCall, RuleCallFate, RunOfCall } from '#queues/index.ts'
import { resultOfRun } from '../commands/command-inputs.ts'
import type { RunsService } from '../runs/service.ts'
import { readResult } from '../store/runs.ts'
import type { RunEndings } from '../writer/endings.ts'

export type RuleCallsDeps = {
  database: Database
  bus: Bus
  runs: Pick<RunsService, 'startFor'>
  endings: Pick<RunEndings, 'on'>
  logger: Logger
  intervalMs: number
}

/** A start that failed with a temporary error is tried again after this time. */
const RETRY_SECONDS = 1
/** A paused task is looked at again. */
const PAUSED_SECONDS = 10
/** A manager notices the end of a run at once, and misses it when it was killed: this finds it. */
const LOOK_SECONDS = 5
/** Runs whose ends are awaited; the ends of others are found by the next look. */
const MAX_AWAITED = 1_000
/** Bytes of what a function returns for one call. */
const MAX_RESULT_BYTES = 262_144
const MAX_REASON_CHARS = 500
const MAX_WORD_CHARS = 16

const OPEN: ReadonlySet<number> = new Set([TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown])

export function startRuleCalls(deps: RuleCallsDeps): { stop(): Promise<void> } {
  const { database, bus, logger, intervalMs } = deps
  const deciding = new DecidingRuns(deps, () => reader.wake())
  const reader = startRuleCallReader({
    database,
    bus,
    intervalMs,
    work: async (call) => await deciding.work(call),
    onError: (error) => logger.warn({ err: error }, 'failed to read the calls of rules; retrying'),
  })
  return {
    async stop() {
      deciding.stop()
      await reader.stop()
    },
  }
}

/** What becomes of each call that is looked at. */
class DecidingRuns {
  readonly #deps: RuleCallsDeps
  readonly #wake: () => void
  /** Runs whose end this manager awaits. */
  readonly #awaited = new Map<string, () => void>()

  constructor(deps: RuleCallsDeps, wake: () => void) {
    this.#deps = deps
    this.#wake = wake
  }

  async work(call: RuleCall): Promise<RuleCallFate> {
    const { runId, task, run } = call
    try {
      if (task === null) return { to: 'refused', reason: 'the task was deleted' }
      if (run === null) return await this.#start(call, task)
      if (!OPEN.has(run.state)) return await this.#endOf(runId, run)
      this.#awaitEnd(runId, run.key)
      return { to: 'again', afterSeconds: LOOK_SECONDS }
    } catch (error) {
      this.#deps.logger.warn({ err: error, runId }, 'failed to go on with a call of a rule; retrying')
      return { to: 'again', afterSeconds: RETRY_SECONDS }
    }
  }

  stop(): void {
    for (const leave of this.#awaited.values()) leave()
  }

  async #start(call: RuleCall, task: NonNullable<RuleCall['task']>): Promise<RuleCallFate> {
    const { runId, given, first } = call
    const [message] = given ?? []
    if (given === null || message === undefined) return { to: 'refused', reason: 'the call has no messages' }
    try {
      const { runKey } = await this.#deps.runs.startFor({
        taskId: task.id,
        domainId: task.domainId,
        origin: 'message',
        key: `rule ${runId}`,
        runId,
        drivesTask: false,
        cause: { type: 'message', channel_id: message.channel_id, message: first, messages: given.length },
        trigger: given,
      })
      // It was started before, and was removed since.
      if (runKey === undefined) return { to: 'failed', reason: 'the run of the task was removed' }
      this.#awaitEnd(runId, runKey)
      return { to: 'again', afterSeconds: LOOK_SECONDS }
    } catch (error) {
      return this.#fateAfter(error, task.id)
    }
  }

  #fateAfter(error: unknown, taskId: string): RuleCallFate {
    const isKnown = error instanceof ServiceError
    // `rate_limited`: too many callers wait for what a start needs.
    if (!isKnown || isTemporary(error) || error.kind === 'rate_limited') {
      const level = isKnown ? 'debug' : 'warn'
      this.#deps.logger[level]({ err: error, task: taskId }, 'failed to start a run for a rule; retrying')
      return { to: 'again', afterSeconds: RETRY_SECONDS }
    }
    // Only a pause refuses a run that does not drive its task for the state of the task.
    if (error.kind === 'invalid_state' || error.kind === 'quota_exceeded')
      return { to: 'again', afterSeconds: PAUSED_SECONDS }
    return { to: 'refused', reason: reasonOf(error.message) }
  }

  async #endOf(runId: string, run: RunOfCall): Promise<RuleCallFate> {
    this.#leave(runId)
    if (run.state !== TASK_STATE.completed) return { to: 'failed', reason: reasonOf(faultOf(run)) }
    const { results, resultBytes, resultDigest } = run
    if ((resultBytes ?? 0) > MAX_RESULT_BYTES)
      return { to: 'failed', reason: `its result has ${resultBytes} bytes: at most ${MAX_RESULT_BYTES} are accepted` }
    const returned = await readResult(this.#deps.database.db, { results, resultDigest })
    // A large result takes milliseconds.
    await setImmediate()
    return { to: 'done', results: itemsOf(parsed(resultOfRun(returned))) }
  }

  /** What is not marked is found by the next look at the call. */
  #awaitEnd(runId: string, runKey: number): void {
    if (this.#awaited.has(runId) || this.#awaited.size >= MAX_AWAITED) return
    const { database, endings, logger } = this.#deps
    const leave = endings.on(runKey, () => {
      this.#awaited.delete(runId)
      endedRuleCalls(database.db, [runId]).then(this.#wake, (error: unknown) =>
        logger.debug({ err: error }, 'failed to mark a call of a rule whose run has ended'),
      )
    })
    this.#awaited.set(runId, leave)
  }

  #leave(runId: string): void {
    this.#awaited.get(runId)?.()
    this.#awaited.delete(runId)
  }
}

/** A function that returns a text writes its list as JSON, as a program does. */
function parsed(value: unknown): unknown {
  if (typeof value !== 'string') return value
  try {
    return JSON.parse(value) as unknown
  } catch {
    return value
  }
}

/** What an item can be; what nobody understands, of any size and type, is 0. */
const itemsOf = (value: unknown): unknown =>
  Array.isArray(value)
    ? value.map((item: unknown) => (item === null || typeof item === 'boolean' || isWord(item) ? item : 0))
    : 0

const isWord = (item: unknown) => typeof item === 'string' && item.length <= MAX_WORD_CHARS

const reasonOf = (text: string) => text.replaceAll('\0', '').slice(0, MAX_REASON_CHARS).toWellFormed()

function faultOf({ state, reason, error }: RunOfCall): string {
  if (state === TASK_STATE.stopped) return 'the run of the task was stopped'
  return ['the run of the task failed', reason, error].filter((part) => part !== null && part !== '').join(': ')
}
