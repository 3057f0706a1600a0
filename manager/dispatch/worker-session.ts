/**
 * A worker's session as this manager sees it: what the worker offers, what it holds, when it was last heard of. What
 * the manager wants to tell it is gathered and sent as one message per kind when a batch has been committed.
 */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { monotonicMs } from '#core/time.ts'
import { SessionResponseSchema } from '#proto/index.ts'
import type { ModuleRefSchema, SessionResponse } from '#proto/index.ts'
import type { ModulePeer, ModuleRefs } from '../modules/module-refs.ts'
import { moduleOf } from '../runs/spec.ts'
import type { HeldRun } from '../runs/spec.ts'
import type { WorkerView } from '../scheduler/index.ts'
import { toAssignment, toRef } from './translate.ts'

export type WorkerFacts = {
  key: number
  id: string
  name: string
  domainId: string | null
  labels: Readonly<Record<string, string>>
  runtimes: readonly string[]
  isPlatformOnly: boolean
  memoryBytes: number
  slots: number
  backlog: number
  isDraining: boolean
  epoch: number
  cachedDigests: readonly string[]
  /** Where it gives modules to others of its site; empty: it does not. */
  peerAddress: string
}

/** What an assignment needs beside its run. */
export type Delivery = {
  modules: ModuleRefs
  /** The secrets of a task, sealed in base64. */
  openSecrets: (taskId: string, sealed: string) => Record<string, string>
}

export type Receipt = { run: { id: string; attempt: number; fence: number }; recorded: boolean }
type Outgoing = NonNullable<MessageInitShape<typeof SessionResponseSchema>['message']>

/** Digests remembered per worker; what is beyond counts as not cached, which costs a fetch at most. */
const MAX_CACHED_DIGESTS = 1_000

/** Between two heartbeats lies a whole interval, in which every worker that got an assignment has said so. */
const BEATS_BEFORE_REPEAT = 2

/** A worker takes no message of more than 16 MiB: these are at most 12 MiB in UTF-8, as a single run is. */
const MAX_ASSIGN_CHARS = 4 * 1024 * 1024

type NewAssignment = ReturnType<typeof toAssignment>

