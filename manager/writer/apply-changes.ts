/** The steps of one batch, in the order in which they are taken, and which of them wait for each other. */
import { TASK_STATE } from '#proto/index.ts'
import type { RunBatch, WriterContext } from './batch.ts'
import { settleGroups } from './broadcasts.ts'
import type { Change, ChangeOf } from './changes.ts'
import { claimRuns } from './claim-runs.ts'
import { heldRun, markRunning, recordEnds, type ReportedEnd } from './end-runs.ts'
import { loseWorker, reconcileHello } from './reconcile-runs.ts'
import { removeWorker } from './remove-worker.ts'
import { requeueRuns } from './requeue-runs.ts'
import { isAssigned, type HeldRun } from '../model/run.ts'
import { readTasks } from './start-tasks.ts'
import { startRuns } from './start-runs.ts'
import type { StartedRun } from '../model/start.ts'
import { forceStop, passOnStops, stopTask } from './stop-runs.ts'
import { refreshQueues, sweepRuns } from './sweep-runs.ts'

type Application = {
  managerId: string
  /** As `isPlainBatch` found. */
  isPlain: boolean
  /** Starts that are in the database already, by run id. */
  started?: ReadonlyMap<string, StartedRun> | undefined
  /** What was known of the tasks was old. */
  rereadsTasks?: boolean
}

/**
 * One outcome per change, in order; `STALE_TASK` for a start whose task may have changed since it was remembered. Every batch in one order: what workers report first, because it frees room; claims last, because they fill it.
 */
export async function applyChanges(
  batch: RunBatch,
  changes: readonly Change[],
  { managerId, isPlain, started = new Map(), rereadsTasks = false }: Application,
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
  const known = isPlain && !rereadsTasks && requests.length > 0 ? batch.context.tasks.find(requests) : undefined
  const firstWave = [
    requests.length === 0 || known !== undefined ? undefined : readTasks(batch, requests),
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
    known === undefined ? undefined : startRuns(batch, requests, known, true),
  ] as const
  if (isPlain && requests.length === 0) batch.commit()
  const [tasks, , , , begunAtOnce] = await allOf(firstWave)
  for (const { change, index } of of('hello')) {
    outcomes[index] = await reconcileHello(batch, change.session, change.claims, managerId, change.leaseMs)
  }
  for (const { change, index } of of('lose')) outcomes[index] = await loseWorker(batch, change.workerKey, change.epoch)
  for (const { change, index } of of('remove_worker'))
    outcomes[index] = await removeWorker(batch, change.workerKey, change.removal)
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
  const begun = tasks === undefined ? begunAtOnce : await startRuns(batch, requests, tasks, isPlain)
  if (begun !== undefined) for (const [at, { index }] of starts.entries()) outcomes[index] = begun[at]
  await settleGroups(batch, batch.takeGroups())
  // In a plain batch nothing waits, but for starts that have just found no room.
  if (!isPlain) await claimRuns(batch)
  return outcomes
}

/**
 * True when all of its changes are one statement each, and of different runs than those of any other such batch: a run is started
 * before its worker can speak of it. Nothing waits for a worker either, so that nobody has to be given what becomes free.
 */
export function isPlainBatch({ queues, tasks }: WriterContext, changes: readonly Change[]): boolean {
  const requests = changes.flatMap((change) => (change.kind === 'start' ? [change.request] : []))
  return (
    queues.total === 0 && changes.every(isPlainChange) && (requests.length === 0 || tasks.find(requests) !== undefined)
  )
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
        return held !== undefined && isUnconnected(held) && ending.state !== TASK_STATE.failed
      })
    case 'running':
      return change.runs.every((run) => {
        const held = heldRun(change.session, run)
        return held === undefined || isUnconnected(held)
      })
    case 'start':
      return !change.request.drivesTask && change.request.idempotency === undefined
    default:
      return false
  }
}

/** Nothing else is written because of it: no task, no broadcast, no publication. */
function isUnconnected(run: HeldRun): boolean {
  const { publish_result: target, daemon } = run.spec
  return !run.drivesTask && run.parentId === null && target === undefined && daemon === undefined
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
      // A worker says it again when it cannot know that it was heard.
      return run === undefined || run.state === TASK_STATE.running ? [] : [run]
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
  const seen = new Set<HeldRun>()
  const rejected = changes.flatMap(({ session, run: identity, reason }) => {
    const run: HeldRun | undefined = heldRun(session, identity)
    if (run === undefined || seen.has(run) || !isAssigned(run)) return []
    seen.add(run)
    return [{ session, run, reason }]
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
