/**
 * The one ordered writer of this manager's run states: everything that changes a run goes through one queue and is
 * written in batches, one transaction each. Acknowledgements, assignments and HTTP answers leave after the commit. Two batches
 * are written at a time where neither can touch what the other does (decision 0045).
 */
import type { Client } from 'pg'
import {
  createBatcher,
  isDatabaseAway,
  isRefusedData,
  isRepeatable,
  translateDatabaseError,
  violatedConstraint,
} from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import type { RunIdentity } from '../dispatch/translate.ts'
import type { WorkerSession } from '../dispatch/worker-session.ts'
import { applyChanges, isPlainBatch, recoverChanges, type Change } from './apply-changes.ts'
import { RunBatch, type WriterContext } from './batch.ts'
import type { RemovalOutcome, WorkerRemoval } from './remove-worker.ts'
import type { HelloClaims, Reconciliation } from './reconcile-runs.ts'
import type { RunEnding } from './spec.ts'
import type { StaleStart, StartOutcome, StartRequest } from './start-runs.ts'
import { Turns, type Turn } from './turns.ts'

/** Changes in one transaction; a message of a worker with many runs is one change. */
const MAX_BATCH_CHANGES = 1_000
/** While one waits for its commit to reach the disk, the other one is computed. */
const MAX_BATCHES_AT_A_TIME = 2
/** Changes that wait; beyond it HTTP is answered 503 and workers send their results again. */
const MAX_QUEUED_CHANGES = 20_000
/** What workers reported is written again for as long as this when the database is away, in milliseconds. */
const DATABASE_PATIENCE_MS = 60_000
/** A start is refused with `unavailable` when the database is away for as long as this, in milliseconds. */
const START_PATIENCE_MS = 3_000
const RECONNECT_MS = 100
/**
 * Every statement of the writer finds its rows by an index, however few there are today. So one plan is made for each, for
 * good: planning anew took longer than a small batch, and a plan from when the table was empty would read all of it later.
 */
const PLANNING = `
  SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`

export type RunWriter = ReturnType<typeof createRunWriter>

export type RunWriterDeps = {
  context: WriterContext
  /** A connection of the writer's own. */
  connect: () => Promise<Client>
  signal: AbortSignal
}

