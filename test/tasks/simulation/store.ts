/**
 * The tables of the task manager in memory, and its statements by their names, so that the writer's own steps run over
 * them in virtual time. One transaction at a time, as the locks of PostgreSQL arrange it for rows that meet.
 */
import type { Client } from 'pg'
import { TASK_STATE, type TaskState } from '#proto/index.ts'

export type StoredRun = {
  key: number
  id: string
  task_key: number
  drives_task: boolean
  parent_id: null
  state: TaskState
  spec: Record<string, unknown>
  module_digest: string
  needs: string
  priority: number
  attempt: number
  fence: number | null
  worker_key: number | null
  queue_seq: number | null
  next_check_at: number | null
  cancel_requested_at: number | null
  created_at: number
  running_at: number | null
  is_broadcast: false
}

export type StoredTask = {
  key: number
  id: string
  state: TaskState
  run_key: number | null
  row: Record<string, unknown>
}
export type StoredWorker = {
  key: number
  id: string
  boot_id: string
  session_epoch: number
  manager_id: string | null
  lease_until: number
}

type Tables = {
  runs: Map<number, StoredRun>
  tasks: Map<number, StoredTask>
  workers: Map<number, StoredWorker>
  needs: Map<string, unknown>
}

/** What the tests ask the store about the past. */
export type Ledger = {
  /** Ends written per run id. */
  ends: Map<string, number[]>
  /** Fences in the order in which they were given. */
  fences: number[]
  /** Runs that the manager ended at their deadline. */
  timeouts: Set<string>
}

const UNDER_WAY: ReadonlySet<TaskState> = new Set([TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown])

export class DatabaseAway extends Error {
  readonly code = '08006'
}

export class Store {
  now = 0
  tables: Tables = { runs: new Map(), tasks: new Map(), workers: new Map(), needs: new Map() }
  readonly ledger: Ledger = { ends: new Map(), fences: [], timeouts: new Set() }
  /** As a sequence of PostgreSQL it does not go back with a transaction. */
  #sequence = 0
  #isOpen = false
  #before: Tables | undefined
  #endsBefore: Map<string, number[]> | undefined
  /** What happens to the transaction that is open: it is lost, or committed and its answer is lost. */
  #fate: 'lost' | 'unanswered' | undefined

  /** A connection of a manager's writer; `fateOf` is asked at each begin. */
  connect(fateOf: () => 'lost' | 'unanswered' | undefined): Client {
    const query = async (given: string | { name: string; values: unknown[] }): Promise<{ rows: unknown[] }> => {
      await Promise.resolve()
      if (typeof given !== 'string') {
        const isWhole = !this.#isOpen
        if (isWhole) this.#begin(fateOf())
        const rows = this.#run(given.name, given.values)
        if (isWhole) this.#commit()
        return { rows }
      }
      if (given === 'BEGIN') this.#begin(fateOf())
      else if (given === 'COMMIT') this.#commit()
      else this.#rollback()
      return { rows: [] }
    }
    return { query } as unknown as Client
  }

  rollback(): void {
    this.#rollback()
  }

  #begin(fate: 'lost' | 'unanswered' | undefined): void {
    this.#isOpen = true
    this.#fate = fate
    this.#before = fate === 'lost' ? structuredClone(this.tables) : undefined
    this.#endsBefore = fate === 'lost' ? structuredClone(this.ledger.ends) : undefined
  }

  #commit(): void {
    const fate = this.#fate
    this.#isOpen = false
    if (fate === 'lost') this.#rollback()
    this.#fate = undefined
    if (fate !== undefined) throw new DatabaseAway(`the commit was ${fate}`)
  }

  #rollback(): void {
    this.#isOpen = false
    if (this.#before !== undefined) this.tables = this.#before
    if (this.#endsBefore !== undefined) {
      this.ledger.ends.clear()
      for (const [id, ends] of this.#endsBefore) this.ledger.ends.set(id, ends)
    }
    this.#before = undefined
    this.#endsBefore = undefined
  }

  get runs(): StoredRun[] {
    return [...this.tables.runs.values()]
  }

  #next(): number {
    this.#sequence += 1
    return this.#sequence
  }

  #fence(): number {
    const fence = this.#next()
    this.ledger.fences.push(fence)
    return fence
  }

  #run(name: string, values: unknown[]): unknown[] {
    const statement = STATEMENTS[name]
    if (statement === undefined) throw new Error(`the simulated store knows no statement ${name}`)
    return statement(this, values, { next: () => this.#next(), fence: () => this.#fence() })
  }
}

