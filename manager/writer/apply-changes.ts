/** The steps of a batch, their order and their dependencies. */
import { TASK_STATE } from '#proto/index.ts'
import { hasRunQuota } from './batch.ts'
import type { RunBatch, WriterContext } from './batch.ts'
import { settleGroups } from './broadcasts.ts'
import type { Change, ChangeOf } from './changes.ts'
import { claimRuns } from './claim-runs.ts'
import { findAssignedRun, markRunning, recordEnds, type ReportedEnd } from './end-runs.ts'
import { expireWorkerLease, reconcileHellos } from './reconcile-runs.ts'
import { recordFinished } from './record-finished.ts'
import { removeWorker } from './remove-worker.ts'
import { requeueRuns } from './requeue-runs.ts'
import { endsWithMessages, isAssigned, type AssignedRun } from '../model/run.ts'
import { readTasks } from './start-tasks.ts'
import { startRuns } from './start-runs.ts'
import type { StartedRun } from '../model/start.ts'
import { writesState } from './write-state.ts'
import { forceStop, sendRequestedCancels, stopTask } from './stop-runs.ts'
import { enqueueDue, refreshQueues, sweepRuns } from './sweep-runs.ts'

type Application = {
  managerId: string
  /** The result of `isPlainBatch`. */
  isPlain: boolean
  /** Starts that are committed already, by run id. */
  started?: ReadonlyMap<string, StartedRun> | undefined
  /** The cached tasks were stale. */
  rereadsTasks?: boolean
}

/**
 * One outcome per change, in order; `STALE_TASK` for a start whose task may have changed since it was cached. The order
 * is the same in every batch: reports of workers first, because they free slots; claims last, because they fill them.
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
  const running = of('running').map(({ change }) => change)
  const finished = of('finished').map(({ change }) => change)
  const rejects = of('reject').map(({ change }) => change)
  const known = isPlain && !rereadsTasks && requests.length > 0 ? batch.context.tasks.find(requests) : undefined
  const reading = requests.length === 0 || known !== undefined ? undefined : readTasks(batch, requests)
  // Most batches have changes of one or two kinds: nothing is awaited for the others.
  const reports = [
    running.length === 0 ? undefined : applyRunning(batch, running, ends),
    ends.length === 0 ? undefined : applyEnds(batch, ends),
  ]
  // Both would check the state of tasks before either writes it.
  if (ends.some(endsWriteState) && finished.some(finishedWriteState)) await allOf(reports)
  const recording = finished.length === 0 ? undefined : recordFinished(batch, finished, started)
  const rejecting = rejects.length === 0 ? undefined : applyRejects(batch, rejects)
  const starting = known === undefined ? undefined : startRuns(batch, requests, known, true)
  if (isPlain && requests.length === 0) batch.commit()
  await allOf([reading, ...reports, recording, rejecting, starting])
  if (recording !== undefined) {
    const left = await recording
    for (const { change, index } of of('finished')) outcomes[index] = change.finished.filter((one) => left.has(one))
  }
  const hellos = of('hello')
  if (hellos.length > 0) {
    const begun = hellos.map(({ change }) => change)
    const settled = await reconcileHellos(batch, begun, managerId)
    for (const [at, { index }] of hellos.entries()) outcomes[index] = settled[at]
  }
  for (const { change, index } of of('lose'))
    outcomes[index] = await expireWorkerLease(batch, change.workerKey, change.epoch)
  for (const { change, index } of of('remove_worker')) outcomes[index] = await removeWorker(batch, change)
  for (const { change, index } of of('stop')) outcomes[index] = await stopTask(batch, change.stop)
  const forced = of('force').flatMap(({ change }) => change.keys)
  if (forced.length > 0) await forceStop(batch, forced)
  const delayed = of('due').flatMap(({ change }) => change.runs)
  if (delayed.length > 0) await enqueueDue(batch, delayed)
  const sweeps = of('sweep')
  if (sweeps.length > 0) {
    const due = await sweepRuns(batch, managerId)
    for (const { index } of sweeps) outcomes[index] = due
    await sendRequestedCancels(batch)
    await refreshQueues(batch)
  }
  const begun = reading === undefined ? starting : startRuns(batch, requests, await reading, isPlain)
  if (begun !== undefined) {
    const ofStarts = await begun
    for (const [at, { index }] of starts.entries()) outcomes[index] = ofStarts[at]
  }
  await settleGroups(batch, batch.takeGroups())
  // A plain batch leaves nothing queued except starts that found no slot.
  if (!isPlain) await claimRuns(batch)
  return outcomes
}

/**
 * True if every change is one statement, and concerns other runs than any other such batch: a run is started before its
 * worker can report it. No run is queued either, so freed slots need no claim.
 */