function inMessages(assignments: readonly NewAssignment[]): NewAssignment[][] {
  const messages: NewAssignment[][] = [[]]
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

/** What is short in an assignment: ids, digests, tickets, peers. */
const OTHER_CHARS = 1024
/** A text of a list is said with its label and its length, however short it is. */
const LABEL_CHARS = 2

/** An estimate that is not too low. */
function charsOf(assignment: NewAssignment): number {
  const { inputsJson = '', triggerJson = '', taskName = '', function: called = '', module } = assignment
  const { cliArgs = [], grants = [], env = {}, secrets = {} } = assignment
  let chars = OTHER_CHARS + inputsJson.length + triggerJson.length + taskName.length + called.length
  chars += module?.reference?.length ?? 0
  for (const text of cliArgs) chars += LABEL_CHARS + text.length
  for (const texts of [env, secrets])
    for (const name in texts) chars += 3 * LABEL_CHARS + name.length + (texts[name]?.length ?? 0)
  for (const { channelId = '', subtopic = '', name = '' } of grants)
    chars += 4 * LABEL_CHARS + channelId.length + subtopic.length + name.length
  return chars
}

export class WorkerSession implements WorkerView {
  readonly key: number
  readonly id: string
  readonly name: string
  readonly domainId: string | null
  readonly labels: Readonly<Record<string, string>>
  readonly runtimes: readonly string[]
  readonly isPlatformOnly: boolean
  readonly memoryBytes: number
  readonly slots: number
  readonly backlog: number
  readonly epoch: number
  readonly peerAddress: string
  /** Runs by id; a run is in here from the commit of its assignment to the commit of its end. */
  readonly runs = new Map<string, HeldRun>()
  readonly cachedDigests: Set<string>
  /** It was told to get them and has not said that it has. */
  readonly awaitedDigests = new Set<string>()
  /** Runs whose component it transpiles, 0, or that wait for it, with their places; of the last heartbeat. */
  preparing: ReadonlyMap<string, number> = new Map()
  /** Domains whose components it gave back because too many wait; until the next heartbeat. */
  readonly crowdedDomains = new Set<string | null>()
  /** Its owner asked for it. */
  isDrainAsked: boolean
  /** It says so itself, as it does before it ends. */
  saysDraining = false
  isAlive = true
  isSuspect = false
  lastPlaced = 0
  /** Placed in a batch that is not committed yet. */
  reserved = 0
  /** Runs that were stopped and whose slot the worker has not freed yet count until it says so. */
  lastBeatMs: number
  freeSlots: number
  readonly #send: (message: SessionResponse) => void
  #beats = 0
  #assignments: { run: HeldRun; peers: readonly ModulePeer[] }[] = []
  #receipts: Receipt[] = []

  constructor(facts: WorkerFacts, nowMs: number, send: (message: SessionResponse) => void) {
    this.key = facts.key
    this.id = facts.id
    this.name = facts.name
    this.domainId = facts.domainId
    this.labels = facts.labels
    this.runtimes = facts.runtimes
    this.isPlatformOnly = facts.isPlatformOnly
    this.memoryBytes = facts.memoryBytes
    this.slots = facts.slots
    this.backlog = facts.backlog
    this.epoch = facts.epoch
    this.peerAddress = facts.peerAddress
    this.isDrainAsked = facts.isDraining
    this.freeSlots = facts.slots
    this.cachedDigests = new Set(facts.cachedDigests.slice(0, MAX_CACHED_DIGESTS))
    this.lastBeatMs = nowMs
    this.#send = send
  }

  get held(): number {
    return this.runs.size + this.reserved
  }

  get isDraining(): boolean {
    return this.isDrainAsked || this.saysDraining
  }

  /** Tells the worker to drain or to take work again. */
  askDrain(isAsked: boolean): void {
    this.isDrainAsked = isAsked
    this.tell({ case: 'drain', value: { draining: isAsked } })
  }

  /**
   * Gathers an assignment; `flush` sends it. The fence must be committed. `peers` had the module, or were told to get it,
   * before this worker: of several that are told at the same moment the first asks nobody, and nobody waits in a circle.
   */
  assign(run: HeldRun, peers: readonly ModulePeer[] = []): void {
    this.runs.set(run.id, run)
    run.unconfirmedSince = this.#beats
    run.sentMs = monotonicMs()
    this.#assignments.push({ run, peers })
    this.rememberDigest(run.digest)
  }

  /** The worker has it: it says so, or speaks of its course. */
  confirm({ id, fence }: Receipt['run']): void {
    const run = this.runs.get(id)
    if (run?.fence === fence) run.unconfirmedSince = undefined
  }

  /** A heartbeat came: gathers again what was sent two of them ago and was not confirmed; a worker takes it once. */
  repeatUnconfirmed(): void {
    this.#beats += 1
    for (const run of this.runs.values()) {
      const since = run.unconfirmedSince
      if (since === undefined || this.#beats - since < BEATS_BEFORE_REPEAT) continue
      this.assign(run)
      run.sentMs = undefined
    }
  }

  acknowledge(receipt: Receipt): void {
    this.#receipts.push(receipt)
  }

  /** Asks the worker to get a module before it needs it. */
  prefetch(module: MessageInitShape<typeof ModuleRefSchema>, digest: string): void {
    if (!this.cachedDigests.has(digest) && this.awaitedDigests.size < MAX_CACHED_DIGESTS)
      this.awaitedDigests.add(digest)
    this.tell({ case: 'prefetch', value: { modules: [module] } })
  }

  rememberDigest(digest: string): void {
    this.awaitedDigests.delete(digest)
    if (this.cachedDigests.size < MAX_CACHED_DIGESTS) this.cachedDigests.add(digest)
  }

  /** Sends what was gathered: receipts first, because they free the worker's spool. */
  flush({ modules, openSecrets }: Delivery): void {
    if (this.#receipts.length > 0) {
      const receipts = this.#receipts.map(({ run, recorded }) => ({ run: toRef(run), recorded }))
      this.#receipts = []
      this.tell({ case: 'resultAck', value: { receipts } })
    }
    if (this.#assignments.length > 0) {
      const assignments = this.#assignments.map(({ run, peers }) => {
        const { task_id: taskId, secrets } = run.spec
        const opened = secrets === undefined ? {} : openSecrets(taskId, secrets)
        return toAssignment(run, modules.of(this.id, moduleOf(run), peers), opened)
      })
      this.#assignments = []
      for (const some of inMessages(assignments)) this.tell({ case: 'assign', value: { assignments: some } })
    }
  }

  tell(message: Outgoing): void {
    this.#send(create(SessionResponseSchema, { message }))
  }
}
