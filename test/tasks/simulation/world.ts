/**
 * Managers, workers and a store in virtual time. Everything that decides is the manager's own code: the steps of its
 * writer, its cluster, its placement. Modelled are the network (delay, loss, repetition), the workers and the faults, all
 * drawn from one seed.
 */
import { ModuleCatalogue } from '#manager/store/catalogue.ts'
import { KnownTasks } from '#manager/writer/known-tasks.ts'
import { Cluster } from '#manager/placement/cluster.ts'
import { WorkerStream } from '#manager/dispatch/worker-stream.ts'
import { WorkerSession } from '#manager/placement/worker-session.ts'
import { fromRef } from '#manager/dispatch/translate.ts'
import type { RunIdentity } from '#manager/model/run.ts'
import { applyChanges, isPlainBatch } from '#manager/writer/apply-changes.ts'
import type { Change } from '#manager/writer/changes.ts'
import { adoptAssigned, findStarted } from '#manager/writer/recover-runs.ts'
import { STALE_TASK, type StartOutcome } from '#manager/writer/start-runs.ts'
import { RunBatch, type WriterContext } from '#manager/writer/batch.ts'
import { RunEndings } from '#manager/writer/endings.ts'
import { FairShares } from '#manager/writer/fair-shares.ts'
import { RunQueues } from '#manager/writer/queues.ts'
import type { HelloClaims, Reconciliation } from '#manager/writer/reconcile-runs.ts'
import { STOPPED_BEFORE_RUNNING, type RunEnding } from '#manager/model/run.ts'
import type { OnLost } from '#manager/model/task-fields.ts'
import { DEFAULT_TIMING } from '#manager/model/timing.ts'
import { TASK_STATE, type SessionResponse } from '#proto/index.ts'
import { logger } from '../support.ts'
import { DatabaseAway, Store } from './store.ts'

const HEARTBEAT_MS = 5_000
/** A crash takes the results of so long that were not acknowledged: far more than the tenth of a second that a worker keeps to. */
const SPOOL_WRITE_DELAY_MS = 20_000
const LEASE_MS = 20_000
const FAULTS_END_MS = 60_000
const HEALED_BY_MS = 1_500_000
const ON_LOST: readonly OnLost[] = ['requeue', 'fail', 'wait']

/** mulberry32: small, and the same everywhere. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

class Manager {
  readonly id: string
  readonly context: WriterContext
  readonly sessions = new Map<number, WorkerSession>()
  isUp = true
  isInDoubt = false

  constructor(id: string, random: () => number) {
    this.id = id
    this.context = {
      managerId: id,
      cluster: new Cluster({ maxTasks: 100, maxNeeds: 100, maxFunctions: 100 }),
      queues: new RunQueues(),
      shares: new FairShares(),
      quotas: { ofDomainId: () => undefined },
      counted: { cpu: UNLIMITED, bytes: UNLIMITED },
      amounts: { ready: () => undefined, require: () => undefined, changed: () => undefined },
      endings: new RunEndings(),
      // Starts of the simulation are not awaited: each is recorded first.
      unrecorded: { find: () => undefined, finish: () => undefined, startOver: () => undefined },
      // No run of the simulation has state.
      delayed: { add: () => undefined },
      modules: new ModuleCatalogue(),
      tasks: new KnownTasks(),
      timing: DEFAULT_TIMING,
      beganMs: 0,
      logger,
      random,
    }
  }
}

/** No run of the simulation has a message. */
const neverUndelivered = (): never => {
  throw new Error('no run has a message that is stored apart')
}
const UNLIMITED = { used: () => undefined, refusalOf: () => undefined }
const DELIVERY = {
  modules: { of: () => ({ digest: 'sha256:0' }) },
  openSecrets: () => ({}),
  readGiven: neverUndelivered,
}

type AssignedRun = { run: RunIdentity; isRunning: boolean; onLost: OnLost; beats: number }

class Node {
  readonly key: number
  readonly id: string
  boot = 0
  isUp = true
  /** Stopped by a signal: what is sent to it waits in the socket. */
  isFrozen = false
  /** When it must have stopped what it holds, on its own clock. */
  leaseEndMs = 0
  readonly held = new Map<string, AssignedRun>()
  readonly spool = new Map<string, { run: RunIdentity; ending: RunEnding; beats: number; onDiskMs: number }>()
  link: { manager: Manager; session: WorkerSession } | undefined

