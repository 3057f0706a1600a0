/**
 * Commands for devices, in every protocol: what is open, that it was delivered, and the answer. It knows no protocol. A command is offered again
 * until it has ended, and its id makes that safe.
 */
import type { Journal, JournalEntry, Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { durationWithin } from '#core/durations.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { storedBytes } from '#core/stored-json.ts'
import { monotonicMs } from '#core/time.ts'
import { DeviceTurns } from '../device-topics/index.ts'
import type { ClientWaits } from '../device-topics/index.ts'
import type { IdentifiedDevice } from '../gate/index.ts'
import { entryOf } from './journal-entries.ts'
import { COMMAND_METRICS } from './metrics.ts'
import type { OpenCommands } from './open.ts'
import {
  endCommand,
  endDueCommand,
  isRepeatedAnswer,
  lockCommand,
  markDelivered,
  recordLate,
  takeOpen,
} from './repository.ts'
import type { End, LockedCommand, Offered } from './repository.ts'
import { MAX_JSON_BYTES, MAX_WAIT_MS } from './schema.ts'
import type { CommandResult } from './schema.ts'
import { isOpen } from './states.ts'
import type { CommandState } from './states.ts'

/** Devices that wait, of this process and of one domain, and requests of one device. */
const MAX_WAITERS = 20_000
const MAX_WAITERS_PER_DOMAIN = 10_000
const MAX_WAITERS_PER_CLIENT = 4

export type Device = Pick<IdentifiedDevice, 'clientKey' | 'domainKey'>
/** `bytes`: the size in which it came. `result`: validated when its turn has come, because a value needs more memory than its text. */
export type Answer = { bytes: number; result: () => CommandResult }
export type Answered = { id: string; status: CommandState; isLate: boolean }

export type CommandDeliveryDeps = {
  open: OpenCommands
  journal: Pick<Journal, 'change'>
  waits: ClientWaits
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
}

export class CommandDelivery {
  readonly #deps: CommandDeliveryDeps
  /** A device that sends without a pause waits for its own rows, and holds one connection to the database. */
  readonly #turns = new DeviceTurns('answers and requests of commands')
  readonly #waiters = new Slots({
    what: 'devices that wait for commands',
    max: MAX_WAITERS,
    share: MAX_WAITERS_PER_DOMAIN,
  })
  readonly #ofClient = new Slots({
    what: 'requests that wait for commands',
    max: Infinity,
    share: MAX_WAITERS_PER_CLIENT,
    per: 'client',
  })

  constructor(deps: CommandDeliveryDeps) {
    this.#deps = deps
  }

  /** The open commands with a greater key, in the order of their creation. */
  async open({ clientKey }: Device, after: number): Promise<readonly Offered[]> {
    return await this.#deps.open.list(clientKey, after)
  }

  /** The greatest key of the open commands; 0: there are none. */
  async newest({ clientKey }: Device): Promise<number> {
    return await this.#deps.open.newest(clientKey)
  }

  /** The device has these commands. */
  async delivered(device: Device, keys: readonly number[]): Promise<void> {
    if (keys.length === 0) return
    await this.#change(device, async (tx, record) => {
      for (const entry of await deliver(tx, device.clientKey, keys)) record(entry)
    })
  }

  /**
   * Takes the open commands, which are delivered with that. With a wait it returns when there are some, and leaves out those that a request got
   * within the last 30 seconds. Throws `malformed`, `rate_limited` and `unavailable`.
   */
  async take(device: Device, given: string | undefined, aborted: AbortSignal): Promise<Offered[]> {
    const waitMs = given === undefined ? 0 : durationWithin(given, 'wait', [0, MAX_WAIT_MS])
    if (waitMs === 0) return await this.#takeNow(device, true)
    const signal = AbortSignal.any([aborted, this.#deps.signal])
    const deadlineMs = monotonicMs() + waitMs
    return await this.#ofClient.run(device.clientKey, () =>
      this.#waiters.run(device.domainKey, () => this.#takeUntil(device, deadlineMs, signal)),
    )
  }

  /**
   * Ends a command with the device's answer. A later one changes nothing. Throws `not_found`, also for a command of another client; `too_large` for
   * a large result, with which the command has failed; `unavailable`.
   */
  async answer(device: Device, id: string, { bytes, result }: Answer): Promise<Answered> {
    if (!isId(id)) throw notFound()
    return await this.#turns.run(device, bytes, async () => await this.#end(device.clientKey, id, result()))
  }

  /** Calls the listener when commands of the client may have changed. It must not throw. Returns a function that ends it. */
  listen(clientKey: number, listener: () => void): () => void {
    return this.#deps.waits.listen(clientKey, listener)
  }

  async #end(clientKey: number, id: string, given: CommandResult): Promise<Answered> {
    const end = endOf(given)
    const { hasEnded, ...answered } = await this.#deps.journal.change('system', async (tx, record) => {
      const command = await lockCommand(tx, clientKey, id)
      // A device does not learn of the commands that tasks answer.
      if (command === undefined || command.taskId !== null) throw notFound()
      if (!isOpen(command.status) || command.isDue) return await answerLate(tx, command, end, given.status, record)
      await endCommand(tx, command.key, { ...end, isAnswer: true })
      record(entryOf('answer', { ...command, status: end.status }))
      return { id, status: end.status, isLate: false, hasEnded: true }
    })
    if (hasEnded) COMMAND_METRICS.ended.add({ status: answered.status })
    if (end.refusal !== undefined && !answered.isLate) throw new ServiceError('too_large', end.refusal)
    return answered
  }

  async #change<T>(device: Device, work: (tx: Transaction, record: Recorder) => Promise<T>): Promise<T> {
    return await this.#turns.run(device, 0, async () => await this.#deps.journal.change('system', work))
  }

  async #takeUntil(device: Device, deadlineMs: number, signal: AbortSignal): Promise<Offered[]> {
    const wait = this.#deps.waits.begin(device.clientKey)
    try {
      for (;;) {
        // Commands are not taken for nobody.
        if (signal.aborted) return []
        const taken = await this.#takeNow(device, false)
        if (taken.length > 0 || monotonicMs() >= deadlineMs) return taken
        await wait.next(deadlineMs, signal)
      }
    } finally {
      wait.end()
    }
  }

  async #takeNow(device: Device, isAll: boolean): Promise<Offered[]> {
    const { clientKey } = device
    // Most looks find nothing, and need no transaction.
    if ((await this.#deps.open.newest(clientKey)) === 0) return []
    return await this.#change(device, async (tx, record) => {
      const taken = await takeOpen(tx, clientKey, isAll)
      const queued = taken.filter(({ status }) => status === 'queued').map(({ key }) => key)
      if (queued.length > 0) for (const entry of await deliver(tx, clientKey, queued)) record(entry)
      return taken
    })
  }
}

