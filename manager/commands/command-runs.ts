/**
 * Starts the runs of commands that tasks answer, and ends the commands with their results. The run has the id of its command, so a start that is
 * repeated after a kill is the same run. The end is read from the row of the run, which a worker, a stop or a deadline has written.
 */
import { setImmediate } from 'node:timers/promises'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { storedBytes } from '#core/stored-json.ts'
import { monotonicMs } from '#core/time.ts'
import { hintJournal } from '#api/identity/index.ts'
import { findFunction } from '#guests/wasm/index.ts'
import type { Json } from '#guests/wasm/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { isTemporary, makeCommandRunsDue, startCommandReader } from '#queues/index.ts'
import type {
  AnsweringTask,
  CommandEnd,
  CommandFate,
  CommandReader,
  CommandRun,
  CommandTransition,
  RunOfCommand,
} from '#queues/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { Paused, pauseForLack, requireActingUser } from '../channels/acting-user.ts'
import type { RunsService } from '../runs/service.ts'
import { writeRecords } from '../store/journal.ts'
import { readResult } from '../store/runs.ts'
import type { RunEndings } from '../writer/endings.ts'
import { inputsOfCommand, resultOfRun } from './command-inputs.ts'
import { CommandStarts } from './starts.ts'

export type CommandRunsDeps = {
  database: Database
  bus: Bus
  access: Pick<TaskAccess, 'findUser' | 'requireCommands'>
  runs: Pick<RunsService, 'startFor'>
  /** Asks for the stop of one run of the task. */
  stopRun: (taskKey: number, runId: string) => Promise<void>
  endings: Pick<RunEndings, 'onEnd'>
  logger: Logger
  intervalMs: number
}

/** A start that failed with a temporary error is tried again after this time. */
const RETRY_SECONDS = 1
/** A paused task is looked at again; the end of its pause does not wait for it. */
const PAUSED_SECONDS = 30
/** The look after the start: a manager notices the end of a run at once, and misses it when it was killed or began to wait too late. */
const FIRST_LOOK_SECONDS = 2
const LONGEST_LOOK_SECONDS = 30
/** Runs whose ends are awaited; those of other commands are found by the next look at them, as is what was awaited too long. */
const MAX_AWAITED = 1_000
const AWAITED_MS = 2 * LONGEST_LOOK_SECONDS * 1000
/** A manager may still be starting the run of a command that has ended: it waits for a registry, and for its turn to do so. */
const LONGEST_START_SECONDS = 150
/** A start is known for 24 hours, also when its run was removed. */
const KNOWN_START_SECONDS = 12 * 3600
const REMOVED = 'the run of the task was removed'
/** After a stop was asked for. */
const STOPPING_SECONDS = 5
/** Bytes of a result, and characters of a reason, as of those of devices. */
const MAX_RESULT_BYTES = 65_536
const MAX_REASON_CHARS = 500

/** Ends of runs within this time make their commands due together. */
const ENDS_MS = 5

const OPEN: ReadonlySet<number> = new Set([TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown])
const isUnderWay = ({ state }: RunOfCommand) => OPEN.has(state)

export function startCommandRuns(deps: CommandRunsDeps): { stop(): Promise<void> } {
  const { database, bus, logger, intervalMs } = deps
  const answering = new AnsweringRuns(deps, {
    wake: () => reader.wake(),
    settle: (commandKey, fate) => reader.settle(commandKey, fate),
  })
  const reader = startCommandReader({
    database,
    bus,
    intervalMs,
    work: async (commands) => await answering.work(commands),
    record: async (tx, transitions) =>
      await writeRecords(
        tx,
        transitions.map((one) => ({ actor: 'system', entry: entryOf(one) })),
      ),
    onChanged: () => hintJournal(bus),
    onError: (error) => logger.warn({ err: error }, 'failed to read the commands that tasks answer; retrying'),
  })
  return {
    async stop() {
      await reader.stop()
      await answering.stop()
    },
  }
}

