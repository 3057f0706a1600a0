/**
 * Cache of tasks that were started here, so that an invocation is one statement. Each is cached with the version of its
 * row: the statement that inserts runs omits those of a changed task, and a start that the cached task would refuse is
 * retried with the row.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { isUnderWay } from '../model/lifecycle.ts'
import { sizeOfModule } from '../store/catalogue.ts'
import type { TaskState } from '#proto/index.ts'
import type { StartFields } from '../model/task-fields.ts'
import type { ModuleFacts } from '../store/catalogue.ts'
import type { StartRequest } from '../model/start.ts'

/** The fields of a task that a start uses. */
export type StartTask = StartFields & {
  key: number
  id: string
  domain_key: number | null
  domain_id: string | null
  user_key: number | null
  state: TaskState
  module_key: number | null
  secrets: Buffer | null
  paused_at: string | null
  /** Changes with every change of the row. */
  version: string
}

export type StartTasks = {
  tasks: ReadonlyMap<string, StartTask>
  modules: ReadonlyMap<number, ModuleFacts>
  /** The tasks were read in this transaction. */
  areFresh: boolean
}

/** The keys of those tasks, both parameters in the same order, whose rows have these versions; a version that is null is any. */
export const unchangedTasks = (keys: string, versions: string) => `ARRAY(
      SELECT t.key FROM tasks t
      WHERE t.key = ANY (${keys}) AND t.xmin::text = coalesce((${versions})[array_position(${keys}, t.key)], t.xmin::text))`

/** Size of tasks with their modules as JSON. */
const MAX_CACHED_BYTES = 32 * 1024 * 1024

type KnownTask = { task: StartTask; module: ModuleFacts | undefined }

export class KnownTasks {
  readonly #known = new BoundedCache<string, KnownTask>({
    maxSize: MAX_CACHED_BYTES,
    sizeOf: ({ task, module }) => JSON.stringify(task).length + (module === undefined ? 0 : sizeOfModule(module)),
  })

  /** Undefined unless all of them are cached. */
  find(requests: readonly StartRequest[]): StartTasks | undefined {
    const tasks = new Map<string, StartTask>()
    const modules = new Map<number, ModuleFacts>()
    for (const { taskId } of requests) {
      if (tasks.has(taskId)) continue
      const known = this.#known.get(taskId)
      if (known === undefined) return undefined
      tasks.set(taskId, known.task)
      if (known.module !== undefined) modules.set(known.module.key, known.module)
    }
    return { tasks, modules, areFresh: false }
  }

  /** Caches tasks, except those that change with their run. */
  put(tasks: readonly StartTask[], modules: ReadonlyMap<number, ModuleFacts>): void {
    for (const task of tasks) {
      if (isUnderWay(task.state)) continue
      const module = task.module_key === null ? undefined : modules.get(task.module_key)
      this.#known.set(task.id, { task, module })
    }
  }

  /** The cached reference of the task, null for an upload; undefined: not cached. */
  imageUrlOf(taskId: string): string | null | undefined {
    return this.#known.get(taskId)?.task.image_url
  }

  /** Must be called after the commit of a change of a task in this process. */
  invalidate(taskId: string): void {
    this.#known.delete(taskId)
  }
}
