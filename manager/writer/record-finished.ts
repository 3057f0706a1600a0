/** Records runs with their ends: one statement for runs that were sent to their worker before they were in the database. */
import { jsonArray } from '#core/database/index.ts'
import { monotonicMs } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { RunEnding } from '../model/run.ts'
import type { StartedRun } from '../model/start.ts'
import { noteRuns } from '../store/notes.ts'
import type { RunBatch } from './batch.ts'
import { countRun } from './counted-quota.ts'
import type { ChangeOf } from './changes.ts'
import { beganAgo } from './end-runs.ts'
import { unchangedTasks } from './known-tasks.ts'
import type { FinishedRun } from './unrecorded-runs.ts'
import { StateChanges, writesState } from './write-state.ts'

// A task that has changed since it was cached has no such run, as for a start. No worker is compared: nobody else can have the run.
const INSERT_FINISHED = `
  WITH changed AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, worker_key, fence,
    created_at, assigned_at, running_at, finished_at, duration_ms, prepare_ms, results, output_truncated,
    reason, error, frames, result_digest, result_bytes, domain_key, cause)
  SELECT m.id, m.task_key, false, m.state, m.spec, m.module_digest, m.needs, m.priority, m.worker_key, m.fence,
    now() - make_interval(secs => m.age_ms / 1000), now() - make_interval(secs => m.age_ms / 1000),
    now() - make_interval(secs => greatest(m.duration_ms, m.began_ago_ms) / 1000), now(),
    m.duration_ms, m.prepare_ms, m.results::json, m.output_truncated,
    m.rest->>'reason', m.rest->>'error', m.rest->'frames', m.rest->>'digest', (m.rest->>'bytes')::bigint, m.domain_key, m.cause
  FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::json[], $5::text[], $6::text[], $7::smallint[], $8::bigint[], $9::bigint[],
      $10::float8[], $11::float8[], $12::float8[], $13::float8[], $14::text[], $15::boolean[], $16::json[], $17::bigint[], $18::json[])
    AS m (id, task_key, state, spec, module_digest, needs, priority, worker_key, fence,
      age_ms, began_ago_ms, duration_ms, prepare_ms, results, output_truncated, rest, domain_key, cause)
  WHERE m.task_key = ANY (${unchangedTasks('$19::bigint[]', '$20::text[]')})
  RETURNING key, id, task_key, state, worker_key, reason),
  noted AS (${noteRuns('changed')})
  SELECT key, id FROM changed`

/**
 * `started`: runs that an earlier attempt has inserted. Returns those that are not recorded, because their state cannot be written as it is:
 * they are recorded as started, and then with their end.
 */
export async function recordFinished(
  batch: RunBatch,
  changes: readonly ChangeOf<'finished'>[],
  started: ReadonlyMap<string, StartedRun>,
): Promise<ReadonlySet<FinishedRun>> {
  const finished = changes.flatMap(({ finished: each }) => each)
  const keys = new Map(started.values().map(({ runId, runKey }) => [runId, runKey]))
  const fresh = finished.filter(({ run }) => !started.has(run.id))
  const writing = fresh.filter(({ ending }) => writesState(ending))
  const state = writing.length === 0 ? undefined : await StateChanges.check(batch, writing.map(endOf))
  const left = new Set(writing.filter(({ run }) => state?.verdictOf(run.id) !== undefined))
  const rows = await insert(
    batch,
    fresh.filter((one) => !left.has(one)),
  )
  for (const { id, key } of rows) keys.set(id, key)
  if (state !== undefined) await state.write(writing.filter(({ run }) => keys.has(run.id)).map(endOf))
  for (const one of finished) {
    if (left.has(one)) continue
    const { run, ending } = one
    const { session, assigned } = run
    if (session.runs.get(run.id) === assigned) batch.free(session, run.id)
    batch.afterCommit(() => settle(batch, { run, ending }, keys.get(run.id)))
  }
  return left
}

const endOf = ({ run, ending }: FinishedRun) => ({ run: run.assigned, ending })

async function insert(batch: RunBatch, finished: readonly FinishedRun[]): Promise<{ key: number; id: string }[]> {
  if (finished.length === 0) return []
  const nowMs = monotonicMs()
  const tasks = [...new Set(finished.map(({ run }) => run.task))]
  const of = <T>(value: (one: FinishedRun) => T) => finished.map(value)
  return await batch.rows('insert-finished', INSERT_FINISHED, [
    of(({ run }) => run.id),
    of(({ run }) => run.task.key),
    of(({ ending }) => ending.state),
    jsonArray(of(({ run }) => run.prepared.specJson)),
    of(({ run }) => run.prepared.digest),
    of(({ run }) => run.prepared.needsHash),
    of(({ run }) => run.task.priority),
    of(({ run }) => run.session.key),
    of(({ run }) => run.assigned.fence),
    of(({ run }) => nowMs - run.sinceMs),
    of(({ run, ending }) => beganAgo(run.assigned, ending) ?? null),
    of(({ ending }) => ending.durationMs),
    of(({ ending }) => ending.prepareMs),
    of(({ ending }) => ending.results),
    of(({ ending }) => ending.outputTruncated),
    of(({ ending }) => restOf(ending)),
    of(({ run }) => run.task.domain_key),
    jsonArray(of(({ run }) => JSON.stringify(run.request.cause))),
    tasks.map(({ key }) => key),
    tasks.map(({ version }) => version),
  ])
}

/** What few ends have. */
function restOf({ reason, error, frames, staged }: RunEnding): string | null {
  if (reason === null && error === null && staged === null) return null
  const stack = frames.length === 0 ? {} : { frames }
  const result = staged === null ? {} : { digest: staged.digest, bytes: staged.sizeBytes }
  // A shortened text can end with half of a pair, which JSON would keep and PostgreSQL refuse.
  return JSON.stringify({ reason, error: error?.toWellFormed() ?? null, ...stack, ...result })
}

function settle(batch: RunBatch, { run, ending }: FinishedRun, runKey: number | undefined): void {
  const { cluster, counted, endings, tasks, unrecorded } = batch.context
  const { session, assigned } = run
  const isRecorded = runKey !== undefined
  session.acknowledge({ run: assigned, recorded: isRecorded })
  cluster.touch(session)
  if (!isRecorded) {
    tasks.invalidate(run.task.id)
    unrecorded.startOver(run)
    return
  }
  cluster.recordEnd(assigned, session, ending.durationMs, ending.state === TASK_STATE.failed)
  countRun(counted, assigned.spec.domain_id, ending)
  const ended = { ...ending, runKey, runId: run.id, workerId: session.id }
  unrecorded.finish(run, { runId: run.id, runKey, taskKey: run.task.key, ended })
  endings.notify(ended)
}
