/** Messages from the manager to a worker, as protocol messages of its stream. */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { SessionResponseSchema } from '#proto/index.ts'
import type { SessionResponse } from '#proto/index.ts'
import type { AssignedModule, ModulePeer } from '../model/module.ts'
import { moduleOf, type AssignedRun, type RunIdentity } from '../model/run.ts'
import { withDeadline } from '#core/time.ts'
import type { ModuleRefs } from '../modules/module-refs.ts'
import type { NewAssignment, OfflineOffer, Receipt, WorkerLink } from '../placement/worker-session.ts'
import type { GivenTo } from './given-messages.ts'
import { toAssignment, toOfflineTask, toRef } from './translate.ts'

/** Dependencies of an assignment besides its run. */
export type Delivery = {
  modules: ModuleRefs
  /** The secrets of a task, sealed in base64. */
  openSecrets: (taskId: string, sealed: string) => Record<string, string>
  /** Reads the messages of a run that are stored apart; undefined: they are gone. Fails while the database is away. */
  readGiven: (run: AssignedRun) => Promise<GivenTo | undefined>
}

/** Runs that were not sent because of their messages. */
export type Undelivered = {
  /** A message is no longer stored. */
  gone: (run: AssignedRun) => void
  /** The messages could not be read. */
  failed: (run: AssignedRun, error: unknown) => void
}

type Outgoing = NonNullable<MessageInitShape<typeof SessionResponseSchema>['message']>
type Assignment = ReturnType<typeof toAssignment>

/** A worker accepts messages of at most 16 MiB: these are at most 12 MiB in UTF-8, as a single run is. */
const MAX_ASSIGN_CHARS = 4 * 1024 * 1024
/** Deadline of reading the message of a run. */
const READ_DEADLINE_MS = 10_000
/** A worker reconnects this long after a GoAway. */
const RECONNECT_AFTER_MS = 1_000n

export class WorkerStream implements WorkerLink {
  readonly #workerId: string
  readonly #delivery: Delivery
  readonly #send: (message: SessionResponse) => void
  readonly #undelivered: Undelivered
  #isOpen = true
  /** Pending while messages of runs are read: what follows is sent after them. */
  #reading: Promise<void> | undefined

  constructor(
    workerId: string,
    delivery: Delivery,
    { send, undelivered }: { send: (message: SessionResponse) => void; undelivered: Undelivered },
  ) {
    this.#workerId = workerId
    this.#delivery = delivery
    this.#send = send
    this.#undelivered = undelivered
  }

  assign(assignments: readonly NewAssignment[]): void {
    const messages: Assignment[] = []
    const stored: NewAssignment[] = []
    for (const assignment of assignments) {
      if (assignment.run.spec.given !== undefined) stored.push(assignment)
      else messages.push(this.#assignmentOf(assignment))
    }
    for (const some of inMessages(messages)) this.tell({ case: 'assign', value: { assignments: some } })
    if (stored.length > 0) this.#inOrder(() => this.#assignStored(stored))
  }

  #assignmentOf({ run, peers }: NewAssignment, given?: GivenTo): Assignment {
    const { modules, openSecrets } = this.#delivery
    const { task_id: taskId, secrets } = run.spec
    const opened = secrets === undefined ? {} : openSecrets(taskId, secrets)
    return toAssignment(run, modules.of(this.#workerId, moduleOf(run), peers), opened, given)
  }

  /**
   * Sends the runs one after the other, because each has a large message. What could not be read is sent again later, as what a worker did
   * not confirm.
   */
  async #assignStored(assignments: readonly NewAssignment[]): Promise<void> {
    for (const assignment of assignments) {
      if (!this.#isOpen) return
      const { run } = assignment
      try {
        const given = await withDeadline(this.#delivery.readGiven(run), READ_DEADLINE_MS, 'the message of a run')
        if (given === undefined) this.#undelivered.gone(run)
        else this.#write({ case: 'assign', value: { assignments: [this.#assignmentOf(assignment, given)] } })
      } catch (error) {
        this.#undelivered.failed(run, error)
      }
    }
  }

  /** Runs `work` after what is being read now. `work` must not reject. */
  #inOrder(work: () => Promise<void> | void): void {
    const reading = (this.#reading ?? Promise.resolve()).then(work).finally(() => {
      if (this.#reading === reading) this.#reading = undefined
    })
    this.#reading = reading
  }

  acknowledge(receipts: readonly Receipt[]): void {
    const value = { receipts: receipts.map(({ run, recorded }) => ({ run: toRef(run), recorded })) }
    this.tell({ case: 'resultAck', value })
  }

  cancel(runs: readonly RunIdentity[]): void {
    this.tell({ case: 'cancel', value: { runs: runs.map(toRef) } })
  }

  drain(isAsked: boolean): void {
    this.tell({ case: 'drain', value: { draining: isAsked } })
  }

  offline(offers: readonly OfflineOffer[]): void {
    const tasks = offers.map((offer) =>
      toOfflineTask(offer, this.#delivery.modules.of(this.#workerId, moduleOf(offer.run), [])),
    )
    this.tell({ case: 'offlineTasks', value: { tasks, nowMs: BigInt(Date.now()) } })
  }

  prefetch(module: AssignedModule, peers: readonly ModulePeer[]): void {
    const modules = [this.#delivery.modules.of(this.#workerId, module, peers)]
    this.tell({ case: 'prefetch', value: { modules } })
  }

  goAway(reason: string): void {
    this.tell({ case: 'goaway', value: { reason, reconnectAfterMs: RECONNECT_AFTER_MS } })
  }

  close(): void {
    this.#isOpen = false
  }

  tell(message: Outgoing): void {
    if (this.#reading === undefined) this.#write(message)
    else this.#inOrder(() => this.#write(message))
  }

  #write(message: Outgoing): void {
    if (this.#isOpen) this.#send(create(SessionResponseSchema, { message }))
  }
}

function inMessages(assignments: readonly Assignment[]): Assignment[][] {
  const messages: Assignment[][] = [[]]
  let left = MAX_ASSIGN_CHARS
  for (const assignment of assignments) {
    const chars = charsOf(assignment)
    if (chars > left && messages.at(-1)?.length !== 0) {
      messages.push([])
      left = MAX_ASSIGN_CHARS
    }
    messages.at(-1)?.push(assignment)
    left -= chars
  }
  return messages
}

/** The short fields of an assignment: ids, digests, peers. */
const OTHER_CHARS = 1024
/** Each text of a list is sent with a tag and a length. */
const LABEL_CHARS = 2

/** An upper estimate. */
function charsOf(assignment: Assignment): number {
  const { inputsJson = '', triggerJson = '', taskName = '', function: called = '', module } = assignment
  const { cliArgs = [], grants = [], env = {}, secrets = {} } = assignment
  let chars = OTHER_CHARS + inputsJson.length + triggerJson.length + taskName.length + called.length
  chars += (module?.reference?.length ?? 0) + (module?.ticket?.length ?? 0)
  for (const text of cliArgs) chars += LABEL_CHARS + text.length
  for (const texts of [env, secrets])
    for (const name in texts) chars += 3 * LABEL_CHARS + name.length + (texts[name]?.length ?? 0)
  for (const { channelId = '', subtopic = '', name = '' } of grants)
    chars += 4 * LABEL_CHARS + channelId.length + subtopic.length + name.length
  return chars
}