type Numbers = { next(): number; fence(): number }
type Statement = (store: Store, values: unknown[], numbers: Numbers) => unknown[]

const list = <T>(value: unknown): T[] => value as T[]
/** The texts that `jsonArray` was given. */
const jsonList = (value: unknown): string[] => JSON.parse(`[${String(value).slice(1, -1)}]`) as string[]
const byKey = (left: { key: number }, right: { key: number }) => left.key - right.key

function open(store: Store, keys: readonly number[]): StoredRun[] {
  return keys.flatMap((key) => store.tables.runs.get(key) ?? []).filter((run) => run.next_check_at !== null)
}

function heldBy(store: Store, workers: readonly number[]): StoredRun[] {
  return store.runs.filter(
    (run) => run.worker_key !== null && workers.includes(run.worker_key) && run.next_check_at !== null,
  )
}

/** Workers whose session is the one that the manager means. */
function current(store: Store, key: number | null, epoch: number | null): StoredWorker | undefined {
  const worker = key === null ? undefined : store.tables.workers.get(key)
  return worker !== undefined && worker.session_epoch === epoch ? worker : undefined
}

/** Another one after each change. */
function versionOf(task: { state: TaskState; run_key: number | null }): string {
  return `${task.state}/${task.run_key}`
}

const STATEMENTS: Readonly<Record<string, Statement>> = {
  'lock-tasks': () => [],
  'read-tasks': (store, [ids]) =>
    [...store.tables.tasks.values()]
      .filter((task) => list<string>(ids).includes(task.id))
      .map((task) => ({ ...task.row, key: task.key, id: task.id, state: task.state, version: versionOf(task) })),
  'read-modules': () => [
    {
      key: 1,
      digest: 'sha256:0',
      size_bytes: 1,
      kind: 'core',
      runtime: 'core',
      exports: [{ name: 'add', kind: 'function', params: ['i32', 'i32'], results: ['i32'] }],
      imports: [],
    },
  ],
  'store-needs': (store, [hashes, definitions]) => {
    list<string>(hashes).forEach((hash, at) =>
      store.tables.needs.set(hash, JSON.parse(list<string>(definitions)[at] ?? 'null')),
    )
    return []
  },
  'insert-runs': (store, values, numbers) => {
    const [
      ids,
      taskKeys,
      drives,
      specs,
      digests,
      needs,
      priorities,
      workers,
      checks,
      sessions,
      epochs,
      keys,
      versions,
    ] = values
    return list<string>(ids).flatMap((id, at) => {
      const taskKey = list<number>(taskKeys)[at] ?? 0
      const task = store.tables.tasks.get(taskKey)
      const version = list<string | null>(versions)[list<number>(keys).indexOf(taskKey)]
      if (task === undefined || (version ?? versionOf(task)) !== versionOf(task)) return []
      const workerKey = list<number | null>(workers)[at] ?? null
      const epoch = list<number>(epochs)[list<number | null>(sessions).indexOf(workerKey)] ?? null
      const worker = current(store, workerKey, epoch)
      const run: StoredRun = {
        key: numbers.next(),
        id,
        task_key: taskKey,
        drives_task: list<boolean>(drives)[at] === true,
        parent_id: null,
        state: TASK_STATE.scheduled,
        spec: JSON.parse(jsonList(specs)[at] ?? '{}') as Record<string, unknown>,
        module_digest: list<string>(digests)[at] ?? '',
        needs: list<string>(needs)[at] ?? '',
        priority: list<number>(priorities)[at] ?? 0,
        attempt: 1,
        fence: worker === undefined ? null : numbers.fence(),
        worker_key: worker?.key ?? null,
        queue_seq: worker === undefined ? numbers.next() : null,
        next_check_at: store.now + (list<number>(checks)[at] ?? 0),
        cancel_requested_at: null,
        created_at: store.now,
        running_at: null,
        is_broadcast: false,
      }
      store.tables.runs.set(run.key, run)
      return [{ key: run.key, id: run.id, fence: run.fence }]
    })
  },
  'write-tasks': (store, [keys, runKeys, states]) => {
    list<number>(keys).forEach((key, at) => {
      const task = store.tables.tasks.get(key)
      if (task === undefined) return
      task.state = list<TaskState>(states)[at] ?? task.state
      task.run_key = list<number>(runKeys)[at] ?? null
    })
    return []
  },
  'mark-running': (store, [keys, fences]) => {
    return list<number>(keys).flatMap((key, at) => {
      const run = store.tables.runs.get(key)
      if (run === undefined || run.fence !== list<number>(fences)[at]) return []
      if (run.state !== TASK_STATE.scheduled && run.state !== TASK_STATE.unknown) return []
      run.state = TASK_STATE.running
      run.running_at ??= store.now
      return [{ key }]
    })
  },
  'write-ends': (store, [keys, fences, states, , , reasons]) =>
    list<number>(keys).flatMap((key, at) => {
      const run = store.tables.runs.get(key)
      if (run === undefined || run.fence !== list<number | null>(fences)[at] || !UNDER_WAY.has(run.state)) return []
      run.state = list<TaskState>(states)[at] ?? run.state
      run.next_check_at = null
      run.queue_seq = null
      if (list<string | null>(reasons)[at] === 'timeout') store.ledger.timeouts.add(run.id)
      store.ledger.ends.set(run.id, [...(store.ledger.ends.get(run.id) ?? []), run.fence ?? 0])
      return [{ key }]
    }),
  'find-recorded': (store, [ids]) =>
    store.runs.filter((run) => list<string>(ids).includes(run.id) && !UNDER_WAY.has(run.state)),
  'archive-attempts': (store, [keys, fences]) =>
    list<number>(keys).flatMap((key, at) => {
      const run = store.tables.runs.get(key)
      const isHeld = run?.fence === list<number>(fences)[at] && run?.worker_key !== null
      return run !== undefined && isHeld && UNDER_WAY.has(run.state) ? [{ run_key: key }] : []
    }),
  'requeue-runs': (store, [keys, costs, delays, check], numbers) => {
    list<number>(keys).forEach((key, at) => {
      const run = store.tables.runs.get(key)
      if (run === undefined) return
      const delayMs = list<number>(delays)[at] ?? 0
      run.state = TASK_STATE.scheduled
      run.worker_key = null
      run.fence = null
      run.running_at = null
      run.attempt += list<number>(costs)[at] ?? 0
      run.queue_seq = delayMs === 0 ? numbers.next() : null
      run.next_check_at = store.now + (delayMs === 0 ? (check as number) : delayMs)
    })
    return []
  },
  'find-waiting': (store, [needs, limit]) =>
    store.runs
      .filter((run) => run.queue_seq !== null && run.needs === needs)
      .toSorted((left, right) => right.priority - left.priority || (left.queue_seq ?? 0) - (right.queue_seq ?? 0))
      .slice(0, limit as number),
  'assign-runs': (store, [keys, workers, checks, epochs], numbers) =>
    list<number>(keys).flatMap((key, at) => {
      const run = store.tables.runs.get(key)
      const worker = current(store, list<number>(workers)[at] ?? null, list<number>(epochs)[at] ?? null)
      if (run === undefined || worker === undefined || run.state !== TASK_STATE.scheduled) return []
      run.worker_key = worker.key
      run.fence = numbers.fence()
      run.queue_seq = null
      run.next_check_at = store.now + (list<number>(checks)[at] ?? 0)
      return [{ ...run, waited_seconds: (store.now - run.created_at) / 1000 }]
    }),
  'begin-sessions': (store, [keys, epochs, boots, leases, manager]) =>
    list<number>(keys).flatMap((key, at) => {
      const worker = current(store, key, list<number>(epochs)[at] ?? null)
      if (worker === undefined) return []
      const boot = list<string>(boots)[at] ?? ''
      const isNew = worker.boot_id !== boot
      worker.boot_id = boot
      worker.manager_id = manager as string
      worker.lease_until = store.now + (list<number>(leases)[at] ?? 0)
      return [{ key, is_new_boot: isNew }]
    }),
  'count-held-runs': (store, [keys]) =>
    list<number>(keys).map((key) => ({ worker_key: key, held: heldBy(store, [key]).length })),
  'held-runs': (store, [keys]) =>
    heldBy(store, list<number>(keys))
      .toSorted(byKey)
      .map((run) => ({ ...run })),
  'resume-runs': (store, [keys, margin]) => {
    for (const run of open(store, list(keys))) {
      run.state = TASK_STATE.running
      run.running_at ??= store.now
      run.next_check_at = Math.max(run.next_check_at ?? 0, store.now + (margin as number))
    }
    return []
  },
  'declare-dead': (store, [key, epoch]) => {
    const worker = current(store, key as number, epoch as number)
    if (worker === undefined || worker.lease_until >= store.now) return []
    worker.manager_id = null
    worker.session_epoch += 1
    return [{ key }]
  },
  'mark-unknown': (store, [keys, check]) => {
    for (const run of open(store, list(keys))) {
      run.state = TASK_STATE.unknown
      run.next_check_at = store.now + (check as number)
    }
    return []
  },
  'find-stoppable': (store, [key]) =>
    store.runs
      .filter((run) => run.task_key === key && run.next_check_at !== null)
      .map((run) => ({ ...run, is_queued: run.queue_seq !== null })),
  'ask-stop': (store, [keys, deadline]) => {
    for (const run of open(store, list(keys))) {
      run.cancel_requested_at ??= store.now
      run.next_check_at = store.now + (deadline as number)
    }
    return []
  },
  'find-cancelled': (store, [keys]) =>
    store.runs.filter(
      (run) =>
        run.cancel_requested_at !== null &&
        run.next_check_at !== null &&
        list<number>(keys).includes(run.worker_key ?? 0),
    ),
  'find-forced': (store, [keys]) => open(store, list(keys)).map((run) => ({ ...run })),
  'due-runs': (store) =>
    store.runs
      .filter((run) => run.next_check_at !== null && run.next_check_at <= store.now)
      .map((run) => ({
        ...run,
        is_queued: run.queue_seq !== null,
        is_cancelled: run.cancel_requested_at !== null,
        is_orphan: false,
        checks: 0,
        waited_ms: 0,
        manager_id: store.tables.workers.get(run.worker_key ?? 0)?.manager_id ?? null,
        ran_ms: run.running_at === null ? null : store.now - run.running_at,
      })),
  'enqueue-runs': (store, [keys, check], numbers) => {
    for (const run of open(store, list(keys))) {
      if (run.queue_seq !== null || run.worker_key !== null) continue
      run.queue_seq = numbers.next()
      run.next_check_at = store.now + (check as number)
    }
    return []
  },
  'defer-checks': (store, [keys, delays]) => {
    list<number>(keys).forEach((key, at) => {
      const run = store.tables.runs.get(key)
      if (run !== undefined && run.next_check_at !== null)
        run.next_check_at = store.now + (list<number>(delays)[at] ?? 0)
    })
    return []
  },
  'shared-workers': () => [{ isShared: false }],
  'count-queues': (store) => {
    const counts = Map.groupBy(
      store.runs.filter((run) => run.queue_seq !== null),
      (run) => run.needs,
    )
    return [...counts].map(([needs, runs]) => ({ needs, runs: runs.length }))
  },
  'read-needs': (store, [hashes]) =>
    list<string>(hashes).map((hash) => ({ hash, definition: store.tables.needs.get(hash) })),
  'find-assigned': (store, [keys]) =>
    store.runs
      .filter(
        (run) =>
          list<number>(keys).includes(run.worker_key ?? 0) &&
          run.next_check_at !== null &&
          run.state === TASK_STATE.scheduled,
      )
      .map((run) => ({ ...run })),
  'find-started': (store, [ids]) =>
    store.runs
      .filter((run) => list<string>(ids).includes(run.id))
      .map((run) => ({ id: run.id, key: run.key, task_key: run.task_key })),
}