  constructor(key: number) {
    this.key = key
    this.id = `00000000-0000-4000-8000-00000000000${key}`
  }
}

export type Outcome = {
  problems: string[]
  /** What the schedule went through, so that a test can see that faults do happen. */
  seen: Record<'requeued' | 'lost' | 'stale' | 'in_doubt' | 'restarts' | 'unknown' | 'silent' | 'unspooled', number>
}

export class World {
  readonly #random: () => number
  readonly #store = new Store()
  readonly #events: { at: number; order: number; act: () => void | Promise<void> }[] = []
  readonly #managers: Manager[]
  readonly #nodes: Node[]
  readonly #started = new Set<string>()
  readonly #problems: string[] = []
  readonly #seen: Outcome['seen'] = {
    requeued: 0,
    lost: 0,
    stale: 0,
    in_doubt: 0,
    restarts: 0,
    unknown: 0,
    silent: 0,
    unspooled: 0,
  }
  #order = 0
  #ids = 0

  constructor(seed: number) {
    this.#random = randomOf(seed)
    this.#managers = ['m1', 'm2'].slice(0, this.#chance(0.4) ? 2 : 1).map((id) => new Manager(id, this.#random))
    this.#nodes = Array.from({ length: this.#int(1, 3) }, (_, index) => new Node(index + 1))
    for (const node of this.#nodes) {
      this.#store.tables.workers.set(node.key, {
        key: node.key,
        id: node.id,
        boot_id: '',
        session_epoch: 0,
        manager_id: null,
        lease_until: 0,
      })
    }
  }

  #chance(share: number): boolean {
    return this.#random() < share
  }

  #int(low: number, high: number): number {
    return low + Math.floor(this.#random() * (high - low + 1))
  }

  #after(delayMs: number, act: () => void | Promise<void>): void {
    this.#events.push({ at: this.#store.now + delayMs, order: this.#order++, act })
  }

  get #isHealed(): boolean {
    return this.#store.now >= FAULTS_END_MS
  }

  async run(): Promise<Outcome> {
    this.#plan()
    while (this.#events.length > 0) {
      let next = 0
      for (let at = 1; at < this.#events.length; at++) {
        const [one, best] = [this.#events[at], this.#events[next]]
        if (one === undefined || best === undefined) continue
        if (one.at < best.at || (one.at === best.at && one.order < best.order)) next = at
      }
      const [event] = this.#events.splice(next, 1)
      if (event === undefined) break
      this.#store.now = Math.max(this.#store.now, event.at)
      await event.act()
    }
    this.#judge()
    return { problems: this.#problems, seen: this.#seen }
  }

  #plan(): void {
    const tasks = this.#int(2, 4)
    for (let key = 1; key <= tasks; key++) this.#addTask(key)
    for (const node of this.#nodes) this.#after(this.#int(0, 100), () => this.#join(node))
    for (let count = this.#int(3, 8); count > 0; count--) {
      const key = this.#int(1, tasks)
      this.#after(this.#int(0, FAULTS_END_MS / 2), () => this.#start(key, this.#chance(0.5)))
    }
    if (this.#chance(0.3)) {
      const key = this.#int(1, tasks)
      this.#after(this.#int(0, FAULTS_END_MS), () => this.#stop(key))
    }
    for (let count = this.#int(1, 4); count > 0; count--) this.#after(this.#int(0, FAULTS_END_MS), () => this.#fault())
    for (const node of this.#nodes) this.#after(HEARTBEAT_MS, () => this.#beat(node))
    this.#after(1_000, () => this.#sweep())
  }

  #addTask(key: number): void {
    const row = {
      domain_id: null,
      domain_key: null,
      user_key: null,
      name: 'add',
      inputs: [1, 2],
      cli_args: null,
      env: {},
      image_url: null,
      module_key: 1,
      function: 'add',
      labels: {},
      worker_id: null,
      priority: 50,
      timeout_ms: 300_000,
      memory_limit_bytes: 67_108_864,
      max_attempts: this.#chance(0.5) ? null : this.#int(1, 5),
      backoff_ms: 1_000,
      on_lost: ON_LOST[this.#int(0, 2)],
      broadcast: false,
      daemon: false,
      publish_result: null,
      grants: [],
      http: null,
      offline: false,
      secrets: null,
      paused_at: null,
    }
    this.#store.tables.tasks.set(key, { key, id: `task-${key}`, state: TASK_STATE.pending, run_key: null, row })
  }

  #anyManager(): Manager | undefined {
    const up = this.#managers.filter(({ isUp }) => isUp)
    return up[this.#int(0, Math.max(up.length - 1, 0))]
  }

  /** One batch of a manager, repeated as its writer repeats it when the answer of a commit was lost. */
  async #write(manager: Manager, changes: readonly Change[], rereadsTasks = false): Promise<unknown[]> {
    for (;;) {
      const fate = this.#isHealed || this.#chance(0.97) ? undefined : this.#chance(0.5) ? 'lost' : 'unanswered'
      const batch = new RunBatch(
        this.#store.connect(() => fate),
        manager.context,
      )
      try {
        if (manager.isInDoubt) await adoptAssigned(batch)
        const started = manager.isInDoubt ? await findStarted(batch, changes) : undefined
        const isPlain = !manager.isInDoubt && isPlainBatch(manager.context, changes)
        const outcomes = await applyChanges(batch, changes, {
          managerId: manager.id,
          isPlain,
          started,
          rereadsTasks,
        })
        await batch.writeTasks()
        batch.commit()
        await batch.settled()
        manager.isInDoubt = false
        batch.committed()
        return outcomes
      } catch (error) {
        batch.abandoned()
        await batch.settled().catch(() => undefined)
        if (!(error instanceof DatabaseAway)) throw error
        this.#seen.in_doubt += 1
        manager.isInDoubt = true
      }
    }
  }

  async #start(taskKey: number, drivesTask: boolean): Promise<void> {
    const manager = this.#anyManager()
    if (manager === undefined) return
    this.#ids += 1
    const runId = `00000000-0000-4000-9000-${String(this.#ids).padStart(12, '0')}`
    const request = {
      taskId: `task-${taskKey}`,
      runId,
      overrides: {},
      drivesTask,
      cause: { type: 'user' as const },
      image: undefined,
      idempotency: undefined,
    }
    const write = async (rereadsTasks: boolean) => {
      const [outcome] = await this.#write(manager, [{ kind: 'start', request }], rereadsTasks)
      return outcome as StartOutcome
    }
    const first = await write(false)
    const outcome = first === STALE_TASK ? await write(true) : first
    // Told to the caller: from now on the start must not be lost.
    if (outcome !== STALE_TASK && 'runId' in outcome) this.#started.add(outcome.runId)
  }

  async #stop(taskKey: number): Promise<void> {
    const manager = this.#anyManager()
    if (manager !== undefined) await this.#write(manager, [{ kind: 'stop', stop: { taskKey, recordedFor: undefined } }])
  }

  /** Register and Hello. */
  async #join(node: Node): Promise<void> {
    const manager = this.#anyManager()
    if (!node.isUp || node.link !== undefined) return
    if (node.isFrozen) return this.#after(500, () => this.#join(node))
    if (manager === undefined) return this.#after(1_000, () => this.#join(node))
    const row = this.#store.tables.workers.get(node.key)
    if (row === undefined) return
    row.session_epoch += 1
    row.manager_id = manager.id
    row.lease_until = this.#store.now + LEASE_MS
    const before = manager.context.cluster.find(node.key)
    if (before !== undefined) manager.context.cluster.remove(before)
    const facts = {
      key: node.key,
      id: node.id,
      name: `w${node.key}`,
      domainId: null,
      labels: {},
      runtimes: ['core'],
      isPlatformOnly: false,
      memoryBytes: 2 ** 34,
      slots: 2,
      backlog: 4,
      isDraining: false,
      epoch: row.session_epoch,
      cachedDigests: [],
      peerAddress: '',
    }
    const link: { manager: Manager; session: WorkerSession } = {
      manager,
      session: new WorkerSession(
        facts,
        this.#store.now,
        new WorkerStream(facts.id, DELIVERY, {
          send: (message) => this.#toNode(node, link, message),
          undelivered: { gone: neverUndelivered, failed: neverUndelivered },
        }),
      ),
    }
    const claims: HelloClaims = {
      bootId: `boot-${node.boot}`,
      running: new Map(
        [...node.held.values()].map(({ run, isRunning }) => [
          run.id,
          { run, state: isRunning ? TASK_STATE.running : TASK_STATE.scheduled },
        ]),
      ),
      spooled: new Map([...node.spool.values()].map(({ run }) => [run.id, run])),
    }
    node.link = link
    node.leaseEndMs = this.#store.now + LEASE_MS - 2_000
    const hello = { kind: 'hello', session: link.session, claims, leaseMs: LEASE_MS } as const
    const [settled] = (await this.#write(manager, [hello])) as (Reconciliation | undefined)[]
    if (settled === undefined) {
      node.link = undefined
      return this.#after(1_000, () => this.#join(node))
    }
    const counts = (id: string) => settled.keep.has(id) || settled.resend.has(id)
    for (const id of claims.running.keys()) if (!counts(id)) node.held.delete(id)
    for (const { id, fence } of claims.spooled.values())
      if (!counts(id) && node.spool.get(id)?.run.fence === fence) node.spool.delete(id)
    manager.context.cluster.add(link.session)
    for (const id of settled.resend) this.#report(node, id)
    await this.#write(manager, [{ kind: 'claim' }])
  }

  #leave(node: Node): void {
    const { link } = node
    if (link === undefined) return
    link.manager.context.cluster.remove(link.session)
    node.link = undefined
  }

  #isLinked(node: Node, link: Node['link']): boolean {
    return node.link === link && link?.manager.isUp === true && link.session.isAlive
  }

  #toNode(node: Node, link: NonNullable<Node['link']>, { message }: SessionResponse): void {
    const deliver = () => {
      if (node.isFrozen) return this.#after(500, deliver)
      if (!node.isUp || node.link !== link) return
      if (message.case === 'assign') {
        for (const { run, onLost } of message.value.assignments)
          this.#take(node, fromRef(run), ON_LOST[onLost - 1] ?? 'requeue')
      } else if (message.case === 'cancel') {
        for (const ref of message.value.runs) {
          const run = fromRef(ref)
          if (node.held.get(run.id)?.run.fence === run.fence)
            this.#finish(node, run, { ...STOPPED_BEFORE_RUNNING, state: TASK_STATE.stopped })
        }
      } else if (message.case === 'resultAck') {
        for (const { run: ref, recorded } of message.value.receipts) {
          const run = fromRef(ref)
          if (!recorded) this.#seen.stale += 1
          if (node.spool.get(run.id)?.run.fence === run.fence) node.spool.delete(run.id)
        }
      }
    }
    this.#send(deliver)
  }

  /** Late, twice, or never, although the stream stands: what is not heard has to be found out and said again. */
  #send(deliver: () => void | Promise<void>): void {
    if (!this.#isHealed && this.#chance(0.03)) {
      this.#seen.silent += 1
      return
    }
    this.#after(this.#int(0, 20), deliver)
    if (!this.#isHealed && this.#chance(0.05)) this.#after(this.#int(0, 2_000), deliver)
  }

  #take(node: Node, run: RunIdentity, onLost: OnLost): void {
    const known = node.held.get(run.id)
    if (known !== undefined && known.run.fence >= run.fence) {
      if (known.run.fence === run.fence) this.#sayHeld(node, known)
      return
    }
    const spooled = node.spool.get(run.id)?.run.fence ?? 0
    if (spooled === run.fence) this.#report(node, run.id)
    if (spooled >= run.fence) return
    const taken = { run, isRunning: false, onLost, beats: 0 }
    node.held.set(run.id, taken)
    this.#sayHeld(node, taken)
    this.#after(this.#int(0, 50), () => {
      const held = node.held.get(run.id)
      if (!node.isUp || node.isFrozen || held?.run.fence !== run.fence) return
      held.isRunning = true
      held.beats = 0
      this.#sayHeld(node, held)
      this.#after(this.#int(5, this.#chance(0.7) ? 500 : 30_000), () => {
        if (!node.isUp || node.isFrozen || node.held.get(run.id)?.run.fence !== run.fence) return
        const failed = this.#chance(0.2)
        this.#finish(node, run, {
          ...STOPPED_BEFORE_RUNNING,
          state: failed ? TASK_STATE.failed : TASK_STATE.completed,
          reason: failed ? 'trap' : null,
          durationMs: 5,
        })
      })
    })
  }

  #sayHeld(node: Node, { run, isRunning }: AssignedRun): void {
    if (isRunning) return this.#tell(node, (session) => [{ kind: 'running', session, runs: [run] }])
    const { link } = node
    if (link !== undefined) this.#send(() => link.session.confirm(run))
  }

  /** As the worker does it at each heartbeat. */
  #resendUnconfirmed(node: Node): void {
    for (const held of node.held.values()) {
      held.beats += 1
      if (held.beats === 2) this.#sayHeld(node, held)
    }
    for (const [id, spooled] of node.spool) {
      spooled.beats += 1
      if (spooled.beats >= 2 && Math.log2(spooled.beats) % 1 === 0) this.#report(node, id)
    }
  }

  #finish(node: Node, run: RunIdentity, ending: RunEnding): void {
    const mayWait = node.held.get(run.id)?.onLost !== 'wait'
    node.held.delete(run.id)
    node.spool.set(run.id, { run, ending, beats: 0, onDiskMs: this.#store.now + (mayWait ? SPOOL_WRITE_DELAY_MS : 0) })
    this.#report(node, run.id)
  }

  #report(node: Node, runId: string): void {
    const spooled = node.spool.get(runId)
    if (spooled === undefined) return
    this.#tell(node, (session) => [{ kind: 'ends', session, ends: [spooled] }])
  }

  /** A message of a worker. */
  #tell(node: Node, changes: (session: WorkerSession) => Change[]): void {
    const { link } = node
    if (link === undefined) return
    const deliver = async () => {
      // What is under way on a stream that broke may still arrive, for as long as the manager believes in the session.
      if (!link.manager.isUp || !link.session.isAlive) return
      const written = changes(link.session)
      for (const change of written) {
        if (change.kind === 'running') for (const run of change.runs) link.session.confirm(run)
        if (change.kind === 'ends') for (const { run } of change.ends) link.session.confirm(run)
      }
      await this.#write(link.manager, written)
    }
    this.#send(deliver)
  }

  #beat(node: Node): void {
    if (this.#store.now > HEALED_BY_MS) return
    this.#after(HEARTBEAT_MS, () => this.#beat(node))
    if (!node.isUp || node.isFrozen) return
    const row = this.#store.tables.workers.get(node.key)
    const { link } = node
    if (link !== undefined && this.#isLinked(node, link) && row?.session_epoch === link.session.epoch) {
      row.lease_until = this.#store.now + LEASE_MS
      node.leaseEndMs = this.#store.now + LEASE_MS - 2_000
      const { cluster } = link.manager.context
      link.session.repeatUnconfirmed()
      cluster.touch(link.session)
      cluster.flush()
      this.#resendUnconfirmed(node)
    } else if (link !== undefined) {
      this.#leave(node)
      this.#after(this.#int(100, 3_000), () => this.#join(node))
    }
    if (this.#store.now < node.leaseEndMs) return
    for (const [id, held] of node.held) if (held.onLost !== 'wait') node.held.delete(id)
  }

  async #sweep(): Promise<void> {
    const open = this.#store.runs.some((run) => run.next_check_at !== null)
    if (this.#store.now > HEALED_BY_MS) return
    if (!open && this.#isHealed) {
      this.#events.length = 0
      return
    }
    this.#after(this.#isHealed ? 5_000 : 1_000, () => this.#sweep())
    for (const manager of this.#managers) {
      if (!manager.isUp) continue
      for (const row of this.#store.tables.workers.values()) {
        if (row.manager_id === null || row.lease_until >= this.#store.now) continue
        this.#seen.lost += 1
        await this.#write(manager, [{ kind: 'lose', workerKey: row.key, epoch: row.session_epoch }])
      }
      const isDue = this.#store.runs.some((run) => run.next_check_at !== null && run.next_check_at <= this.#store.now)
      const isWaiting = this.#store.runs.some((run) => run.queue_seq !== null)
      if (isDue || isWaiting) await this.#write(manager, [{ kind: 'sweep' }])
    }
    this.#seen.unknown += this.#store.runs.filter((run) => run.state === TASK_STATE.unknown).length
    this.#seen.requeued = Math.max(this.#seen.requeued, ...this.#store.runs.map((run) => run.attempt - 1), 0)
  }

  #fault(): void {
    const node = this.#nodes[this.#int(0, this.#nodes.length - 1)]
    const kind = this.#int(0, 3)
    if (kind === 0 && node !== undefined) this.#crash(node)
    else if (kind === 1 && node !== undefined) {
      // The stream breaks, or everything is cut off for a while; the manager notices at once, or late.
      const { link } = node
      node.link = undefined
      if (link !== undefined)
        this.#after(this.#chance(0.5) ? 0 : this.#int(0, 15_000), () =>
          link.manager.context.cluster.remove(link.session),
        )
      this.#after(this.#int(50, this.#chance(0.5) ? 1_000 : 40_000), () => this.#join(node))
    } else if (kind === 2) this.#restartManager()
    else if (node !== undefined) {
      // The worker is frozen: no heartbeat and no message, and then it continues.
      if (!node.isUp || node.isFrozen) return
      node.isFrozen = true
      this.#after(this.#int(1_000, 40_000), () => {
        node.isFrozen = false
        this.#after(0, () => this.#beatOnce(node))
        for (const id of node.held.keys()) this.#after(10, () => this.#resume(node, id))
      })
    }
  }

  #beatOnce(node: Node): void {
    const row = this.#store.tables.workers.get(node.key)
    const { link } = node
    if (link === undefined) return this.#after(0, () => this.#join(node))
    if (row?.session_epoch === link.session.epoch && this.#isLinked(node, link)) {
      row.lease_until = this.#store.now + LEASE_MS
      return
    }
    this.#leave(node)
    this.#after(this.#int(0, 500), () => this.#join(node))
  }

  /** What a worker that stood still was running ends after all, with or without its lease. */
  #resume(node: Node, id: string): void {
    const held = node.held.get(id)
    if (held === undefined || !node.isUp) return
    this.#finish(node, held.run, { ...STOPPED_BEFORE_RUNNING, state: TASK_STATE.completed, durationMs: 5 })
  }

  #crash(node: Node): void {
    this.#seen.restarts += 1
    this.#leave(node)
    node.isUp = false
    node.isFrozen = false
    node.held.clear()
    for (const [id, { onDiskMs }] of node.spool) {
      if (onDiskMs <= this.#store.now) continue
      node.spool.delete(id)
      this.#seen.unspooled += 1
    }
    this.#after(this.#int(100, this.#chance(0.5) ? 2_000 : 45_000), () => {
      node.isUp = true
      node.boot += 1
      this.#after(0, () => this.#join(node))
    })
  }

  #restartManager(): void {
    const at = this.#int(0, this.#managers.length - 1)
    const manager = this.#managers[at]
    if (manager === undefined || !manager.isUp) return
    this.#seen.restarts += 1
    manager.isUp = false
    for (const node of this.#nodes) {
      if (node.link?.manager !== manager) continue
      node.link = undefined
      this.#after(this.#int(100, 5_000), () => this.#join(node))
    }
    this.#after(this.#int(200, 10_000), () => {
      this.#managers[at] = new Manager(`${manager.id}'`, this.#random)
    })
  }

  #judge(): void {
    const { fences, ends, timeouts } = this.#store.ledger
    const problem = (text: string) => this.#problems.push(text)
    if (fences.some((fence, at) => at > 0 && fence <= (fences[at - 1] ?? 0))) problem('a fence did not rise')
    // No run here lasts as long as its timeout: one that ended by it was forgotten by its worker or its manager.
    for (const id of timeouts) problem(`run ${id} was found by its deadline alone`)
    const runs = new Map(this.#store.runs.map((run) => [run.id, run]))
    for (const id of this.#started) if (!runs.has(id)) problem(`start ${id} was lost`)
    for (const run of runs.values()) {
      const times = ends.get(run.id)?.length ?? 0
      if (run.next_check_at !== null) problem(`run ${run.id} is stuck in state ${run.state}, attempt ${run.attempt}`)
      else if (times !== 1) problem(`run ${run.id} was recorded ${times} times`)
      if (run.fence !== null && (ends.get(run.id)?.[0] ?? run.fence) !== run.fence)
        problem(`run ${run.id} ended under fence ${ends.get(run.id)?.[0]}, its own is ${run.fence}`)
    }
    for (const task of this.#store.tables.tasks.values()) {
      const run = task.run_key === null ? undefined : this.#store.tables.runs.get(task.run_key)
      const expected = run === undefined ? TASK_STATE.pending : run.state
      if (task.state !== expected) problem(`task ${task.id} shows state ${task.state}, its run has ${expected}`)
    }
  }
}
