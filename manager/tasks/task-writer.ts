/**
 * Writes new tasks and their modules: what callers of a domain ask for at the same time is one statement and one commit. Each domain has
 * queues of its own, so that a domain whose rows are locked delays no other one.
 */
import { GroupCommit } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { insertTasks, newTask } from '../store/new-tasks.ts'
import type { KnownModule, NewTask, NewTaskRow } from '../store/new-tasks.ts'
import { setModules } from '../store/tasks.ts'
import type { GivenModule, ModuleOutcome, TaskRecord } from '../store/tasks.ts'

/** Tasks in one statement, and the characters of their JSON. */
const MAX_BATCH_TASKS = 200
const MAX_BATCH_CHARS = 4 * 1024 * 1024
/** What waits of one domain. */
const MAX_QUEUED_TASKS = 10_000
const MAX_QUEUED_CHARS = 64 * 1024 * 1024

type Queues = {
  created: GroupCommit<NewTask, TaskRecord | undefined>
  uploaded: GroupCommit<GivenModule, ModuleOutcome>
}

export type TaskWriterDeps = { database: Pick<Database, 'db'>; logger: Logger }

export class TaskWriter {
  readonly #deps: TaskWriterDeps
  readonly #domains = new Map<string | null, Queues>()

  constructor(deps: TaskWriterDeps) {
    this.#deps = deps
  }

  /** A task without a trigger. Undefined: its module is not stored. */
  async create(row: NewTaskRow, module: KnownModule | undefined): Promise<TaskRecord | undefined> {
    return await this.#submit(row.domain?.id ?? null, ({ created }) => created.submit(newTask(row, module)))
  }

  async setModule(domainId: string | null, given: GivenModule): Promise<ModuleOutcome> {
    return await this.#submit(domainId, ({ uploaded }) => uploaded.submit(given))
  }

  /** The queues of a domain exist while something waits in them. */
  async #submit<T>(domainId: string | null, submit: (queues: Queues) => Promise<T>): Promise<T> {
    const queues = this.#domains.get(domainId) ?? this.#createQueues()
    this.#domains.set(domainId, queues)
    try {
      return await submit(queues)
    } finally {
      if (queues.created.pending + queues.uploaded.pending === 0) this.#domains.delete(domainId)
    }
  }

  #createQueues(): Queues {
    const { database, logger } = this.#deps
    const bounds = { maxItems: MAX_BATCH_TASKS, maxQueuedItems: MAX_QUEUED_TASKS, logger }
    return {
      created: new GroupCommit<NewTask, TaskRecord | undefined>({
        ...bounds,
        name: 'the writer of tasks',
        item: 'a new task',
        maxBytes: MAX_BATCH_CHARS,
        maxQueuedBytes: MAX_QUEUED_CHARS,
        sizeOf: ({ json }) => json.length,
        commit: ({ items }) => insertTasks(database.db, items),
      }),
      uploaded: new GroupCommit<GivenModule, ModuleOutcome>({
        ...bounds,
        name: 'the writer of modules of tasks',
        item: 'the module of a task',
        commit: ({ items }) => setEach(database, items),
      }),
    }
  }
}

/** A statement changes a task once, so the second module of a task is set by a statement of its own. */
async function setEach({ db }: Pick<Database, 'db'>, items: readonly GivenModule[]): Promise<ModuleOutcome[]> {
  const outcomes: ModuleOutcome[] = []
  for (let left = [...items.keys()]; left.length > 0;) {
    const tasks = new Set<number>()
    const now = left.filter((index) => {
      const { taskKey } = items[index] as GivenModule
      return tasks.size < tasks.add(taskKey).size
    })
    const written = await setModules(
      db,
      now.map((index) => items[index] as GivenModule),
    )
    for (const [at, index] of now.entries()) outcomes[index] = written[at] as ModuleOutcome
    left = left.filter((index) => !now.includes(index))
  }
  return outcomes
}
