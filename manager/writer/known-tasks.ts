/**
 * Tasks that were started here before, so that an invocation is one statement. Each is remembered with the version of its
 * row: the statement that inserts runs leaves out those of a task that has changed since, and a start that the remembered
 * task would refuse is tried again with the row.
 */
import { LRUCache } from 'lru-cache'
import { isUnderWay } from '../model/lifecycle.ts'
import { sizeOfModule } from '../store/catalogue.ts'
import type { TaskState } from '#proto/index.ts'
import type { StartFields } from '../model/task-fields.ts'
import type { ModuleFacts } from '../store/catalogue.ts'
import type { StartRequest } from '../model/start.ts'

/** A task as a start needs it. */
export type StartTask = StartFields & {
  key: number
  id: string
  domain_key: number | null
  domain_id: string | null
  user_key: number | null
  state: TaskState
  module_key: number | null
  secrets: Buffer | null
  /** Another one after every change of the row. */
  version: string
}

export type StartTasks = {
  tasks: ReadonlyMap<string, StartTask>
  modules: ReadonlyMap<number, ModuleFacts>
  /** Read in this very transaction. */
  areFresh: boolean
}

/** Tasks with their modules as JSON. */
const REMEMBERED_BYTES = 32 * 1024 * 1024

type KnownTask = { task: StartTask; module: ModuleFacts | undefined }

export class KnownTasks {
  readonly #known = new LRUCache<string, KnownTask>({
    maxSize: REMEMBERED_BYTES,
    sizeCalculation: ({ task, module }) =>
      JSON.stringify(task).length + (module === undefined ? 0 : sizeOfModule(module)),
  })

  /** Undefined unless all of them are known. */
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

  /** But for those that are about to change with their run. */
  remember(tasks: readonly StartTask[], modules: ReadonlyMap<number, ModuleFacts>): void {
    for (const task of tasks) {
      if (isUnderWay(task.state)) continue
      const module = task.module_key === null ? undefined : modules.get(task.module_key)
      this.#known.set(task.id, { task, module })
    }
  }

  /** The reference of the task as it was remembered, null for an upload; undefined: it is not remembered. */
  imageUrlOf(taskId: string): string | null | undefined {
    return this.#known.get(taskId)?.task.image_url
  }

  /** Whoever changes a task here calls this after the commit. */
  forget(taskId: string): void {
    this.#known.delete(taskId)
  }
}
