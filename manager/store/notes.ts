/**
 * Records state changes for `/events`: a common table expression in the statement of the change, so that a note exists
 * exactly if the change does and costs no round trip. Notes contain keys; the reader in queues/task-events.ts resolves the ids.
 */

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