async function deliver(tx: Transaction, clientKey: number, keys: readonly number[]): Promise<JournalEntry[]> {
  const told = await markDelivered(tx, clientKey, keys)
  return told.map((one) => entryOf('deliver', one))
}

/** An answer after the end, or after the time of a command that no sweep has ended yet. The first that says something else is recorded. */
async function answerLate(
  tx: Transaction,
  command: LockedCommand,
  end: End,
  answered: string,
  record: Recorder,
): Promise<Answered & { hasEnded: boolean }> {
  const { id, key, isDue } = command
  let { status } = command
  if (isDue) {
    const told = await endDueCommand(tx, key)
    record(entryOf('expire', told))
    ;({ status } = told)
  } else if (await isRepeatedAnswer(tx, key, end)) return { id, status, isLate: false, hasEnded: false }
  if (command.lateAt === null) {
    await recordLate(tx, key, answered)
    record(entryOf('late', { ...command, status }))
  }
  return { id, status, isLate: true, hasEnded: isDue }
}

const notFound = () => new ServiceError('not_found', 'command not found')

/** A result that is too large is not stored: the command has failed, and the device gets an error. */
function endOf({ status, result, reason }: CommandResult): End & { refusal?: string } {
  const text = result === undefined ? undefined : JSON.stringify(result)
  const bytes = storedBytes(result)
  if (bytes <= MAX_JSON_BYTES) return { status, result: text, reason }
  const refusal = `the result has ${bytes} bytes: at most ${MAX_JSON_BYTES} are accepted`
  return { status: 'failed', reason: refusal, refusal }
}