/** What becomes of each command that is looked at. */
class AnsweringRuns {
  readonly #deps: CommandRunsDeps
  readonly #reader: Pick<CommandReader, 'wake' | 'settle'>
  readonly #starts: CommandStarts
  /** Runs whose end this manager awaits, by command, in the order of the last looks at them. */
  readonly #awaited = new Map<number, { lookedMs: number; leave: () => void }>()
  /** Commands that are made due together. */
  readonly #due = new Set<number>()
  #marking: NodeJS.Timeout | undefined
  /** Results are converted one in each turn of the event loop: a large one takes tens of milliseconds. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(deps: CommandRunsDeps, reader: Pick<CommandReader, 'wake' | 'settle'>) {
    this.#deps = deps
    this.#reader = reader
    this.#starts = new CommandStarts({
      settle: reader.settle,
      release: (commandKeys) => this.#makeDue(commandKeys),
    })
  }

  async work(commands: readonly CommandRun[]): Promise<CommandFate[]> {
    const rights = new Rights(this.#deps)
    this.#leaveOld()
    return await Promise.all(
      commands.map(async (command): Promise<CommandFate> => {
        try {
          return await this.#fateOf(command, rights)
        } catch (error) {
          const { logger } = this.#deps
          logger.warn({ err: error, command: command.id }, 'failed to go on with a command of a task; retrying')
          return { to: 'again', afterSeconds: RETRY_SECONDS }
        }
      }),
    )
  }

  /** Starts that take long are waited for. */
  async stop(): Promise<void> {
    await this.#starts.ended()
    clearTimeout(this.#marking)
    for (const { leave } of this.#awaited.values()) leave()
  }

  async #fateOf(command: CommandRun, rights: Rights): Promise<CommandFate> {
    const { commandKey, isEnded, leftSeconds, deliveredSeconds, task, run } = command
    if (isEnded) return await this.#finish(command)
    // It ends by itself within a second.
    if (leftSeconds <= 0) return { to: 'again', afterSeconds: RETRY_SECONDS }
    if (task === null) return failed('the task that answers the command was deleted')
    if (run === null) {
      if (deliveredSeconds > KNOWN_START_SECONDS) return failed(REMOVED)
      const { domainKey } = command
      const start = () => this.#start(command, task, rights)
      return await this.#starts.run({ commandKey, domainKey, taskKey: task.taskKey }, start)
    }
    if (!isUnderWay(run)) return await this.#endOf(run)
    this.#awaitEnd(commandKey, run.runKey)
    const growing = Math.min(LONGEST_LOOK_SECONDS, Math.max(FIRST_LOOK_SECONDS, deliveredSeconds))
    // Its run is stopped when the time of the command has passed.
    return { to: 'again', afterSeconds: Math.min(growing, leftSeconds + RETRY_SECONDS), isStarted: true }
  }

  async #start(command: CommandRun, task: AnsweringTask, rights: Rights): Promise<CommandFate> {
    const { commandKey, deliveredSeconds, id } = command
    try {
      if (task.isPaused) return { to: 'again', afterSeconds: PAUSED_SECONDS }
      if (task.answers?.command !== command.name) return rejected('the task no longer answers this command')
      await rights.require(task)
      const given = givenOf(command)
      const { runKey } = await this.#deps.runs.startFor({
        taskId: task.taskId,
        domainId: task.domainId,
        origin: 'command',
        key: id,
        runId: id,
        drivesTask: false,
        cause: { type: 'command', client_id: command.clientId, command: command.name },
        overrides: {
          inputs: inputsOfCommand(given, paramsOf(task), task.inputs as Json[]),
          stdin: JSON.stringify(given),
        },
      })
      // A device of a node of an earlier version may have the command, although no run was started.
      if (runKey === undefined && deliveredSeconds > 0) return failed(REMOVED)
      if (runKey !== undefined) this.#awaitEnd(commandKey, runKey)
      return { to: 'again', afterSeconds: FIRST_LOOK_SECONDS, isStarted: true }
    } catch (error) {
      if (error instanceof Paused) return { to: 'again', afterSeconds: PAUSED_SECONDS }
      const isKnown = error instanceof ServiceError
      // `rate_limited`: too many callers wait for what a start needs.
      if (!isKnown || isTemporary(error) || error.kind === 'rate_limited') {
        const { logger } = this.#deps
        const level = isKnown ? 'debug' : 'warn'
        logger[level]({ err: error, task: task.taskId }, 'failed to start the run of a command; retrying')
        return { to: 'again', afterSeconds: RETRY_SECONDS }
      }
      // Only a pause refuses a run that does not drive its task for the state of the task.
      if (error.kind === 'invalid_state') return { to: 'again', afterSeconds: PAUSED_SECONDS }
      return rejected(error.message)
    }
  }

  /** The command has ended otherwise: its run is stopped. */
  async #finish({ commandKey, id, endedSeconds, run, task }: CommandRun): Promise<CommandFate> {
    if (task === null) return { to: 'none' }
    if (run === null) {
      const leftSeconds = endedSeconds === null ? 0 : LONGEST_START_SECONDS - endedSeconds
      return leftSeconds > 0 ? { to: 'again', afterSeconds: leftSeconds } : { to: 'none' }
    }
    if (!isUnderWay(run))
      return run.state === TASK_STATE.stopped ? { to: 'none' } : { to: 'late', status: statusOf(run) }
    await this.#deps.stopRun(task.taskKey, id)
    this.#awaitEnd(commandKey, run.runKey)
    return { to: 'again', afterSeconds: STOPPING_SECONDS }
  }

  async #endOf(run: RunOfCommand): Promise<CommandFate> {
    const status = statusOf(run)
    if (status !== 'succeeded') return failed(faultOf(run))
    const { results, resultBytes, resultDigest } = run
    const bytes = resultBytes ?? 0
    if (results === null && bytes > MAX_RESULT_BYTES) return failed(tooLarge(bytes))
    const { db } = this.#deps.database
    const returned = await readResult(db, { results, resultDigest })
    await (this.#turn = this.#turn.then(() => setImmediate()))
    const result = resultOfRun(returned)
    const size = storedBytes(result)
    if (size > MAX_RESULT_BYTES) return failed(tooLarge(size))
    return { to: 'end', status, isDelivered: true, ...(result === undefined ? {} : { result: JSON.stringify(result) }) }
  }

  #awaitEnd(commandKey: number, runKey: number): void {
    const known = this.#awaited.get(commandKey)
    if (known === undefined && this.#awaited.size >= MAX_AWAITED) return
    this.#awaited.delete(commandKey)
    const leave =
      known?.leave ??
      this.#deps.endings.onEnd(runKey, () => {
        this.#awaited.delete(commandKey)
        this.#makeDue([commandKey])
      })
    this.#awaited.set(commandKey, { lookedMs: monotonicMs(), leave })
  }

  /** Another manager looks at these commands, or they are gone. */
  #leaveOld(): void {
    const nowMs = monotonicMs()
    for (const [commandKey, { lookedMs, leave }] of this.#awaited) {
      if (nowMs - lookedMs < AWAITED_MS) return
      this.#awaited.delete(commandKey)
      leave()
    }
  }

  #makeDue(commandKeys: Iterable<number>): void {
    for (const key of commandKeys) this.#due.add(key)
    this.#marking ??= setTimeout(() => void this.#markDue(), ENDS_MS).unref()
  }

  /** What is not marked is found by the next look at the command. */
  async #markDue(): Promise<void> {
    this.#marking = undefined
    const keys = [...this.#due]
    this.#due.clear()
    try {
      await makeCommandRunsDue(this.#deps.database.db, keys)
      this.#reader.wake()
    } catch (error) {
      this.#deps.logger.debug({ err: error }, 'failed to mark commands that can go on; looking later')
    }
  }
}

