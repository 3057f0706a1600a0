/**
 * Workflows: created with their tasks, started and stopped as a whole. Permissions are those on tasks of their domain.
 */
import { endTrial, isTrial } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, kindOf, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { PageRange } from '#core/page.ts'
import { visibleIn, type TaskAccess, type TaskAction, type TaskCaller } from '../access/access.ts'
import type { RunsService } from '../runs/service.ts'
import { amountsOf, sumOfAmounts, type AmountQuotas } from '../store/amount-quotas.ts'
import type { NewModule } from '../store/modules.ts'
import { listTasksOf } from '../store/tasks.ts'
import type { TasksService } from '../tasks/service.ts'
import type { WorkflowEngine } from './engine.ts'
import { requireValidDependencies } from './plan.ts'
import { parseResultReference } from '../model/result-references.ts'
import { readFields } from '../model/task-fields.ts'
import {
  beginRun,
  countWithWorkflow,
  deleteWorkflow,
  findNewestRun,
  findWorkflow,
  insertWorkflow,
  listWorkflows,
  stopRun,
  type WorkflowRecord,
} from '../store/workflows.ts'
import {
  presentSummary,
  presentWorkflow,
  type NewWorkflow,
  type Workflow,
  type WorkflowQuery,
  type WorkflowTask,
} from './schema.ts'
import { errorOfTask } from './task-errors.ts'

export type WorkflowsDeps = {
  database: Database
  access: TaskAccess
  tasks: TasksService
  runs: RunsService
  engine: WorkflowEngine
  amounts: AmountQuotas
  newId: () => string
}

/** Adds the index of the task to an error of a field. */
async function ofTask<T>(index: number, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw errorOfTask(index, error)
  }
}

export class WorkflowsService {
  readonly #deps: WorkflowsDeps

  constructor(deps: WorkflowsDeps) {
    this.#deps = deps
  }

