/**
 * The one ordered writer of this manager's run states: everything that changes a run goes through one queue and is
 * written in batches, one transaction each. Acknowledgements, assignments and HTTP answers leave after the commit.
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
import { TASK_STATE } from '#proto/index.ts'
import type { RunIdentity } from '../dispatch/translate.ts'
import type { WorkerSession } from '../dispatch/worker-session.ts'
import { RunBatch, type WriterContext } from './batch.ts'
import { claimRuns } from './claim-runs.ts'
import { heldRun, markRunning, recordEnds, type ReportedEnd } from './end-runs.ts'
import { loseWorker, reconcileHello, type HelloClaims, type Reconciliation } from './reconcile-runs.ts'
import { adoptAssigned, findStarted } from './recover-runs.ts'
import { requeueRuns } from './requeue-runs.ts'
import { isAssigned, type HeldRun, type RunEnding } from './spec.ts'
import { readTasks, startRuns, type StartOutcome, type StartRequest } from './start-runs.ts'
import { forceStop, passOnStops, stopTask } from './stop-runs.ts'
import { refreshQueues, sweepRuns } from './sweep-runs.ts'

type Change =
  | { kind: 'start'; request: StartRequest }
  | { kind: 'running'; session: WorkerSession; runs: RunIdentity[] }
  | { kind: 'ends'; session: WorkerSession; ends: { run: RunIdentity; ending: RunEnding }[] }
  | { kind: 'reject'; session: WorkerSession; run: RunIdentity; reason: string }
  | { kind: 'hello'; session: WorkerSession; claims: HelloClaims; leaseMs: number }
  | { kind: 'lose'; workerKey: number; epoch: number }
  | { kind: 'stop'; taskKey: number }
  | { kind: 'force'; keys: number[] }
  | { kind: 'sweep' }
  | { kind: 'claim' }

/** Changes in one transaction; a message of a worker with many runs is one change. */
const MAX_BATCH_CHANGES = 1_000
/** Changes that wait; beyond it HTTP is answered 503 and workers send their results again. */
const MAX_QUEUED_CHANGES = 20_000
/** What workers reported is written again for as long as this when the database is away, in milliseconds. */
const DATABASE_PATIENCE_MS = 60_000
/** A start is refused with `unavailable` when the database is away for as long as this, in milliseconds. */
const START_PATIENCE_MS = 3_000
const RECONNECT_MS = 100

export type RunWriter = ReturnType<typeof createRunWriter>

export type RunWriterDeps = {
  context: WriterContext
  managerId: string
  /** A connection of the writer's own. */
  connect: () => Promise<Client>
  signal: AbortSignal
}

