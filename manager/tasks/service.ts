/** Task records: visibility, validation and changes. `runs/` manages their runs. */
import { LRUCache } from 'lru-cache'
import { endTrial, isTrial } from '#api/identity/index.ts'
import type { Actor } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { validateModule } from '#core/module-reading/index.ts'
import { Slots } from '#core/slots.ts'
import { isUnderWay } from '../model/lifecycle.ts'
import { domainOf } from '../access/domain-of.ts'
import { visibleIn, type TaskAccess, type TaskAction, type TaskCaller, type TaskDomain } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { refuseResultReferences } from '../model/result-references.ts'
import { storeModule, type NewModule } from '../store/modules.ts'
import { extrasOf } from './extras.ts'
import { moduleLimitOf, requireModuleRoom } from '../store/module-quota.ts'
import {
  countWithTask,
  deleteTask,
  findIdentity,
  findSecrets,
  findOpenRun,
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
import { AwaitedEnds, type RunEndings } from '../writer/endings.ts'
import { describeChange } from './changes.ts'
import { refuseWorkflowFields, type NewTask, type TaskUpdate } from './schema.ts'

export type TasksDeps = {
  database: Database
  access: TaskAccess
  keyring: Keyring
  endings: RunEndings
  /** Resolves when every run of the task has ended. */
  stopRuns: (taskKey: number, recordedFor: Actor) => Promise<void>
  /** Called after the commit of a change or deletion of a task's row. */
  onChanged: (taskId: string) => void
  newId: () => string
  now: () => Date
}

/** Waiting calls of this process, and per domain. */
const MAX_WAITING = 4000
const MAX_WAITING_PER_DOMAIN = 1000
/** Tasks whose id, key and domain are cached; none of the three changes. */
const MAX_CACHED_TASKS = 50_000

export class TasksService {
  readonly #deps: TasksDeps
  readonly #waiting = new Slots({ what: 'calls that wait for tasks', max: MAX_WAITING, share: MAX_WAITING_PER_DOMAIN })
  readonly #identities = new LRUCache<string, TaskIdentity>({ max: MAX_CACHED_TASKS })

  constructor(deps: TasksDeps) {
    this.#deps = deps
  }

  /** Throws `not_found` if the caller cannot read the task, `forbidden` if they can read it but not do this. */
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

  /**
   * The task when its current run has ended, at any manager, or as it is after `waitMs`. A task that is not under way is
   * returned at once. Throws `rate_limited` and `unavailable` if too many callers wait.
   */
  async getEnded(caller: TaskCaller, id: string, waitMs: number): Promise<TaskRecord> {
    const { database, endings } = this.#deps
    const task = await this.require(caller, id, 'task_read')
    const runKey = waitMs === 0 ? null : await findOpenRun(database.db, task.key)
    if (runKey === null) return await this.#read(task)
    await this.#waiting.run(task.domainId, async () => {
      const awaited = new AwaitedEnds(endings)
      awaited.add(runKey)
      // It may have ended before it was awaited.
      await awaited.within((await findOpenRun(database.db, task.key)) === runKey ? waitMs : 0)
    })
    return await this.get(caller, id)
  }

  /** `file` is its module; the buffer is detached afterwards. Throws the errors of `validateModule`. */
  async create(caller: TaskCaller, body: NewTask, file?: Uint8Array<ArrayBuffer>): Promise<TaskRecord> {
    refuseWorkflowFields(body)
    refuseResultReferences(body.inputs ?? [])
    const row = await this.newRow(caller, await this.domainOf(caller, body.domain_id), body, null)
    const domainId = row.domain?.id ?? null
    const module = await this.moduleOf(file, domainId, row.memory_limit_bytes)
    const { database, access } = this.#deps
    const isLimited = module !== undefined && moduleLimitOf(access.quotas, domainId) !== undefined
    // One statement is a transaction of its own, unless the module is new.
    const created =
      row.triggerRule === null && !isLimited ? await insertTask(database.db, row, module?.digest ?? null) : undefined
    const task = created ?? (await database.transaction(async (tx) => await this.insert(tx, row, module)))
    this.#identities.set(task.id, { key: task.key, id: task.id, domainId })
    return task
  }

  /** The module of a file; undefined without one. The default memory limit applies without one. Throws the errors of `validateModule`. */
  async moduleOf(
    file: Uint8Array<ArrayBuffer> | undefined,
    domainId: string | null,
    memoryLimitBytes: number | undefined,
  ): Promise<NewModule | undefined> {
    if (file === undefined) return undefined
    const validated = await validateModule(file, domainId ?? '', memoryLimitBytes ?? NEW_TASK.memory_limit_bytes)
    return { ...validated, sizeBytes: validated.bytes.byteLength }
  }

  /** Inserts a task with its module. Throws `quota_exceeded`. */
  async insert(tx: Transaction, row: NewTaskRow, module: NewModule | undefined): Promise<TaskRecord> {
    if (module !== undefined) await this.#store(tx, module, { domainId: row.domain?.id ?? null, taskKey: null })
    const task = await insertTask(tx, row, module?.digest ?? null)
    if (task === undefined) throw new Error('a module that is locked has gone')
    return task
  }

  /** The key of the module. Throws `quota_exceeded`. */
  async #store(
    tx: Transaction,
    module: NewModule,
    of: { domainId: string | null; taskKey: number | null },
  ): Promise<number> {
    await requireModuleRoom(tx, this.#deps.access.quotas, { ...of, module })
    return (await storeModule(tx, module)).key
  }

  /** `file` is its new module; see `create`. An empty name is ignored. */
  async update(
    caller: TaskCaller,
    id: string,
    { name: newName, ...others }: TaskUpdate,
    file?: Uint8Array<ArrayBuffer>,
  ): Promise<TaskRecord> {
    const body: TaskUpdate = newName === undefined || newName === '' ? others : { ...others, name: newName }
    const task = await this.require(caller, id, 'task_update')
    refuseWorkflowFields(body)
    const before = await this.#read(task)
    if (file !== undefined && isUnderWay(before.state)) throw taskUnderWay()
    if (before.workflow_id === null) refuseResultReferences(body.inputs ?? [])
    else if (body.name !== undefined && body.name !== before.name)
      throw new ServiceError('invalid_state', 'other tasks of the workflow refer to this task by its name')
    const fields = readFields(body)
    const sealed = body.secrets === undefined ? null : await findSecrets(this.#deps.database.db, task.key)
    const extras = await extrasOf(this.#deps, { caller, task, fields, secrets: body.secrets, before, sealed })
    const memoryLimitBytes = fields.memory_limit_bytes ?? before.memory_limit_bytes
    const module = await this.moduleOf(file, task.domainId, memoryLimitBytes)
    const attributes = describeChange(before, { fields, extras, module })
    const isChanged = await this.#deps.database.transaction(async (tx) => {
      // The lock of the quota before that of the task, as in an upload.
      const of = { domainId: task.domainId, taskKey: task.key }
      const moduleKey = module === undefined ? undefined : await this.#store(tx, module, of)
      return await updateTask(tx, task.key, { fields, extras, moduleKey }, { caller, attributes })
    })
    if (!isChanged) {
      await this.#read(task)
      throw taskUnderWay()
    }
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  /** Checks the permission for an upload before its bytes are read. */
  async requireUploadable(caller: TaskCaller, id: string): Promise<TaskIdentity> {
    const task = await this.require(caller, id, 'task_update')
    if (isUnderWay((await this.#read(task)).state)) throw taskUnderWay()
    return task
  }

  /**
   * Stores the module and assigns it to the task; the buffer is detached afterwards. Throws `malformed` for an invalid or
   * unsupported module, the errors of `validateModule`, and `quota_exceeded`.
   */
  async upload(caller: TaskCaller, task: TaskIdentity, bytes: Uint8Array<ArrayBuffer>): Promise<TaskRecord> {
    const before = await this.#read(task)
    const validated = await validateModule(bytes, task.domainId ?? '', before.memory_limit_bytes)
    const module = { ...validated, sizeBytes: validated.bytes.byteLength }
    const isSet = await this.#deps.database.transaction(async (tx) => {
      const of = { domainId: task.domainId, taskKey: task.key }
      const moduleKey = await this.#store(tx, module, of)
      return await setModule(tx, task.key, moduleKey, { caller, attributes: describeChange(before, { module }) })
    })
    if (!isSet) {
      await this.#read(task)
      throw taskUnderWay()
    }
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  async list(caller: TaskCaller, filter: Omit<TaskFilter, 'domains'>, domainId: string | undefined) {
    const domains = await visibleIn(this.#deps.access, caller, domainId)
    return await listTasks(this.#deps.database.db, { ...filter, domains })
  }

  /** Throws `invalid_state` while a run of it is active, unless `isForced` stops it first. */
  async remove(caller: TaskCaller, id: string, isForced: boolean): Promise<void> {
    const task = await this.require(caller, id, 'task_delete')
    if (isTrial()) return await this.#tryRemoval(task, isForced)
    if (isForced) await this.#deps.stopRuns(task.key, actorOf(caller))
    const isGone = await deleteTask(this.#deps.database, task.key, caller)
    if (!isGone) throw await this.#refusedRemoval(task)
    this.#identities.delete(task.id)
    this.#deps.onChanged(task.id)
  }

  /** Deleting its runs and rolling that back would take too long: they are counted. */
  async #tryRemoval(task: TaskIdentity, isForced: boolean): Promise<never> {
    const found = await countWithTask(this.#deps.database, task.key, isForced)
    if (found === undefined) throw await this.#refusedRemoval(task)
    const { name, rows } = found
    return endTrial([{ operation: 'task.remove', id: task.id, name, attributes: {} }], rows)
  }

  async #refusedRemoval(task: TaskIdentity): Promise<ServiceError> {
    const { workflow_id: workflowId } = await this.#read(task)
    return workflowId === null
      ? taskUnderWay()
      : new ServiceError('invalid_state', 'the task belongs to a workflow: delete the workflow')
  }

  /** The domain of a new task: the given one, else the token's, else the caller's only one. */
  async domainOf(caller: TaskCaller, domainId: string | null | undefined): Promise<TaskDomain | null> {
    if (caller !== undefined) {
      const several = 'you can create tasks in several domains'
      return await domainOf(this.#deps.access, caller, 'task_create', { domainId, several })
    }
    if (typeof domainId === 'string' && domainId !== '')
      throw new ServiceError('unauthenticated', 'a task of a domain requires a token')
    return null
  }

  /** The row of a new task; `workflow` is the workflow that it belongs to. */
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
      caller,
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