export function createRunWriter({ context, connect, signal }: RunWriterDeps) {
  const { managerId } = context
  const turns = new Turns()
  /** Connections on which nothing is written now. */
  const idle: Client[] = []
  /** Connections that have ended by themselves. */
  const gone = new WeakSet<Client>()
  /** A commit may have happened without its answer; the next batch looks before it writes. */
  let isInDoubt = false
  const batcher = createBatcher<Change, unknown>({
    name: 'the task manager',
    maxItems: MAX_BATCH_CHANGES,
    maxQueuedItems: MAX_QUEUED_CHANGES,
    maxInFlight: MAX_BATCHES_AT_A_TIME,
    weightOf: countRuns,
    write: writePatiently,
  })

  /**
   * Reports of workers are worth waiting for; a start less so, its caller may ask again. Repeating is safe: every report
   * counts only under its fence and once, and a start is looked up by the run id that was made for it.
   */
  async function writePatiently(changes: readonly Change[]): Promise<readonly unknown[]> {
    const outcomes = new Map<Change, unknown>()
    let open = [...changes]
    for (let waitedMs = 0; ; waitedMs += RECONNECT_MS) {
      try {
        const written = await writeInTurn(open, waitedMs > 0)
        open.forEach((change, index) => outcomes.set(change, written[index]))
        return changes.map((change) => outcomes.get(change))
      } catch (error) {
        const refusal = translateDatabaseError(error) as Error
        if (!isDatabaseAway(error)) {
          context.logger.error({ err: error, changes: open.length }, 'a batch of task states could not be written')
          throw refusal
        }
        if (waitedMs >= DATABASE_PATIENCE_MS || signal.aborted) throw refusal
        if (waitedMs >= START_PATIENCE_MS) {
          for (const change of open) if (change.kind === 'start') outcomes.set(change, refusal)
          open = open.filter((change) => change.kind !== 'start')
          if (open.length === 0) return changes.map((change) => outcomes.get(change))
        }
        await sleep(RECONNECT_MS, signal).catch(() => undefined)
      }
    }
  }

  async function writeInTurn(changes: readonly Change[], isRepeated: boolean): Promise<readonly unknown[]> {
    const turn = await turns.take(() => !isInDoubt && !isRepeated && isPlainBatch(context, changes))
    try {
      const outcomes = await writeOrSplit(changes, { turn, mustLook: isInDoubt || isRepeated })
      // Room that one batch has made and the other one has not seen.
      if (turn === 'shared' && context.queues.total > 0) submit({ kind: 'claim' }).catch(() => undefined)
      return outcomes
    } finally {
      turns.giveBack(turn)
    }
  }

  /** What PostgreSQL refuses in a batch is found by halving, so that no neighbour is lost with it. */
  async function writeOrSplit(changes: readonly Change[], mode: Mode): Promise<readonly unknown[]> {
    try {
      return await writeOnce(changes, mode)
    } catch (error) {
      if (isRepeatable(error)) return writeOnce(changes, mode)
      if (!isRefusedData(error)) throw error
      const [only, ...others] = changes
      if (only !== undefined && others.length === 0) {
        if (only.kind === 'start' && violatedConstraint(error) === 'runs_task_fkey') {
          return [new ServiceError('not_found', 'no such task')]
        }
        // Another manager has used the key, or started this very run, a moment ago: now it is seen.
        if (only.kind === 'start' && violatedConstraint(error) === 'run_start_keys_pkey')
          return writeOnce(changes, mode)
        if (only.kind === 'start' && violatedConstraint(error) === 'runs_id_key')
          return [{ runId: only.request.runId, runKey: undefined, taskKey: 0 }]
        context.logger.error({ err: error, change: only.kind }, 'a task state was refused by the database')
        return [error]
      }
      const half = Math.ceil(changes.length / 2)
      return [...(await writeOrSplit(changes.slice(0, half), mode)), ...(await writeOrSplit(changes.slice(half), mode))]
    }
  }

  async function writeOnce(changes: readonly Change[], { turn, mustLook }: Mode): Promise<readonly unknown[]> {
    const connection = idle.pop() ?? (await open())
    const batch = new RunBatch(connection, context)
    try {
      const started = mustLook ? await recoverChanges(batch, changes) : undefined
      const outcomes = await applyChanges(batch, changes, { managerId, started, isPlain: turn === 'shared' })
      await batch.writeTasks()
      batch.commit()
      await batch.settled()
      if (mustLook) isInDoubt = false
      batch.committed()
      giveBack(connection)
      return outcomes
    } catch (error) {
      batch.abandoned()
      await batch.settled().catch(() => undefined)
      if (isDatabaseAway(error)) {
        isInDoubt = true
        await connection.end().catch(() => undefined)
      } else {
        await connection.query('ROLLBACK').catch(() => undefined)
        giveBack(connection)
      }
      throw error
    }
  }

  function giveBack(connection: Client): void {
    if (!gone.has(connection)) idle.push(connection)
  }

  async function open(): Promise<Client> {
    // Statements of a batch that do not depend on each other are sent together: the batch waits for PostgreSQL three or
    // four times instead of once per statement.
    const opened = Object.assign(await connect(), { pipeline: true })
    await opened.query(PLANNING)
    const leave = () => {
      gone.add(opened)
      const at = idle.indexOf(opened)
      if (at >= 0) idle.splice(at, 1)
    }
    opened.on('end', leave)
    opened.on('error', leave)
    return opened
  }

  const submit = <T>(change: Change) => batcher.submit(change) as Promise<T>

  /** With the task as it is in the database when what was known of it turned out to be old. */
  async function start(request: StartRequest): Promise<Exclude<StartOutcome, StaleStart>> {
    for (let isReread = false; ; isReread = true) {
      const outcome = await submit<StartOutcome>({ kind: 'start', request, isReread })
      if (!('isStale' in outcome)) return outcome
      if (isReread) throw new ServiceError('not_found', 'no such task')
    }
  }

  return {
    start,
    running: (session: WorkerSession, runs: RunIdentity[]) => submit<void>({ kind: 'running', session, runs }),
    /** Acknowledged to the worker after the commit, in order. */
    ends: (session: WorkerSession, ends: { run: RunIdentity; ending: RunEnding }[]) =>
      submit<void>({ kind: 'ends', session, ends }),
    reject: (session: WorkerSession, run: RunIdentity, reason: string) =>
      submit<void>({ kind: 'reject', session, run, reason }),
    hello: (session: WorkerSession, claims: HelloClaims, leaseMs: number) =>
      submit<Reconciliation | undefined>({ kind: 'hello', session, claims, leaseMs }),
    lose: (workerKey: number, epoch: number) => submit<boolean>({ kind: 'lose', workerKey, epoch }),
    removeWorker: (workerKey: number, removal: WorkerRemoval) =>
      submit<RemovalOutcome>({ kind: 'remove_worker', workerKey, removal }),
    stop: (taskKey: number) => submit<number[]>({ kind: 'stop', taskKey }),
    force: (keys: number[]) => submit<void>({ kind: 'force', keys }),
    sweep: () => submit<number>({ kind: 'sweep' }),
    claim: () => submit<void>({ kind: 'claim' }),
    get pending() {
      return batcher.pending
    },
    async close() {
      await batcher.close()
      await Promise.all(idle.map((connection) => connection.end().catch(() => undefined)))
    },
  }
}

/** `mustLook`: it may be in the database already. */
type Mode = { turn: Turn; mustLook: boolean }

function countRuns(change: Change): number {
  if (change.kind === 'ends') return change.ends.length
  return change.kind === 'running' ? change.runs.length : 1
}
