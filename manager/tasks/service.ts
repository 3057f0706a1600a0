/** The rules of tasks as records: who sees them, what may be written and when. Runs are the business of `runs/`. */
import { LRUCache } from 'lru-cache'
import { isId } from '#core/ids.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { judgeModule } from '#core/module-reading/index.ts'
import { isUnderWay } from '../model/lifecycle.ts'
import { domainOf } from '../access/domain-of.ts'
import { visibleDomains, type TaskAccess, type TaskAction, type TaskCaller, type TaskDomain } from '../access/access.ts'
import { refuseReferences } from '../model/references.ts'
import { storeModule } from '../store/modules.ts'
import { extrasOf } from './extras.ts'
import {
  deleteTask,
  findIdentity,
  findSecrets,
  findTask,
  insertTask,
  listTasks,
  setModule,
  taskUnderWay,
  updateTask,
  type NewTaskRow,
  type TaskFilter,
  type TaskIdentity,
  type TaskRecord,
} from '../store/tasks.ts'
import { NEW_TASK, readFields } from '../model/task-fields.ts'
import { refuseWorkflowFields, type NewTask, type TaskUpdate } from './schema.ts'

export type TasksDeps = {
  database: Database
  access: TaskAccess
  keyring: Keyring
  /** Resolves when every run of the task has ended. */
  stopRuns: (taskKey: number) => Promise<void>
  /** Told of a task whose row was changed or removed, after the commit. */
  onChanged: (taskId: string) => void
  newId: () => string
  now: () => Date
}

/** Tasks whose id, key and domain are remembered; none of the three ever changes. */
const REMEMBERED_TASKS = 50_000

export class TasksService {
  readonly #deps: TasksDeps
  readonly #identities = new LRUCache<string, TaskIdentity>({ max: REMEMBERED_TASKS })

  constructor(deps: TasksDeps) {
    this.#deps = deps
  }

