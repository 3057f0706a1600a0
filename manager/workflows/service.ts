/** Workflows: made with their tasks, started and stopped as a whole. Rights are those on the tasks of their domain. */
import type { Database } from '#core/database/index.ts'
import { ServiceError, fieldName } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { visibleDomains, type TaskAccess, type TaskAction, type TaskCaller } from '../access/access.ts'
import type { RunsService } from '../runs/service.ts'
import { insertTask, listTasksOf } from '../store/tasks.ts'
import type { TasksService } from '../tasks/service.ts'
import type { WorkflowEngine } from './engine.ts'
import { requireAcyclic } from './plan.ts'
import { referenceOf } from '../model/references.ts'
import {
  beginRun,
  deleteWorkflow,
  findNewestRun,
  findWorkflow,
  insertWorkflow,
  listWorkflows,
  stopRun,
  type WorkflowRecord,
} from '../store/workflows.ts'
import { presentSummary, presentWorkflow, type NewWorkflow, type Workflow, type WorkflowTask } from './schema.ts'

export type WorkflowsDeps = {
  database: Database
  access: TaskAccess
  tasks: TasksService
  runs: RunsService
  engine: WorkflowEngine
  newId: () => string
}

/** A refusal of a field says of which task it is. */
async function ofTask<T>(index: number, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ServiceError) || error.details === undefined) throw error
    const [first, ...others] = error.details.map(({ path, message }) => ({ path: `/tasks/${index}${path}`, message }))
    if (first === undefined) throw error
    const message = `${fieldName(first.path)} ${first.message}`
    throw new ServiceError(error.kind, message, { cause: error, details: [first, ...others] })
  }
}

export class WorkflowsService {
  readonly #deps: WorkflowsDeps

  constructor(deps: WorkflowsDeps) {
    this.#deps = deps
  }

  /** Throws `malformed` naming a cycle, a parent that is none, or a result of a task that it does not depend on. */
  async create(caller: TaskCaller, body: NewWorkflow): Promise<Workflow> {
    requireAcyclic(body.tasks.map((task) => ({ name: task.name, dependsOn: task.depends_on ?? [] })))
    for (const [index, task] of body.tasks.entries()) requireReferences(task, index)
    const domain = await this.#deps.tasks.domainOf(caller, body.domain_id)
    const id = this.#deps.newId()
    await this.#deps.database.transaction(async (tx) => {
      const metadata = body.metadata ?? {}
      const key = await insertWorkflow(tx, { id, domain, name: body.name, metadata })
      for (const [index, task] of body.tasks.entries()) {
        const { depends_on: dependsOn, run_if: runIf, ...fields } = task
        const place = { key, dependsOn: dependsOn ?? [], runIf: runIf ?? ('success' as const) }
        const row = await ofTask(index, () => this.#deps.tasks.newRow(caller, domain, fields, place))
        await insertTask(tx, row)
      }
    })
    return await this.#present(await this.#require(caller, id, 'task_read'))
  }

  async list(caller: TaskCaller, query: { name?: string | undefined; offset: number; limit: number }) {
    const domains = visibleDomains(await this.#deps.access.domains(caller, 'task_read'))
    const { total, workflows } = await listWorkflows(this.#deps.database.db, {
      domains,
      name: query.name,
      offset: query.offset,
      limit: query.limit,
    })
    return { total, workflows: workflows.map(presentSummary) }
  }

  async get(caller: TaskCaller, id: string): Promise<Workflow> {
    return await this.#present(await this.#require(caller, id, 'task_read'))
  }

  /** Throws `invalid_state` while it runs. */
  async start(caller: TaskCaller, id: string): Promise<{ runId: string }> {
    const workflow = await this.#require(caller, id, 'task_start')
    const runId = this.#deps.newId()
    await this.#deps.database.transaction(async (tx) => await beginRun(tx, workflow.key, runId))
    this.#deps.engine.wake()
    return { runId }
  }

  /** What waits is not started any more; what runs is stopped. Nothing to stop: no change. */
  async stop(caller: TaskCaller, id: string): Promise<void> {
    const workflow = await this.#require(caller, id, 'task_start')
    const run = await findNewestRun(this.#deps.database.db, workflow.key)
    if (run === undefined || !run.isOpen) return
    await this.#deps.database.transaction(async (tx) => await stopRun(tx, run.key))
    await Promise.all(run.steps.map(async (step) => await this.#deps.runs.stopFor(step.taskKey)))
  }

  /** With its tasks and their runs. Throws `invalid_state` while it runs. */
  async remove(caller: TaskCaller, id: string): Promise<void> {
    const workflow = await this.#require(caller, id, 'task_delete')
    const isGone = await this.#deps.database.transaction(async (tx) => await deleteWorkflow(tx, workflow.key))
    if (isGone) return
    await this.#require(caller, id, 'task_delete')
    throw new ServiceError('invalid_state', 'the workflow or one of its tasks is running: stop it before it is deleted')
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

function requireReferences(task: WorkflowTask, index: number): void {
  for (const [at, input] of (task.inputs ?? []).entries()) {
    const reference = referenceOf(input as never)
    if (reference === undefined || (task.depends_on ?? []).includes(reference.from)) continue
    const path = `/tasks/${index}/inputs/${at}`
    throw new ServiceError('malformed', `${path} names task ${reference.from}, which is not in depends_on`, {
      details: [{ path, message: 'must name a task of depends_on' }],
    })
  }
}
