/**
 * Tasks that were started here before, so that an invocation is one statement. Each is remembered with the version of its
 * row, and the statement that inserts runs leaves out those of a task that has changed since.
 */
import { createLruOfBytes } from '#core/lru.ts'
import { isUnderWay } from '../lifecycle.ts'
import { sizeOfModule } from '../modules/catalogue.ts'
import type { ModuleFacts } from '../modules/catalogue.ts'
import type { StartRequest } from './start-runs.ts'
import type { StartTask, StartTasks } from './start-tasks.ts'

/** Tasks with their modules as JSON. */
const REMEMBERED_BYTES = 32 * 1024 * 1024

type KnownTask = { task: StartTask; module: ModuleFacts | undefined }

export class KnownTasks {
  readonly #known = createLruOfBytes<string, KnownTask>(
    REMEMBERED_BYTES,
    ({ task, module }) => JSON.stringify(task).length + (module === undefined ? 0 : sizeOfModule(module)),
  )

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

  forget(taskId: string): void {
    this.#known.delete(taskId)
  }
}