export function isPlainBatch({ queues, tasks, quotas }: WriterContext, changes: readonly Change[]): boolean {
  const requests = changes.flatMap((change) => (change.kind === 'start' ? [change.request] : []))
  if (queues.total > 0 || !changes.every(isPlainChange)) return false
  if (requests.length === 0) return true
  const started = tasks.find(requests)?.tasks.values().toArray()
  return started?.every((task) => !hasRunQuota(quotas, task.domain_id)) ?? false
}

/**
 * True if the change is one statement whatever that statement finds: its commit can be sent right behind it. False for a
 * change that affects a task's state, can be retried, or may have been recorded earlier.
 */
function isPlainChange(change: Change): boolean {
  switch (change.kind) {
    case 'ends':
      return change.ends.every(({ run, ending }) => {
        const held = findAssignedRun(change.session, run)
        return held !== undefined && isUnconnected(held) && ending.state !== TASK_STATE.failed && !writesState(ending)
      })
    case 'running':
      return change.runs.every((run) => {
        const held = findAssignedRun(change.session, run)
        return held === undefined || isUnconnected(held)
      })
    case 'finished':
      return !change.finished.some(({ ending }) => writesState(ending))
    case 'start':
      return !change.request.drivesTask && change.request.idempotency === undefined
    default:
      return false
  }
}

/** Its end changes no other row: no task, no broadcast, no publication. */
function isUnconnected(run: AssignedRun): boolean {
  const { spec, drivesTask, parentId } = run
  return !drivesTask && parentId === null && spec.daemon === undefined && !endsWithMessages(spec)
}

/** Waits for all, also if one fails, so that no statement of a batch is in flight during its rollback. */
async function allOf(work: readonly (Promise<unknown> | undefined)[]): Promise<void> {
  const settled = await Promise.allSettled(work.filter((one) => one !== undefined))
  const failed = settled.find((one) => one.status === 'rejected')
  if (failed !== undefined) throw failed.reason
}

/** A run that began and ended within one batch is only written by its end. */
async function applyRunning(
  batch: RunBatch,
  running: readonly ChangeOf<'running'>[],
  ends: readonly ChangeOf<'ends'>[],
): Promise<void> {
  const ending = new Set(ends.flatMap((change) => change.ends.map(({ run }) => run.id)))
  const begun = running.flatMap(({ session, runs }) =>
    runs.flatMap((identity) => {
      const run = ending.has(identity.id) ? undefined : findAssignedRun(session, identity)
      // A worker repeats a report when it cannot know whether it arrived.
      return run === undefined || run.state === TASK_STATE.running ? [] : [run]
    }),
  )
  await markRunning(batch, begun)
}

const endsWriteState = ({ ends }: ChangeOf<'ends'>) => ends.some(({ ending }) => writesState(ending))
const finishedWriteState = ({ finished }: ChangeOf<'finished'>) => finished.some(({ ending }) => writesState(ending))

async function applyEnds(batch: RunBatch, changes: readonly ChangeOf<'ends'>[]): Promise<void> {
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
  const seen = new Set<AssignedRun>()
  const rejected = changes.flatMap(({ session, run: identity, reason }) => {
    const run: AssignedRun | undefined = findAssignedRun(session, identity)
    if (run === undefined || seen.has(run) || !isAssigned(run)) return []
    seen.add(run)
    return [{ session, run, reason }]
  })
  if (rejected.length === 0) return
  await requeueRuns(
    batch,
    rejected.map(({ run, reason }) => ({ run, reason: 'rejected', error: reason, costsAttempt: false, delayMs: 0 })),
  )
  // The slots are not free for the claim of this batch: the worker would at once get the run that it has just rejected.
  batch.afterCommit(() => {
    for (const { session, run } of rejected) session.runs.delete(run.id)
  })
}