/** The rights of the grantors of the tasks of one step: each is asked for once. */
class Rights {
  readonly #deps: Pick<CommandRunsDeps, 'database' | 'access'>
  readonly #asked = new Map<string, Promise<void>>()

  constructor(deps: Pick<CommandRunsDeps, 'database' | 'access'>) {
    this.#deps = deps
  }

  /** Throws `Paused` if the grantor of the task has lost a right, and `unavailable` if it has another grantor by now. */
  async require({ taskKey, userKey, domainId }: AnsweringTask): Promise<void> {
    try {
      await this.#asked.getOrInsertComputed(`${userKey} ${domainId}`, () => this.#ask({ userKey, domainId }))
    } catch (error) {
      if (kindOf(error) !== 'forbidden') throw error
      await pauseForLack(this.#deps.database, { taskKey, userKey }, error as ServiceError)
    }
  }

  async #ask(task: Pick<AnsweringTask, 'userKey' | 'domainId'>): Promise<void> {
    const { access } = this.#deps
    const { user, domainId } = await requireActingUser(access, task)
    await access.requireCommands(user, domainId)
  }
}

function givenOf({ id, name, clientId, createdAt, expiresAt, payload, hasPayload }: CommandRun) {
  const given = { id, name, client_id: clientId, created_at: createdAt, expires_at: expiresAt }
  return hasPayload ? { ...given, payload } : given
}

const paramsOf = ({ exports, function: explicit, taskName }: AnsweringTask) =>
  exports === null ? undefined : findFunction(exports, { explicit: explicit ?? undefined, fallback: taskName })?.params

const reasonOf = (text: string) => text.replaceAll('\0', '').slice(0, MAX_REASON_CHARS).toWellFormed()
const rejected = (reason: string): CommandFate => ({
  to: 'end',
  status: 'rejected',
  isDelivered: false,
  reason: reasonOf(reason),
})
const failed = (reason: string): CommandFate => ({
  to: 'end',
  status: 'failed',
  isDelivered: true,
  reason: reasonOf(reason),
})
const tooLarge = (bytes: number) => `the result has ${bytes} bytes: at most ${MAX_RESULT_BYTES} are accepted`

const statusOf = ({ state }: RunOfCommand): CommandEnd => (state === TASK_STATE.completed ? 'succeeded' : 'failed')

function faultOf({ state, reason, error }: RunOfCommand): string {
  if (state === TASK_STATE.stopped) return 'the run of the task was stopped'
  return ['the run of the task failed', reason, error].filter((part) => part !== null && part !== '').join(': ')
}

function entryOf({ operation, id, clientKey, clientId, domainKey, name, status }: CommandTransition) {
  return {
    operation: `command.${operation}`,
    domainKey,
    entityKeys: [clientKey],
    attributes: { id, client_id: clientId, name, status },
  }
}