export function createRunWriter({ context, managerId, connect, signal }: RunWriterDeps) {
  let client: Client | undefined
  /** A commit may have happened without its answer; the next batch looks before it writes. */
  let isInDoubt = false
  const batcher = createBatcher<Change, unknown>({
    name: 'the task manager',
    maxItems: MAX_BATCH_CHANGES,
    maxQueuedItems: MAX_QUEUED_CHANGES,
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
        const written = await writeOrSplit(open)
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

  /** What PostgreSQL refuses in a batch is found by halving, so that no neighbour is lost with it. */
  async function writeOrSplit(changes: readonly Change[]): Promise<readonly unknown[]> {
    try {
      return await writeOnce(changes)
    } catch (error) {
      if (isRepeatable(error)) return writeOnce(changes)
      if (!isRefusedData(error)) throw error
      const [only, ...others] = changes
      if (only !== undefined && others.length === 0) {
        if (only.kind === 'start' && violatedConstraint(error) === 'runs_task_fkey') {
          return [new ServiceError('not_found', 'no such task')]
        }
        context.logger.error({ err: error, change: only.kind }, 'a task state was refused by the database')
        return [error]
      }
      const half = Math.ceil(changes.length / 2)
      return [...(await writeOrSplit(changes.slice(0, half))), ...(await writeOrSplit(changes.slice(half)))]
    }
  }

  async function writeOnce(changes: readonly Change[]): Promise<readonly unknown[]> {
    client ??= await open()
    const connection = client
    const batch = new RunBatch(connection, context)
    try {
      batch.begin()
      const started = isInDoubt ? await recover(batch, changes) : undefined
      const outcomes = await apply(batch, changes, managerId, started)
      await batch.writeTasks()
      batch.commit()
      await batch.settled()
      isInDoubt = false
      batch.committed()
      return outcomes
    } catch (error) {
      batch.abandoned()
      await batch.settled().catch(() => undefined)
      if (isDatabaseAway(error)) {
        isInDoubt = true
        await forget(connection)
      } else await connection.query('ROLLBACK').catch(() => undefined)
      throw error
    }
  }

  async function forget(connection: Client): Promise<void> {
    if (client === connection) client = undefined
    await connection.end().catch(() => undefined)
  }

  async function open(): Promise<Client> {
    // Statements of a batch that do not depend on each other are sent together: the batch waits for PostgreSQL three or
    // four times instead of once per statement.
    const opened = Object.assign(await connect(), { pipeline: true })
    const leave = () => {
      if (client === opened) client = undefined
    }
    opened.on('end', leave)
    opened.on('error', leave)
    return opened
  }

  const submit = <T>(change: Change) => batcher.submit(change) as Promise<T>
  return {
    start: (request: StartRequest) => submit<StartOutcome>({ kind: 'start', request }),
    running: (session: WorkerSession, runs: RunIdentity[]) => submit<void>({ kind: 'running', session, runs }),
    /** Acknowledged to the worker after the commit, in order. */
    ends: (session: WorkerSession, ends: { run: RunIdentity; ending: RunEnding }[]) =>
      submit<void>({ kind: 'ends', session, ends }),
    reject: (session: WorkerSession, run: RunIdentity, reason: string) =>
      submit<void>({ kind: 'reject', session, run, reason }),
    hello: (session: WorkerSession, claims: HelloClaims, leaseMs: number) =>
      submit<Reconciliation | undefined>({ kind: 'hello', session, claims, leaseMs }),
    lose: (workerKey: number, epoch: number) => submit<boolean>({ kind: 'lose', workerKey, epoch }),
    stop: (taskKey: number) => submit<number[]>({ kind: 'stop', taskKey }),
    force: (keys: number[]) => submit<void>({ kind: 'force', keys }),
    sweep: () => submit<number>({ kind: 'sweep' }),
    claim: () => submit<void>({ kind: 'claim' }),
    get pending() {
      return batcher.pending
    },
    async close() {
      await batcher.close()
      await client?.end().catch(() => undefined)
    },
  }
}

async function recover(batch: RunBatch, changes: readonly Change[]): Promise<Map<string, StartOutcome>> {
  await adoptAssigned(batch)
  const requests = changes.flatMap((change) => (change.kind === 'start' ? [change.request] : []))
  return await findStarted(batch, requests)
}

/** Every batch in one order: what workers report first, because it frees room; claims last, because they fill it. */
async function apply(
  batch: RunBatch,
  changes: readonly Change[],
  managerId: string,
  started: ReadonlyMap<string, StartOutcome> = new Map(),
): Promise<unknown[]> {
  const outcomes: unknown[] = changes.map(() => undefined)
  const of = <K extends Change['kind']>(kind: K) =>
    changes.flatMap((change, index) =>
      change.kind === kind ? [{ change: change as Extract<Change, { kind: K }>, index }] : [],
    )

  for (const { change, index } of of('start')) outcomes[index] = started.get(change.request.runId)
  const ends = of('ends').map(({ change }) => change)
  const starts = of('start').filter(({ change }) => !started.has(change.request.runId))
  const requests = starts.map(({ change }) => change.request)
  const isPlain = batch.context.queues.total === 0 && changes.every((change) => isPlainChange(change))
  const firstWave = [
    requests.length === 0 ? undefined : readTasks(batch, requests),
    applyRunning(
      batch,
      of('running').map(({ change }) => change),
      ends,
    ),
    applyEnds(batch, ends),
    applyRejects(
      batch,
      of('reject').map(({ change }) => change),
    ),
  ] as const
  if (isPlain && requests.length === 0) batch.commit()
  const [tasks] = await allOf(firstWave)
  for (const { change, index } of of('hello')) {
    outcomes[index] = await reconcileHello(batch, change.session, change.claims, managerId, change.leaseMs)
  }
  for (const { change, index } of of('lose')) outcomes[index] = await loseWorker(batch, change.workerKey, change.epoch)
  for (const { change, index } of of('stop')) outcomes[index] = await stopTask(batch, change.taskKey)
  const forced = of('force').flatMap(({ change }) => change.keys)
  if (forced.length > 0) await forceStop(batch, forced)
  const sweeps = of('sweep')
  if (sweeps.length > 0) {
    const due = await sweepRuns(batch, managerId)
    for (const { index } of sweeps) outcomes[index] = due
    await passOnStops(batch)
    await refreshQueues(batch)
  }
  if (tasks !== undefined) {
    const begun = await startRuns(batch, requests, tasks, isPlain)
    for (const [at, { index }] of starts.entries()) outcomes[index] = begun[at]
  }
  // In a plain batch nothing waits, but for starts that have just found no room.
  if (!isPlain) await claimRuns(batch)
  return outcomes
}

/**
 * True when the change is one statement whatever that statement finds: its commit can be sent behind it. Not so for what
 * moves a task's state, may be tried again, or was perhaps recorded earlier.
 */
function isPlainChange(change: Change): boolean {
  switch (change.kind) {
    case 'ends':
      return change.ends.every(({ run, ending }) => {
        const held = heldRun(change.session, run)
        return held !== undefined && !held.drivesTask && ending.state !== TASK_STATE.failed
      })
    case 'running':
      return change.runs.every((run) => heldRun(change.session, run)?.drivesTask !== true)
    case 'start':
      return !change.request.drivesTask && change.request.idempotency === undefined
    default:
      return false
  }
}

/** Waits for all, also when one fails, so that nothing of a batch is under way when it is rolled back. */
async function allOf<const T extends readonly unknown[]>(
  work: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const settled = await Promise.allSettled(work)
  const failed = settled.find((one) => one.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return settled.map((one) => (one as PromiseFulfilledResult<unknown>).value) as {
    -readonly [K in keyof T]: Awaited<T[K]>
  }
}

type ChangeOf<K extends Change['kind']> = Extract<Change, { kind: K }>

/** A run that began and ended within one batch is written once, by its end. */
async function applyRunning(
  batch: RunBatch,
  running: readonly ChangeOf<'running'>[],
  ends: readonly ChangeOf<'ends'>[],
): Promise<void> {
  if (running.length === 0) return
  const ending = new Set(ends.flatMap((change) => change.ends.map(({ run }) => run.id)))
  const begun = running.flatMap(({ session, runs }) =>
    runs.flatMap((identity) => {
      const run = ending.has(identity.id) ? undefined : heldRun(session, identity)
      return run === undefined ? [] : [run]
    }),
  )
  await markRunning(batch, begun)
}

async function applyEnds(batch: RunBatch, changes: readonly ChangeOf<'ends'>[]): Promise<void> {
  if (changes.length === 0) return
  const reported: ReportedEnd[] = changes.flatMap(({ session, ends }) => ends.map((end) => ({ session, ...end })))
  const recorded = await recordEnds(batch, reported)
  batch.afterCommit(() => {
    for (const [index, { session, run }] of reported.entries()) {
      session.acknowledge({ run, recorded: recorded[index] === true })
      batch.context.cluster.touch(session)
    }
  })
}

async function applyRejects(batch: RunBatch, changes: readonly ChangeOf<'reject'>[]): Promise<void> {
  const rejected = changes.flatMap(({ session, run: identity, reason }) => {
    const run: HeldRun | undefined = heldRun(session, identity)
    return run === undefined || !isAssigned(run) ? [] : [{ session, run, reason }]
  })
  if (rejected.length === 0) return
  await requeueRuns(
    batch,
    rejected.map(({ run, reason }) => ({ run, reason: 'rejected', error: reason, costsAttempt: false, delayMs: 0 })),
  )
  // Not freed for the claim of this very batch: the worker would be given at once what it has just refused.
  batch.afterCommit(() => {
    for (const { session, run } of rejected) session.runs.delete(run.id)
  })
}
