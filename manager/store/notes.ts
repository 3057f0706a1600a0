/**
 * How a statement that changes states notes them for `/events`: with a common table expression of its own, so that a note
 * exists exactly when the change does and costs no round trip. Notes hold keys; who reads them looks the ids up.
 */

/** What is noted: the kind, then what `read.ts` expects of it. */
export type Note =
  | ['run', runId: string, taskKey: number, state: number, workerKey: number | null, reason: string | null]
  | ['task', taskKey: number, state: number]
  | ['worker', workerKey: number, state: string]

const note = (columns: string, from: string) =>
  `INSERT INTO task_events (events) SELECT json_agg(json_build_array(${columns})) FROM ${from} HAVING count(*) > 0`

/** `from` has the columns id, task_key, state, worker_key and reason. */
export function noteRuns(from: string): string {
  return note(`'run', id, task_key, state, worker_key, reason`, from)
}

/** `from` has the columns key and state. */
export function noteTasks(from: string): string {
  return note(`'task', key, state`, from)
}

/** `from` has the columns key and state: alive, draining, dead or revoked. */
export function noteWorkers(from: string): string {
  return note(`'worker', key, state`, from)
}