  /** Throws `not_found` for what the caller may not read, `forbidden` for what he may read but not do. */
  async require(caller: TaskCaller, id: string, action: TaskAction): Promise<TaskIdentity> {
    const task = await this.#identify(id)
    if (task === undefined || !(await this.#deps.access.can(caller, 'task_read', task.domainId))) {
      throw new ServiceError('not_found', 'no such task')
    }
    if (action !== 'task_read' && !(await this.#deps.access.can(caller, action, task.domainId))) {
      throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in the domain of the task`)
    }
    return task
  }

  async get(caller: TaskCaller, id: string): Promise<TaskRecord> {
    return await this.#read(await this.require(caller, id, 'task_read'))
  }

  async create(caller: TaskCaller, body: NewTask): Promise<TaskRecord> {
    refuseWorkflowFields(body)
    refuseReferences(body.inputs ?? [])
    const row = await this.newRow(caller, await this.domainOf(caller, body.domain_id), body, null)
    const key = await this.#deps.database.transaction(async (tx) => await insertTask(tx, row))
    return await this.#read({ key, id: row.id, domainId: row.domain?.id ?? null })
  }

  async update(caller: TaskCaller, id: string, body: TaskUpdate): Promise<TaskRecord> {
    const task = await this.require(caller, id, 'task_update')
    refuseWorkflowFields(body)
    const before = await this.#read(task)
    if (before.workflow_id === null) refuseReferences(body.inputs ?? [])
    else if (body.name !== undefined && body.name !== before.name)
      throw new ServiceError('invalid_state', 'other tasks of the workflow know this one by its name')
    const fields = readFields(body)
    const sealed = body.secrets === undefined ? null : await findSecrets(this.#deps.database.db, task.key)
    const extras = await extrasOf(this.#deps, { caller, task, fields, secrets: body.secrets, before, sealed })
    const isChanged = await this.#deps.database.transaction(
      async (tx) => await updateTask(tx, task.key, fields, extras, caller?.key ?? null),
    )
    if (!isChanged) {
      await this.#read(task)
      throw taskUnderWay()
    }
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  /** Refuses an upload before its bytes are read. */
  async requireUploadable(caller: TaskCaller, id: string): Promise<TaskIdentity> {
    const task = await this.require(caller, id, 'task_update')
    if (isUnderWay((await this.#read(task)).state)) throw taskUnderWay()
    return task
  }

  /**
   * Stores the module and gives it to the task; the bytes cannot be used afterwards. Throws `malformed` for what is no module, or none that
   * runs here, and what `judgeModule` throws.
   */
  async upload(caller: TaskCaller, task: TaskIdentity, bytes: Uint8Array<ArrayBuffer>): Promise<TaskRecord> {
    const judged = await judgeModule(bytes, task.domainId ?? '')
    const module = { ...judged, sizeBytes: judged.bytes.byteLength }
    const isSet = await this.#deps.database.transaction(async (tx) => {
      const stored = await storeModule(tx, module)
      return await setModule(tx, task.key, stored.key, caller?.key ?? null)
    })
    if (!isSet) {
      await this.#read(task)
      throw taskUnderWay()
    }
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  async list(caller: TaskCaller, filter: Omit<TaskFilter, 'domains'>) {
    const domains = visibleDomains(await this.#deps.access.domains(caller, 'task_read'))
    return await listTasks(this.#deps.database.db, { ...filter, domains })
  }

  /** Throws `invalid_state` while a run of it is under way, unless it is to be stopped first. */
  async remove(caller: TaskCaller, id: string, isForced: boolean): Promise<void> {
    const task = await this.require(caller, id, 'task_delete')
    if (isForced) await this.#deps.stopRuns(task.key)
    const isGone = await deleteTask(this.#deps.database, task.key)
    if (!isGone) {
      const { workflow_id: workflowId } = await this.#read(task)
      if (workflowId !== null)
        throw new ServiceError('invalid_state', 'the task belongs to a workflow: delete the workflow')
      throw taskUnderWay()
    }
    this.#identities.delete(task.id)
    this.#deps.onChanged(task.id)
  }

  /** Where a new task belongs: the domain named, else the token's, else the caller's only one. */
  async domainOf(caller: TaskCaller, domainId: string | null | undefined): Promise<TaskDomain | null> {
    if (caller !== undefined) {
      const several = 'you may create tasks in several domains'
      return await domainOf(this.#deps.access, caller, 'task_create', { domainId, several })
    }
    if (typeof domainId === 'string' && domainId !== '')
      throw new ServiceError('unauthenticated', 'a task of a domain needs a token')
    return null
  }

  /** A task ready to be inserted; `workflow` is that of which it is a part. */
  async newRow(
    caller: TaskCaller,
    domain: TaskDomain | null,
    body: NewTask,
    workflow: NewTaskRow['workflow'],
  ): Promise<NewTaskRow> {
    const fields = readFields(body)
    const id = this.#deps.newId()
    const task = { id, domainId: domain?.id ?? null }
    const asked = { caller, task, fields, secrets: body.secrets, before: undefined, sealed: null }
    return {
      ...NEW_TASK,
      nextTickAt: null,
      triggerRule: null,
      secrets: null,
      secretNames: [],
      ...fields,
      ...(await extrasOf(this.#deps, asked)),
      name: body.name,
      id,
      domain,
      userKey: caller?.key ?? null,
      workflow,
    }
  }

  async #identify(id: string): Promise<TaskIdentity | undefined> {
    const known = this.#identities.get(id)
    if (known !== undefined) return known
    const found = isId(id) ? await findIdentity(this.#deps.database.db, id) : undefined
    if (found !== undefined) this.#identities.set(id, found)
    return found
  }

  async #read(task: TaskIdentity): Promise<TaskRecord> {
    const record = await findTask(this.#deps.database.db, task.key)
    if (record !== undefined) return record
    this.#identities.delete(task.id)
    throw new ServiceError('not_found', 'no such task')
  }
}
