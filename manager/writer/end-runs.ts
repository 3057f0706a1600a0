/**
 * Reports of workers about runs, in order of the lifecycle: running, rejected, ended. A report is accepted only under the
 * current fence (task-manager.md section 3, rule 1).
 */
import { isId } from '#core/ids.ts'
import { monotonicMs } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { RunIdentity } from '../model/run.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { noteRuns } from '../store/notes.ts'
import type { RunBatch } from './batch.ts'
import { countRun } from './counted-quota.ts'
import { requeueRuns, type Requeue } from './requeue-runs.ts'
import { publishResults } from './publish-results.ts'
import { settleTriggered } from './settle-triggered.ts'
import { MAX_CONFLICTS, STATE_CONFLICT, StateChanges, writesState } from './write-state.ts'
import { afterEnd, conflictDelayMs } from '../model/retry.ts'
import { endsWithMessages, holdsPublications } from '../model/run.ts'
import type { AssignedRun, RunEnding, RunHandle, RunSpec } from '../model/run.ts'

export type ReportedEnd = { session: WorkerSession; run: RunIdentity; ending: RunEnding }
export type EndedRow = {
  run: RunHandle
  ending: RunEnding
  workerId: string | null
  /** Time since its first instruction, if known: at least its duration. */
  beganAgoMs?: number | undefined
}

/** The run of a worker's report, or undefined if its fence is stale. */
export function findAssignedRun(session: WorkerSession, { id, fence }: RunIdentity): AssignedRun | undefined {
  const run = session.runs.get(id)
  return run?.fence === fence ? run : undefined
}

const MARK_RUNNING = `
  WITH changed AS (UPDATE runs r SET state = ${TASK_STATE.running}, running_at = coalesce(r.running_at, now())
  FROM unnest($1::bigint[], $2::bigint[]) AS c (key, fence)
  WHERE r.key = c.key AND r.fence IS NOT DISTINCT FROM c.fence AND r.state IN (${TASK_STATE.scheduled}, ${TASK_STATE.unknown})
  RETURNING r.key, r.id, r.task_key, r.state, r.worker_key, r.reason),
  noted AS (${noteRuns('changed')})
  SELECT key FROM changed`

/** Marks runs as running. The caller omits those that end in the same batch: the end writes both. */
export async function markRunning(batch: RunBatch, runs: readonly AssignedRun[]): Promise<void> {
  if (runs.length === 0) return
  const sorted = runs.toSorted((left, right) => left.key - right.key)
  const rows = await batch.rows<{ key: number }>('mark-running', MARK_RUNNING, [
    sorted.map((run) => run.key),
    sorted.map((run) => run.fence),
  ])
  // Another manager may have ended a run meanwhile, and its task with it.
  const marked = new Set(rows.map((row) => row.key))
  for (const run of sorted) {
    if (!marked.has(run.key)) continue
    if (run.drivesTask) batch.changeTask(run.taskKey, { runKey: run.key, state: TASK_STATE.running, durationMs: null })
    if (run.parentId !== null) batch.touchGroup(run.parentId)
  }
  batch.afterCommit(() => {
    for (const run of sorted) if (marked.has(run.key)) run.state = TASK_STATE.running
  })
}

/**
 * Records reported ends and returns for each whether it is recorded: now, or earlier under the same fence. A failure with
 * attempts left requeues the run.
 */