  /**
   * `files` has the module of each task, if it has one. Throws `malformed` with a cycle, an unknown parent, or a result of a task that is
   * not a dependency.
   */
  async create(
    caller: TaskCaller,
    { tasks: given, ...body }: NewWorkflow,
    files: readonly (Uint8Array<ArrayBuffer> | undefined)[],
  ): Promise<Workflow> {
    const tasks = byName(given)
    requireValidDependencies(tasks.map((task) => ({ name: task.name, dependsOn: task.depends_on ?? [] })))
    for (const [index, task] of tasks.entries()) requireReferences(task, index)
    const domain = await this.#deps.tasks.domainOf(caller, body.domain_id)
    const id = this.#deps.newId()
    // This comes before the transaction, because reading a module takes a while.
    const modules: (NewModule | undefined)[] = []
    for (const [index, task] of tasks.entries()) {
      const module = async () => {
        const { memory_limit_bytes: memoryLimitBytes } = readFields(task)
        return await this.#deps.tasks.moduleOf(files[index], domain?.id ?? null, memoryLimitBytes)
      }
      modules.push(await ofTask(index, module))
    }
    const name = body.name === undefined || body.name === '' ? `workflow-${id.slice(0, 8)}` : body.name
    const added = sumOfAmounts([{ workflows: 1 }, ...tasks.map((task) => amountsOf(readFields(task)))])
    const insert = async (tx: Transaction) => {
      const metadata = body.metadata ?? {}
      const key = await insertWorkflow(tx, { id, domain, name, metadata, caller })
      for (const [index, task] of tasks.entries()) {
        const { id: _id, depends_on: dependsOn, run_if: runIf, ...fields } = task
        const place = { key, id, dependsOn: dependsOn ?? [], runIf: runIf ?? ('success' as const) }
        const row = await ofTask(index, () => this.#deps.tasks.newRow(caller, domain, fields, place))
        await this.#deps.tasks.insert(tx, row, modules[index])
      }
    }
    await this.#deps.amounts.within(domain?.id ?? null, added, () => this.#deps.database.transaction(insert))
    return await this.#present(await this.#require(caller, id, 'task_read'))
  }

  /** `states` are those of the newest run. */
  async list(
    caller: TaskCaller,
    query: Omit<WorkflowQuery, keyof PageRange> & PageRange & { states?: readonly number[] | undefined },
  ) {
    if (query.channel_id !== undefined && !isId(query.channel_id)) throw refusedField('channel_id', 'must be a UUID')
    const domains = await visibleIn(this.#deps.access, caller, query.domain_id)
    const { total, workflows, next } = await listWorkflows(this.#deps.database.db, {
      domains,
      name: query.name,
      states: query.states,
      channelId: query.channel_id,
      hasTrigger: query.trigger,
      offset: query.offset,
      limit: query.limit,
      cursor: query.cursor,
    })
    return { total, workflows: workflows.map(presentSummary), next }
  }

  /** Undefined for a workflow that does not exist, or that the caller cannot read. */
  async find(caller: TaskCaller, id: string): Promise<Workflow | undefined> {
    try {
      return await this.get(caller, id)
    } catch (error) {
      if (kindOf(error) === 'not_found') return undefined
      throw error
    }
  }

  async get(caller: TaskCaller, id: string): Promise<Workflow> {
    return await this.#present(await this.#require(caller, id, 'task_read'))
  }

  /** Throws `invalid_state` while it runs. */
  async start(caller: TaskCaller, id: string): Promise<{ runId: string }> {
    const workflow = await this.#require(caller, id, 'task_start')
    const runId = this.#deps.newId()
    await this.#deps.database.transaction(async (tx) => await beginRun(tx, workflow.key, { id: runId, caller }))
    this.#deps.engine.wake()
    return { runId }
  }

  /** Pending tasks are not started, running ones are stopped. Without either there is no change. */
  async stop(caller: TaskCaller, id: string): Promise<void> {
    const workflow = await this.#require(caller, id, 'task_start')
    const run = await findNewestRun(this.#deps.database.db, workflow.key)
    if (run === undefined || !run.isOpen) return
    await this.#deps.database.transaction(async (tx) => await stopRun(tx, run.key, caller))
    await Promise.all(run.steps.map(async (step) => await this.#deps.runs.stopFor(step.taskKey)))
  }

  /** Removes the workflow with its tasks and their runs. Throws `invalid_state` while it runs. */
  async remove(caller: TaskCaller, id: string): Promise<void> {
    const workflow = await this.#require(caller, id, 'task_delete')
    if (isTrial()) await this.#tryRemoval(workflow)
    else if (await this.#deps.database.transaction((tx) => deleteWorkflow(tx, workflow.key, caller)))
      return this.#deps.amounts.removed(workflow.domainId)
    await this.#require(caller, id, 'task_delete')
    throw new ServiceError('invalid_state', 'the workflow or one of its tasks is running: stop it before you delete it')
  }

  /** Deleting runs and rolling that back would take too long: they are counted. Resolves where the workflow is active. */
  async #tryRemoval({ key, id, name }: WorkflowRecord): Promise<void> {
    const { db } = this.#deps.database
    const rows = await countWithWorkflow(db, key)
    if (rows === undefined) return
    const { tasks } = await listTasksOf(db, key)
    endTrial(
      [
        { operation: 'workflow.remove', id, name, attributes: {} },
        ...tasks.map((task) => ({ operation: 'task.remove', id: task.id, name: task.name, attributes: {} })),
      ],
      rows,
    )
  }

  async #require(caller: TaskCaller, id: string, action: TaskAction): Promise<WorkflowRecord> {
    const workflow = isId(id) ? await findWorkflow(this.#deps.database.db, id) : undefined
    if (workflow === undefined || !(await this.#deps.access.can(caller, 'task_read', workflow.domainId))) {
      throw new ServiceError('not_found', 'no such workflow')
    }
    if (action !== 'task_read' && !(await this.#deps.access.can(caller, action, workflow.domainId))) {
      throw new ServiceError(
        'forbidden',
        `failed to perform authorization: needs ${action} in the domain of the workflow`,
      )
    }
    return workflow
  }

  async #present(workflow: WorkflowRecord): Promise<Workflow> {
    const members = await listTasksOf(this.#deps.database.db, workflow.key)
    return presentWorkflow(workflow, members, await findNewestRun(this.#deps.database.db, workflow.key))
  }
}

/** The tasks with the names of their dependencies in the place of the ids that the caller gave. */
function byName(tasks: readonly WorkflowTask[]): WorkflowTask[] {
  const names = new Map(tasks.flatMap(({ id, name }) => (id === undefined || id === '' ? [] : [[id, name] as const])))
  return tasks.map((task) => {
    const { depends_on: dependsOn } = task
    return dependsOn === undefined || dependsOn === null
      ? task
      : { ...task, depends_on: dependsOn.map((one) => names.get(one) ?? one) }
  })
}

function requireReferences(task: WorkflowTask, index: number): void {
  for (const [at, input] of (task.inputs ?? []).entries()) {
    const reference = parseResultReference(input as never)
    if (reference === undefined || (task.depends_on ?? []).includes(reference.from)) continue
    const path = `/tasks/${index}/inputs/${at}`
    throw new ServiceError('malformed', `${path} refers to task ${reference.from}, which is not in depends_on`, {
      details: [{ path, message: 'must refer to a task in depends_on' }],
    })
  }
}
