/**
 * Starts of the runs of commands. One that takes long, because a registry does not answer, goes on beside the others: neither the commands of
 * other tasks of its domain nor those of other domains wait for it. Those of its own task wait until it has ended, because they need the same.
 */
import { setTimeout } from 'node:timers/promises'
import { Slots } from '#core/slots.ts'
import type { CommandFate, CommandRun } from '#queues/index.ts'

/** The commands of one step wait for their starts this long. */
const SLOW_MS = 500
/** Starts at a time of one task, of one domain and of the process; each has a command in memory. */
const MAX_STARTS_OF_TASK = 16
const MAX_STARTS_OF_DOMAIN = 64
const MAX_STARTS = 512
/** Commands of one step that wait for their turn. */
const MAX_WAITING = 100
/** A command without a turn is looked at again after this time. */
const NO_TURN_SECONDS = 1
/** The look at a command whose start takes long, if this process ends before it has; and at those that wait for this start. */
const HELD_SECONDS = 30
/** Commands of one task that are looked at as soon as its start has ended; further ones are found later. */
const MAX_HELD_OF_TASK = 1_000

export type StartedCommand = Pick<CommandRun, 'commandKey' | 'domainKey'> & { taskKey: number }

type Slow = { starts: number; held: Set<number> }

export type CommandStartsDeps = {
  /** Writes what became of a command whose start took long. Must not reject. */
  settle: (commandKey: number, fate: CommandFate) => Promise<void>
  /** These commands can be looked at again. */
  release: (commandKeys: Iterable<number>) => void
}

export class CommandStarts {
  readonly #deps: CommandStartsDeps
  readonly #ofTask = new Slots({
    what: 'starts of commands',
    max: Infinity,
    share: MAX_STARTS_OF_TASK,
    per: 'task',
    waitMs: SLOW_MS,
    maxWaiting: MAX_WAITING,
  })
  readonly #ofDomain = new Slots({
    what: 'starts of commands',
    max: MAX_STARTS,
    share: MAX_STARTS_OF_DOMAIN,
    waitMs: SLOW_MS,
    maxWaiting: MAX_WAITING,
  })
  /** Tasks of which a start takes long. */
  readonly #slow = new Map<number, Slow>()
  readonly #underWay = new Set<Promise<void>>()

  constructor(deps: CommandStartsDeps) {
    this.#deps = deps
  }

  /** Resolves with what becomes of the command, within some 1.5 s. Rejects with the error of a start that does not take long. */
  async run(command: StartedCommand, start: () => Promise<CommandFate>): Promise<CommandFate> {
    if (this.#slow.has(command.taskKey)) return this.#hold(command)
    const leave = await this.#enter(command)
    if (leave === undefined || this.#slow.has(command.taskKey)) {
      leave?.()
      return this.#hold(command)
    }
    const fate = start().finally(leave)
    const waiting = new AbortController()
    const inTime = await Promise.race([fate, untilSlow(waiting.signal)])
    waiting.abort()
    return inTime ?? this.#leaveAlone(command, fate)
  }

  /** Resolves when every start has ended and is written. */
  async ended(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  /** Undefined: it has no turn. */
  async #enter({ taskKey, domainKey }: StartedCommand): Promise<(() => void) | undefined> {
    let leaveTask: (() => void) | undefined
    try {
      leaveTask = await this.#ofTask.take(taskKey)
      const leaveDomain = await this.#ofDomain.take(domainKey)
      const leave = leaveTask
      return () => {
        leaveDomain()
        leave()
      }
    } catch {
      leaveTask?.()
      return undefined
    }
  }

  #hold({ commandKey, taskKey }: StartedCommand): CommandFate {
    const held = this.#slow.get(taskKey)?.held
    if (held === undefined) return { to: 'again', afterSeconds: NO_TURN_SECONDS }
    if (held.size < MAX_HELD_OF_TASK) held.add(commandKey)
    return { to: 'again', afterSeconds: HELD_SECONDS }
  }

  #leaveAlone({ commandKey, taskKey }: StartedCommand, fate: Promise<CommandFate>): CommandFate {
    const slow = this.#slow.getOrInsertComputed(taskKey, () => ({ starts: 0, held: new Set<number>() }))
    slow.starts += 1
    const end = fate
      .then(
        (known) => this.#deps.settle(commandKey, known),
        // It is looked at again later.
        () => undefined,
      )
      .finally(() => {
        this.#underWay.delete(end)
        slow.starts -= 1
        if (slow.starts > 0) return
        this.#slow.delete(taskKey)
        if (slow.held.size > 0) this.#deps.release(slow.held)
      })
    this.#underWay.add(end)
    return { to: 'again', afterSeconds: HELD_SECONDS }
  }
}

async function untilSlow(signal: AbortSignal): Promise<undefined> {
  await setTimeout(SLOW_MS, undefined, { signal }).catch(() => undefined)
}