export async function recordEnds(batch: RunBatch, reported: readonly ReportedEnd[]): Promise<boolean[]> {
  const recorded = reported.map(() => false)
  const unknown: number[] = []
  const seen = new Set<string>()
  const ends: EndedRow[] = []
  const requeues: Requeue[] = []
  const held: { session: WorkerSession; run: AssignedRun; ending: RunEnding }[] = []
  for (const [index, { session, run: identity, ending }] of reported.entries()) {
    const run = findAssignedRun(session, identity)
    if (run === undefined || seen.has(run.id)) {
      unknown.push(index)
      continue
    }
    seen.add(run.id)
    recorded[index] = true
    held.push({ session, run, ending })
  }
  const writesAny = held.some(({ ending }) => writesState(ending))
  const state = writesAny ? await StateChanges.check(batch, held) : undefined
  const repeats = state === undefined ? undefined : await repeatsOf(batch, state, held)
  for (const { session, run, ending: reportedEnding } of held) {
    const repeat = repeats?.get(run.id)
    const ending = state === undefined ? reportedEnding : endingWith(state, run, reportedEnding)
    const next =
      repeat === undefined ? afterEnd(run.spec, run.attempt, ending, batch.context.random()) : { retry: true as const }
    if (repeat !== undefined) {
      requeues.push(repeat)
    } else if (next.retry && 'delayMs' in next) {
      const { reason, error } = ending
      requeues.push({ run, reason: reason ?? 'ended', error, costsAttempt: true, delayMs: next.delayMs })
    } else {
      ends.push({ run, ending, workerId: session.id, beganAgoMs: beganAgo(run, ending) })
    }
    batch.free(session, run.id)
    batch.afterCommit(() => {
      // A run that was stopped says nothing about how long others last.
      const durationMs = ending.state === TASK_STATE.stopped ? null : ending.durationMs
      // What others wrote says nothing about the worker.
      batch.context.cluster.recordEnd(run, session, durationMs, reportedEnding.state === TASK_STATE.failed)
      countRun(
        batch.context.counted,
        run.spec.domain_id,
        next.retry ? { ...ending, results: null, staged: null } : ending,
      )
    })
  }
  await writeEnds(batch, ends, state)
  await requeueRuns(batch, requeues)
  batch.afterCommit(() => {
    for (const { run, delayMs } of repeats?.values() ?? []) batch.context.delayed.add(run, delayMs)
  })
  await findEarlierRecords(batch, reported, unknown, recorded)
  return recorded
}

const COUNT_CONFLICTS = `
  SELECT r.key, count(a.run_key) AS conflicts FROM runs r
  LEFT JOIN run_attempts a ON a.run_key = r.key AND a.attempt = r.attempt AND a.reason = $2
  WHERE r.key = ANY ($1::bigint[]) GROUP BY r.key`

/** Runs that met a conflict and run again; those that met too many end with `endingWith`. */
async function repeatsOf(
  batch: RunBatch,
  state: StateChanges,
  held: readonly { run: AssignedRun; ending: RunEnding }[],
): Promise<ReadonlyMap<string, Requeue>> {
  const conflicting = held.filter(({ run }) => state.verdictOf(run.id) === 'conflict')
  if (conflicting.length === 0) return new Map()
  const rows = await batch.rows<{ key: number; conflicts: number }>('count-conflicts', COUNT_CONFLICTS, [
    conflicting.map(({ run }) => run.key),
    STATE_CONFLICT,
  ])
  const counts = new Map(rows.map((row) => [row.key, row.conflicts]))
  const nowMs = monotonicMs()
  const delayOf = ({ key, sentMs }: AssignedRun, { durationMs }: RunEnding) => {
    const attemptMs = sentMs === undefined ? (durationMs ?? 0) : nowMs - sentMs
    return conflictDelayMs(counts.get(key) ?? 0, attemptMs, batch.context.random())
  }
  return new Map(
    conflicting
      .filter(({ run }) => isRepeatable(run.spec) && (counts.get(run.key) ?? 0) < MAX_CONFLICTS)
      .map(({ run, ending }) => [
        run.id,
        { run, reason: STATE_CONFLICT, error: CONFLICT_ERROR, costsAttempt: false, delayMs: delayOf(run, ending) },
      ]),
  )
}

/** What publishes while it runs would publish again: the type of its module was not known when it was started. */
const isRepeatable = (spec: RunSpec): boolean =>
  holdsPublications(spec) || spec.grants?.some(({ kind }) => kind === 'publish') !== true

const CONFLICT_ERROR = 'another run has changed a value of the state that this one had read'

const conflictError = (spec: RunSpec) =>
  isRepeatable(spec)
    ? `${CONFLICT_ERROR}, ${MAX_CONFLICTS + 1} times`
    : `${CONFLICT_ERROR}; it was not repeated, because it publishes while it runs: upload its module, so that Skein knows that it has state`

/** The end of a run whose state cannot be written is a failure, unless it is repeated. */
function endingWith(state: StateChanges, run: Pick<RunHandle, 'id' | 'spec'>, ending: RunEnding): RunEnding {
  const verdict = state.verdictOf(run.id)
  if (verdict === undefined) return ending
  const { stateEntries: _lost, ...kept } = ending
  // What a command has written is in its results alone, and says why the run did what it did.
  const results = ending.isOutputInResult === true ? {} : { results: null, staged: null }
  const failed = { ...kept, ...results, state: TASK_STATE.failed }
  return verdict === 'conflict'
    ? { ...failed, reason: STATE_CONFLICT, error: conflictError(run.spec) }
    : { ...failed, reason: 'guest_error', error: verdict.refused }
}

