/** Events of tasks, runs and workers: the notes of the manager in their final order, with ids instead of keys. */
import type { Queryable } from '#core/database/index.ts'
import { LOG_START, comparePositions, readSettled } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { formatTime } from '#core/time.ts'
import type { TaskErrorSource } from './task-errors.ts'

/** A note of a change of state: its kind, then the fields that `present` reads. */
export type TaskNote =
  | ['run', runId: string, taskKey: number, state: number, workerKey: number | null, reason: string | null]
  | ['task', taskKey: number, state: number]
  | ['worker', workerKey: number, state: string]
  /** The task has its key where a run has it: nodes that do not know refusals read the key there, and leave the note out. */
  | ['refusal', source: TaskErrorSource, taskKey: number, reason: string]

export type TaskEvent = {
  position: Position
  /** Number within the position. */
  index: number
  kind: TaskNote[0]
  /** Null: of the platform, or created without a principal. */
  domainKey: number | null
  data: Readonly<Record<string, unknown>>
}

const TABLE = { name: 'task_events', columns: ['events', 'occurred_at'] } as const
/** Rows per read; a row contains the changes of one statement. */
const MAX_ROWS = 200

type Read = { events: TaskEvent[]; position: Position; isAll: boolean }

/** The settled events after `after`, oldest first. `isAll`: there were no more at the time of the read. */
export async function readEvents(db: Queryable, after: Position): Promise<Read> {
  const rows = await readSettled(db, TABLE, after, MAX_ROWS)
  const notes = rows.map((row) => row['events'] as TaskNote[])
  const { tasks, workers } = await resolve(db, notes.flat())
  const events = rows.flatMap((row, at) =>
    (notes[at] ?? []).flatMap((note, index): TaskEvent[] => {
      const event = present(note, tasks, workers)
      if (event === undefined) return []
      const data = { ...event.data, occurred_at: formatTime(row['occurred_at'] as string) }
      return [{ position: row.position, index, kind: note[0], domainKey: event.domainKey, data }]
    }),
  )
  return { events, position: rows.at(-1)?.position ?? after, isAll: rows.length < MAX_ROWS }
}

/** Whether events after the position can have been removed already. */
export async function isExpired(db: Queryable, position: Position): Promise<boolean> {
  const { rows } = await sql<{ xid: string; seq: number }>`
    SELECT xid::text AS xid, seq FROM task_events ORDER BY xid, seq LIMIT 1`.execute(db)
  const [first] = rows
  const oldest = first === undefined ? LOG_START : { xid: BigInt(first.xid), seq: first.seq }
  return comparePositions(position, oldest) < 0
}

type Owner = { key: number; id: string; domain_key: number | null; domain_id: string | null; name: string }

async function resolve(db: Queryable, notes: readonly TaskNote[]) {
  const taskKeys = new Set<number>()
  const workerKeys = new Set<number>()
  for (const note of notes) {
    if (note[0] === 'worker') workerKeys.add(note[1])
    else taskKeys.add(note[0] === 'task' ? note[1] : note[2])
    if (note[0] === 'run' && note[4] !== null) workerKeys.add(note[4])
  }
  const owners = async (table: 'tasks' | 'workers', keys: ReadonlySet<number>) => {
    if (keys.size === 0) return new Map<number, Owner>()
    const { rows } = await sql<Owner>`
      SELECT key, id, domain_key, domain_id, name FROM ${sql.table(table)} WHERE key = ANY(${[...keys]}::bigint[])`.execute(
      db,
    )
    return new Map(rows.map((row) => [row.key, row]))
  }
  const [tasks, workers] = await Promise.all([owners('tasks', taskKeys), owners('workers', workerKeys)])
  return { tasks, workers }
}

/** Undefined: its entity was deleted. */
function present(
  note: TaskNote,
  tasks: ReadonlyMap<number, Owner>,
  workers: ReadonlyMap<number, Owner>,
): { domainKey: number | null; data: Record<string, unknown> } | undefined {
  const owner = note[0] === 'worker' ? workers.get(note[1]) : tasks.get(note[0] === 'task' ? note[1] : note[2])
  if (owner === undefined) return undefined
  const domain = owner.domain_id === null ? {} : { domain_id: owner.domain_id }
  const domainKey = owner.domain_key
  switch (note[0]) {
    case 'task':
      return { domainKey, data: { type: 'task', task_id: owner.id, name: owner.name, ...domain, state: note[2] } }
    case 'worker':
      return { domainKey, data: { type: 'worker', worker_id: owner.id, name: owner.name, ...domain, state: note[2] } }
    case 'refusal': {
      const [, source, , reason] = note
      return { domainKey, data: { type: 'refusal', task_id: owner.id, name: owner.name, ...domain, source, reason } }
    }
    case 'run': {
      const [, id, , state, workerKey, reason] = note
      const worker = workerKey === null ? undefined : workers.get(workerKey)
      return {
        domainKey,
        data: {
          type: 'run',
          run_id: id,
          task_id: owner.id,
          ...domain,
          state,
          worker_id: worker?.id ?? null,
          ...(reason === null ? {} : { reason }),
        },
      }
    }
  }
}
