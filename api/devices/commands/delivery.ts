/**
 * Commands for devices, in every protocol: what is open, that it was delivered, and the answer. It knows no protocol. A command is offered again
 * until it has ended, and its id makes that safe.
 */
import type { Journal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { durationWithin } from '#core/durations.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import type { IdentifiedDevice } from '../gate/index.ts'
import { entryOf } from './journal-entries.ts'
import { COMMAND_METRICS } from './metrics.ts'
import {
  endCommand,
  endDueCommand,
  hasOpen,
  isRepeatedAnswer,
  listOpen,
  lockCommand,
  markDelivered,
  recordLate,
  takeOpen,
} from './repository.ts'
import type { End, Offered } from './repository.ts'
import { MAX_JSON_BYTES, MAX_WAIT_MS } from './schema.ts'
import type { CommandResult } from './schema.ts'
import { isOpen } from './states.ts'
import type { CommandState } from './states.ts'
import type { CommandWaits } from './waits.ts'

/** Devices that wait, of this process and of one domain, and requests of one device. */
const MAX_WAITERS = 20_000
const MAX_WAITERS_PER_DOMAIN = 10_000
const MAX_WAITERS_PER_CLIENT = 4

export type Device = Pick<IdentifiedDevice, 'clientKey' | 'domainKey'>
export type Answered = { id: string; status: CommandState; isLate: boolean }

export type CommandDelivery = {
  /** The open commands, in the order of their creation. `after`: those with a greater key. */
  open(device: Device, after?: number): Promise<Offered[]>
  /** The device has these commands. */
  delivered(device: Device, keys: readonly number[]): Promise<void>
  /**
   * Takes the open commands, which are delivered with that. With a wait it returns when there are some, and leaves out those that a request got
   * within the last 30 seconds. Throws `malformed`, `rate_limited` and `unavailable`.
   */
  take(device: Device, wait: string | undefined, signal: AbortSignal): Promise<Offered[]>
  /**
   * Ends a command with the device's answer. A later one changes nothing. Throws `not_found`, also for a command of another client; `too_large` for
   * a large result, with which the command has failed.
   */
  answer(device: Device, id: string, result: CommandResult): Promise<Answered>
  /** Calls the listener when commands of the client may have changed. It must not throw. Returns a function that ends it. */
  listen(clientKey: number, listener: () => void): () => void
}

export type CommandDeliveryDeps = {
  database: Database
  journal: Pick<Journal, 'change'>
  waits: CommandWaits
  /** Aborted when the process begins to stop. */
  signal: AbortSignal
}

export function createCommandDelivery(deps: CommandDeliveryDeps): CommandDelivery {
  const { database, journal, waits } = deps
  const waiters = new Slots({ what: 'devices that wait for commands', max: MAX_WAITERS, share: MAX_WAITERS_PER_DOMAIN })
  const ofClient = new Slots({
    what: 'requests that wait for commands',
    max: Infinity,
    share: MAX_WAITERS_PER_CLIENT,
    per: 'client',
  })

  async function deliver(tx: Transaction, clientKey: number, keys: readonly number[]) {
    const told = await markDelivered(tx, clientKey, keys)
    return told.map((one) => entryOf('deliver', one))
  }

  async function takeNow({ clientKey }: Device, isAll: boolean): Promise<Offered[]> {
    // Most looks find nothing, and need no transaction.
    if (!(await hasOpen(database.db, clientKey))) return []
    return await journal.change('system', async (tx, record) => {
      const taken = await takeOpen(tx, clientKey, isAll)
      const queued = taken.filter(({ status }) => status === 'queued').map(({ key }) => key)
      if (queued.length > 0) for (const entry of await deliver(tx, clientKey, queued)) record(entry)
      return taken
    })
  }

  return {
    open: ({ clientKey }, after) => listOpen(database.db, clientKey, after),
    async delivered({ clientKey }, keys) {
      if (keys.length === 0) return
      await journal.change('system', async (tx, record) => {
        for (const entry of await deliver(tx, clientKey, keys)) record(entry)
      })
    },
    async take(device, given, aborted) {
      const waitMs = given === undefined ? 0 : durationWithin(given, 'wait', [0, MAX_WAIT_MS])
      if (waitMs === 0) return await takeNow(device, true)
      const signal = AbortSignal.any([aborted, deps.signal])
      const deadlineMs = monotonicMs() + waitMs
      const releaseOfClient = await ofClient.take(device.clientKey)
      const release = await waiters.take(device.domainKey).catch((error: unknown) => {
        releaseOfClient()
        throw error
      })
      const wait = waits.begin(device.clientKey)
      try {
        for (;;) {
          // Commands are not taken for nobody.
          if (signal.aborted) return []
          const taken = await takeNow(device, false)
          if (taken.length > 0 || monotonicMs() >= deadlineMs) return taken
          await wait.next(deadlineMs, signal)
        }
      } finally {
        wait.end()
        release()
        releaseOfClient()
      }
    },
    async answer({ clientKey }, id, given) {
      if (!isId(id)) throw notFound()
      const end = endOf(given)
      const answered = await journal.change('system', async (tx, record): Promise<Answered> => {
        const command = await lockCommand(tx, clientKey, id)
        if (command === undefined) throw notFound()
        const { key } = command
        let { status } = command
        if (isOpen(status) && !command.isDue) {
          await endCommand(tx, key, { ...end, isAnswer: true })
          record(entryOf('answer', { ...command, status: end.status }))
          COMMAND_METRICS.ended.add({ status: end.status })
          return { id, status: end.status, isLate: false }
        }
        if (command.isDue) {
          const told = await endDueCommand(tx, key)
          record(entryOf('expire', told))
          ;({ status } = told)
        } else if (await isRepeatedAnswer(tx, key, end)) return { id, status, isLate: false }
        if (command.lateAt === null) {
          await recordLate(tx, key, given.status)
          record(entryOf('late', { ...command, status }))
        }
        return { id, status, isLate: true }
      })
      if (end.refusal !== undefined && !answered.isLate) throw new ServiceError('too_large', end.refusal)
      return answered
    },
    listen: (clientKey, listener) => waits.listen(clientKey, listener),
  }
}

const notFound = () => new ServiceError('not_found', 'command not found')

/** A result that is too large is not stored: the command has failed, and the device is told. */
function endOf({ status, result, reason }: CommandResult): End & { refusal?: string } {
  const text = result === undefined ? undefined : JSON.stringify(result)
  const bytes = text === undefined ? 0 : Buffer.byteLength(text)
  if (bytes <= MAX_JSON_BYTES) return { status, result: text, reason }
  const refusal = `the result has ${bytes} bytes: at most ${MAX_JSON_BYTES} are accepted`
  return { status: 'failed', reason: refusal, refusal }
}