/** A run began its preparation time after it was sent; only durations are sent over the network. */
export function beganAgo({ sentMs }: AssignedRun, { prepareMs }: RunEnding): number | undefined {
  // A run without a preparation never began.
  if (sentMs === undefined || prepareMs === null || prepareMs <= 0) return undefined
  return monotonicMs() - sentMs - prepareMs
}

const WRITE_ENDS = `
  WITH changed AS (UPDATE runs r SET
    state = c.state, next_check_at = NULL, queue_seq = NULL, finished_at = now(),
    running_at = CASE WHEN c.duration_ms IS NULL THEN r.running_at
      ELSE coalesce(r.running_at, now() - make_interval(secs => greatest(c.duration_ms, c.began_ago_ms) / 1000)) END,
    duration_ms = c.duration_ms, prepare_ms = c.prepare_ms, reason = c.reason, error = c.error, frames = c.frames::json, results = c.results::json,
    result_digest = c.result_digest, result_bytes = c.result_bytes, output_truncated = c.output_truncated
  FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::float8[], $5::float8[], $6::text[], $7::text[], $8::text[],
      $9::text[], $10::bigint[], $11::boolean[], $12::float8[], $13::text[])
    AS c (key, fence, state, duration_ms, prepare_ms, reason, error, results, result_digest, result_bytes, output_truncated,
      began_ago_ms, frames)
  WHERE r.key = c.key AND r.fence IS NOT DISTINCT FROM c.fence
    AND r.state IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})
  RETURNING r.key, r.id, r.task_key, r.state, r.worker_key, r.reason),
  noted AS (${noteRuns('changed')})
  SELECT key FROM changed`

/**
 * Ends runs and updates their tasks; runs with another current fence are unchanged. Waiting callers are notified after
 * the commit.
 */
export async function writeEnds(batch: RunBatch, ends: readonly EndedRow[], state?: StateChanges): Promise<void> {
  if (ends.length === 0) return
  const sorted = ends.toSorted((left, right) => left.run.key - right.run.key)
  const column = <T>(value: (end: RunEnding) => T) => sorted.map(({ ending }) => value(ending))
  const rows = await batch.rows<{ key: number }>('write-ends', WRITE_ENDS, [
    sorted.map(({ run }) => run.key),
    sorted.map(({ run }) => run.fence),
    column((end) => end.state),
    column((end) => end.durationMs),
    column((end) => end.prepareMs),
    column((end) => end.reason),
    column((end) => end.error),
    column((end) => end.results),
    column((end) => end.staged?.digest ?? null),
    column((end) => end.staged?.sizeBytes ?? null),
    column((end) => end.outputTruncated),
    sorted.map(({ beganAgoMs }) => beganAgoMs ?? null),
    column((end) => (end.frames.length === 0 ? null : JSON.stringify(end.frames))),
  ])
  const written = new Set(rows.map((row) => row.key))
  // In the order of the reports, in which they were checked.
  if (state !== undefined) await state.write(ends.filter(({ run }) => written.has(run.key)))
  const withMessages = sorted.filter(({ run }) => written.has(run.key) && endsWithMessages(run.spec))
  if (withMessages.length > 0)
    await Promise.all([publishResults(batch, withMessages), settleTriggered(batch, withMessages)])
  for (const { run, ending, workerId } of sorted) {
    if (!written.has(run.key)) continue
    if (run.drivesTask) {
      batch.changeTask(run.taskKey, { runKey: run.key, state: ending.state, durationMs: ending.durationMs })
    }
    if (run.parentId !== null) batch.touchGroup(run.parentId)
    batch.afterCommit(() => batch.context.endings.notify({ ...ending, runKey: run.key, runId: run.id, workerId }))
  }
}

const FIND_RECORDED = `
  SELECT r.id, r.fence FROM runs r
  WHERE r.id = ANY($1::uuid[]) AND r.state NOT IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})`

/** A repeated result gets the same acknowledgement as before. */
async function findEarlierRecords(
  batch: RunBatch,
  reported: readonly ReportedEnd[],
  indexes: readonly number[],
  recorded: boolean[],
): Promise<void> {
  const ids = indexes.map((index) => reported[index]?.run.id ?? '').filter((id) => isId(id))
  if (ids.length === 0) return
  const rows = await batch.rows<{ id: string; fence: number | null }>('find-recorded', FIND_RECORDED, [ids])
  const fences = new Map(rows.map((row) => [row.id, row.fence]))
  for (const index of indexes) {
    const run = reported[index]?.run
    if (run !== undefined) recorded[index] = fences.get(run.id) === run.fence
  }
}
