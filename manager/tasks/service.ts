/** Task records: visibility, validation and changes. `runs/` manages their runs. */
import { setTimeout as sleep } from 'node:timers/promises'
import { BoundedCache } from '#core/bounded-cache.ts'
import { endTrial, isTrial } from '#api/identity/index.ts'
import type { Actor } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { validateModule } from '#guests/module-reading/index.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import { isUnderWay } from '../model/lifecycle.ts'
import { domainOf } from '../access/domain-of.ts'
import { visibleIn, type TaskAccess, type TaskAction, type TaskCaller, type TaskDomain } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { refuseResultReferences } from '../model/result-references.ts'
import { storeModule, type NewModule } from '../store/modules.ts'
import { extrasOf } from './extras.ts'
import { requireOffline } from './offline.ts'
import {
  changesSecrets,
  grantorAfter,
  needsOf,
  requireRights,
  requireSecretsRight,
  withoutUnchanged,
  type Change,
} from './grantor.ts'
import { takeOverTask } from '../store/pauses.ts'
import { amountsOf, amountsOfChange, type AmountQuotas } from '../store/amount-quotas.ts'
import { moduleLimitOf, requireModuleRoom } from '../store/module-quota.ts'
import {
  countWithTask,
  deleteTask,
  findIdentity,
  findSecrets,
  findOpenRun,
  insertTask,
  listTasks,
  isPlainTask,
  setModule,
  setModules,
  taskChanged,
  taskUnderWay,
  updateTask,
  type GivenModule,
  type KnownTask,
  type OpenRun,
  type Permission,
  type TaskFilter,
  type TaskIdentity,
  type TaskRecord,
} from '../store/tasks.ts'
import { countRecentRuns, type RecentRuns } from '../store/runs.ts'
import { newTask, type NewTaskRow } from '../store/new-tasks.ts'
import { NEW_TASK, readFields } from '../model/task-fields.ts'
import { AwaitedEnds, type RunEndings } from '../writer/endings.ts'
import { describeChange } from './changes.ts'
import type { TaskReader } from './task-reader.ts'
import type { TaskWriter } from './task-writer.ts'
import { refuseWorkflowFields, type NewTask, type TaskUpdate } from './schema.ts'

export type TasksDeps = {
  database: Database
  access: TaskAccess
  keyring: Keyring
  endings: RunEndings
  reader: TaskReader
  writer: TaskWriter
  amounts: AmountQuotas
  /** Resolves when every run of the task has ended. */
  stopRuns: (taskKey: number, recordedFor: Actor) => Promise<void>
  /** Called after the commit of a change or deletion of a task's row. */
  onChanged: (taskId: string) => void
  /** Called after the commit of the end of a pause. */
  onReleased: () => void
  newId: () => string
  now: () => Date
}

const UPLOAD: Change = { fields: {}, secrets: undefined, hasFile: true }

/** Waiting calls of this process, and per domain. */
const MAX_WAITING = 4000
const MAX_WAITING_PER_DOMAIN = 1000
/** How often a caller that waits for the step of a workflow looks whether it was started. */
const STEP_POLL_MS = 250
/** Tasks whose id, key and domain are cached; none of the three changes. */
const MAX_CACHED_TASKS = 50_000
const MAX_CACHED_DIGESTS = 10_000
/** Characters of listed tasks that are kept, and of one besides its fields. */
const MAX_LISTED_CHARS = 16 * 1024 * 1024
const LISTED_CHARS = 512
/** Attempts at an upload whose task gets another memory limit meanwhile. */
const MAX_UPLOAD_ATTEMPTS = 3

export class TasksService {
  readonly #deps: TasksDeps
  readonly #waiting = new Slots({ what: 'calls that wait for tasks', max: MAX_WAITING, share: MAX_WAITING_PER_DOMAIN })
  readonly #identities = new BoundedCache<string, TaskIdentity>({ maxEntries: MAX_CACHED_TASKS })
  /** Digests of modules that were stored: the statement that uses one finds out whether it still is. */
  readonly #stored = new BoundedCache<string, true>({ maxEntries: MAX_CACHED_DIGESTS })
  readonly #listed = new BoundedCache<number, KnownTask>({
    maxSize: MAX_LISTED_CHARS,
    sizeOf: ({ task }) => LISTED_CHARS + JSON.stringify(task).length,
  })
  /** The memory limits, by task key, of plain tasks that were not under way when they were last seen. */
  readonly #atRest = new BoundedCache<number, number>({ maxEntries: MAX_CACHED_TASKS })

  constructor(deps: TasksDeps) {
    this.#deps = deps
  }

  /** Throws `not_found` if the caller cannot read the task, `forbidden` if they can read it but not do this. */
  async require(caller: TaskCaller, id: string, action: TaskAction): Promise<TaskIdentity> {
    const task = await this.#identify(id)
    if (task === undefined || !(await this.#deps.access.can(caller, 'task_read', task.domainId))) {
      throw new ServiceError('not_found', 'no such task')
    }
    // Its state is read again when it matters.
    if (action === 'task_start') this.#atRest.delete(task.key)
    if (action !== 'task_read' && !(await this.#deps.access.can(caller, action, task.domainId))) {
      throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in the domain of the task`)
    }
    return task
  }

  async get(caller: TaskCaller, id: string): Promise<TaskRecord> {
    return await this.#current(await this.require(caller, id, 'task_read'))
  }

  /** The newest runs of a task that the caller has read. */
  async recentRuns({ key }: TaskRecord): Promise<RecentRuns> {
    return await countRecentRuns(this.#deps.database.db, key)
  }

  /**
   * The task when its current run has ended, at any manager, or as it is after `waitMs`. A task that is not under way is
   * returned at once. Throws `rate_limited` and `unavailable` if too many callers wait.
   */
  async getEnded(caller: TaskCaller, id: string, waitMs: number): Promise<TaskRecord> {
    const task = await this.require(caller, id, 'task_read')
    const current = await this.#current(task)
    const isWorkflow = current.workflow_id !== null
    if (waitMs === 0 || (!isWorkflow && !isUnderWay(current.state))) return current
    const open = isWorkflow ? await this.#findOpen(task.key) : { runKey: current.run_key, isStepDue: false }
    // A step may have ended since the task was read.
    if (open.runKey === null && !open.isStepDue) return isWorkflow ? await this.#current(task) : current
    await this.#waiting.run(task.domainId, () => this.#awaitEnd(task.key, open, monotonicMs() + waitMs))
    return await this.get(caller, id)
  }

  /** Waits until the run has ended. The run of a workflow's step is looked for until the step is started, refused or skipped. */
  async #awaitEnd(taskKey: number, found: OpenRun, deadlineMs: number): Promise<void> {
    const { endings } = this.#deps
    let open = found
    for (;;) {
      const leftMs = Math.max(deadlineMs - monotonicMs(), 0)
      if (open.runKey !== null) {
        const awaited = new AwaitedEnds(endings)
        awaited.add(open.runKey)
        // It may have ended before it was awaited.
        const now = await this.#findOpen(taskKey)
        await awaited.within(now.runKey === open.runKey ? leftMs : 0)
        return
      }
      if (!open.isStepDue || leftMs === 0) return
      await sleep(Math.min(STEP_POLL_MS, leftMs))
      open = await this.#findOpen(taskKey)
    }
  }

  /** Finds the open run. It is in memory while it is at a worker of this manager. */
  async #findOpen(taskKey: number): Promise<OpenRun> {
    const { database, reader } = this.#deps
    const known = reader.recall(taskKey)
    if (known !== undefined) return { runKey: known.run_key, isStepDue: false }
    return await findOpenRun(database.db, taskKey)
  }

  /** `file` is its module; the buffer is detached afterwards. Throws the errors of `validateModule`. */
  async create(caller: TaskCaller, body: NewTask, file?: Uint8Array<ArrayBuffer>): Promise<TaskRecord> {
    refuseWorkflowFields(body)
    refuseResultReferences(body.inputs ?? [])
    const row = await this.newRow(caller, await this.domainOf(caller, body.domain_id), body, null)
    const domainId = row.domain?.id ?? null
    const module = await this.moduleOf(file, domainId, row.memory_limit_bytes)
    const isAlone = row.triggerRule !== null || (module !== undefined && !this.#isStored(module, domainId))
    const { amounts, database, writer } = this.#deps
    // This does the same as `amounts.within`, which costs six promises more for each task.
    const added = amountsOf(row)
    const unready = amounts.ready(domainId, added)
    if (unready !== undefined) await unready
    using room = amounts.take(domainId, added)
    const created = isAlone ? undefined : await writer.create(row, module)
    const task = created ?? (await database.transaction(async (tx) => await this.insert(tx, row, module)))
    room.committed()
    this.#identities.set(task.id, { key: task.key, id: task.id, domainId })
    this.#see(task)
    return task
  }

  /** Whether the module needs no transaction to be stored, or to be counted for the quota of the domain. */
  #isStored({ digest }: NewModule, domainId: string | null): boolean {
    return this.#stored.has(digest) && moduleLimitOf(this.#deps.access.quotas, domainId) === undefined
  }

  /** The module of a file; undefined without one. The default memory limit applies without one. Throws the errors of `validateModule`. */
  async moduleOf(
    file: Uint8Array<ArrayBuffer> | undefined,
    domainId: string | null,
    memoryLimitBytes: number | undefined,
  ): Promise<NewModule | undefined> {
    if (file === undefined) return undefined
    return await this.#validated(file, domainId, memoryLimitBytes ?? NEW_TASK.memory_limit_bytes)
  }

  async #validated(bytes: Uint8Array<ArrayBuffer>, domainId: string | null, memoryLimitBytes: number) {
    const validated = await validateModule(bytes, domainId ?? '', memoryLimitBytes)
    return { ...validated, sizeBytes: validated.bytes.byteLength }
  }

  /** Inserts a task with its module. Throws `quota_exceeded`. */
  async insert(tx: Transaction, row: NewTaskRow, module: NewModule | undefined): Promise<TaskRecord> {
    if (module !== undefined) await this.#store(tx, module, { domainId: row.domain?.id ?? null, taskKey: null })
    const task = await insertTask(tx, newTask(row, module))
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
    const { key } = await storeModule(tx, module)
    this.#stored.set(module.digest, true)
    return key
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
    const given = readFields(body)
    const fields = withoutUnchanged(before, given)
    const permission = await this.#permit(caller, before, {
      fields,
      secrets: body.secrets,
      hasFile: file !== undefined,
    })
    const sealed = body.secrets === undefined ? null : await findSecrets(this.#deps.database.db, task.key)
    const extras = await extrasOf(this.#deps, { caller, task, fields, secrets: body.secrets, before, sealed })
    requireOffline({
      ...before,
      ...fields,
      secretNames: extras.secretNames ?? before.secret_names,
      isInWorkflow: before.workflow_id !== null,
    })
    const memoryLimitBytes = fields.memory_limit_bytes ?? before.memory_limit_bytes
    const module = await this.moduleOf(file, task.domainId, memoryLimitBytes)
    const attributes = describeChange(before, { fields, extras, module })
    const work = async (tx: Transaction) => {
      // The lock of the quota before that of the task, as in an upload.
      const of = { domainId: task.domainId, taskKey: task.key }
      const moduleKey = module === undefined ? undefined : await this.#store(tx, module, of)
      const change = { caller, attributes }
      return await updateTask(tx, task.key, { fields, extras, moduleKey }, { change, permission })
    }
    await this.#deps.amounts.within(task.domainId, amountsOfChange(before, fields), async () => {
      if (!(await this.#deps.database.transaction(work))) throw await this.#refusedChange(task)
    })
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  /** Checks the permission for an upload before its bytes are read. Throws `invalid_state` while a run of the task is active. */
  async requireUploadable(caller: TaskCaller, id: string): Promise<TaskIdentity> {
    const task = await this.require(caller, id, 'task_update')
    if (this.#atRest.get(task.key) === undefined) await this.#permit(caller, await this.#readAtRest(task), UPLOAD)
    return task
  }

  /** Throws `invalid_state` while a run of the task is active. */
  async #readAtRest(task: TaskIdentity): Promise<TaskRecord> {
    const current = await this.#read(task)
    if (isUnderWay(current.state)) throw taskUnderWay()
    return current
  }

  /** Throws the errors of `grantorAfter`. */
  async #permit(caller: TaskCaller, before: TaskRecord, change: Change): Promise<Permission> {
    const { access, database } = this.#deps
    return { before, grantorKey: await grantorAfter({ access, db: database.db }, caller, before, change) }
  }

  async #refusedChange(task: TaskIdentity): Promise<ServiceError> {
    return isUnderWay((await this.#read(task)).state) ? taskUnderWay() : taskChanged()
  }

  /**
   * The caller grants the channels of the task from now on, and a pause ends. Throws `unauthenticated` without a user, `forbidden`
   * without the rights that the task uses.
   */
  async takeOver(caller: TaskCaller, id: string): Promise<TaskRecord> {
    const { database, access, onChanged, onReleased } = this.#deps
    const task = await this.require(caller, id, 'task_update')
    if (caller === undefined) throw new ServiceError('unauthenticated', 'to take over a task requires a token')
    if (task.domainId === null) throw new ServiceError('unprocessable', 'a task of no domain has no channels')
    const checked = await this.#read(task)
    await requireRights({ access, db: database.db }, caller, task.domainId, needsOf(checked))
    const taken = { taskKey: task.key, grantorKey: caller.key, checked, actor: actorOf(caller) }
    if (!(await takeOverTask(database, taken))) throw taskChanged()
    onChanged(task.id)
    onReleased()
    return await this.#read(task)
  }

  /**
   * Stores the module and assigns it to the task. Each call of `read` returns its bytes in a buffer of their own. Throws `malformed` for an
   * invalid or unsupported module, the errors of `validateModule`, and `quota_exceeded`.
   */
  async upload(
    caller: TaskCaller,
    task: TaskIdentity,
    read: () => Promise<Uint8Array<ArrayBuffer>>,
  ): Promise<TaskRecord> {
    for (let attempt = 1; attempt <= MAX_UPLOAD_ATTEMPTS; attempt++) {
      const known = this.#atRest.get(task.key)
      const before = known === undefined ? await this.#readAtRest(task) : { memory_limit_bytes: known }
      if ('id' in before && !isPlainTask(before)) return await this.#uploadAs(caller, task, before, await read())
      const { memory_limit_bytes: memoryLimitBytes } = before
      const module = await this.#validated(await read(), task.domainId, memoryLimitBytes).catch((error: unknown) =>
        this.#requireSameLimit(task, memoryLimitBytes, error),
      )
      const given = { taskKey: task.key, memoryLimitBytes, caller }
      const changed = module === undefined ? undefined : await this.#setModule({ ...given, module }, task.domainId)
      if (changed !== undefined) {
        this.#deps.onChanged(task.id)
        this.#see(changed)
        return changed
      }
      // It was started, deleted, or has another memory limit.
      this.#atRest.delete(task.key)
    }
    throw taskUnderWay()
  }

  /** The upload of a task whose code needs more than the permission to change the task. */
  async #uploadAs(
    caller: TaskCaller,
    task: TaskIdentity,
    before: TaskRecord,
    bytes: Uint8Array<ArrayBuffer>,
  ): Promise<TaskRecord> {
    const permission = await this.#permit(caller, before, UPLOAD)
    const module = await this.#validated(bytes, task.domainId, before.memory_limit_bytes)
    const isSet = await this.#deps.database.transaction(async (tx) => {
      const of = { domainId: task.domainId, taskKey: task.key }
      const moduleKey = await this.#store(tx, module, of)
      const change = { caller, attributes: describeChange(before, { module }) }
      return await setModule(tx, task.key, moduleKey, { change, permission })
    })
    if (!isSet) throw await this.#refusedChange(task)
    this.#deps.onChanged(task.id)
    return await this.#read(task)
  }

  /** Throws the refusal of a module, unless the task has another memory limit than when it was last seen. */
  async #requireSameLimit(task: TaskIdentity, memoryLimitBytes: number, refusal: unknown): Promise<undefined> {
    this.#atRest.delete(task.key)
    if ((await this.#readAtRest(task)).memory_limit_bytes === memoryLimitBytes) throw refusal
  }

  /** Undefined if the task is active or deleted, or has another memory limit. */
  async #setModule(
    given: GivenModule & { module: NewModule },
    domainId: string | null,
  ): Promise<TaskRecord | undefined> {
    const isStored = this.#isStored(given.module, domainId)
    const known = isStored ? await this.#deps.writer.setModule(domainId, given) : 'no module'
    const outcome = known === 'no module' ? await this.#storeAndSet(given, domainId) : known
    return typeof outcome === 'string' ? undefined : outcome
  }

  async #storeAndSet(given: GivenModule & { module: NewModule }, domainId: string | null) {
    return await this.#deps.database.transaction(async (tx) => {
      await this.#store(tx, given.module, { domainId, taskKey: given.taskKey })
      const [outcome] = await setModules(tx, [given])
      return outcome ?? 'no task'
    })
  }

  #see(task: TaskRecord): void {
    if (isUnderWay(task.state) || !isPlainTask(task)) this.#atRest.delete(task.key)
    else this.#atRest.set(task.key, task.memory_limit_bytes)
  }

  async list(caller: TaskCaller, filter: Omit<TaskFilter, 'domains'>, domainId: string | undefined) {
    const domains = await visibleIn(this.#deps.access, caller, domainId)
    return await listTasks(this.#deps.database.db, { ...filter, domains }, this.#listed)
  }

  /** Throws `invalid_state` while a run of it is active, unless `isForced` stops it first. */
  async remove(caller: TaskCaller, id: string, isForced: boolean): Promise<void> {
    const task = await this.require(caller, id, 'task_delete')
    if (isTrial()) return await this.#tryRemoval(task, isForced)
    if (isForced) await this.#deps.stopRuns(task.key, actorOf(caller))
    const isGone = await deleteTask(this.#deps.database, task.key, caller)
    if (!isGone) throw await this.#refusedRemoval(task)
    this.#deps.amounts.removed(task.domainId)
    this.#identities.delete(task.id)
    this.#atRest.delete(task.key)
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
    if (changesSecrets([], body.secrets))
      await requireSecretsRight(this.#deps.access, caller, domain?.id ?? null, 'to set secrets')
    const id = this.#deps.newId()
    const task = { id, domainId: domain?.id ?? null }
    const asked = { caller, task, fields, secrets: body.secrets, before: undefined, sealed: null }
    const extras = await extrasOf(this.#deps, asked)
    const { secretNames = [] } = extras
    requireOffline({ ...NEW_TASK, ...fields, secretNames, isInWorkflow: workflow !== null, module: null })
    return {
      ...NEW_TASK,
      nextTickAt: null,
      triggerRule: null,
      secrets: null,
      secretNames,
      ...fields,
      ...extras,
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

  async #current(task: TaskIdentity): Promise<TaskRecord> {
    return this.#deps.reader.recall(task.key) ?? (await this.#read(task))
  }

  async #read(task: TaskIdentity): Promise<TaskRecord> {
    const record = await this.#deps.reader.read(task.key)
    if (record !== undefined) {
      this.#see(record)
      return record
    }
    this.#identities.delete(task.id)
    this.#atRest.delete(task.key)
    throw new ServiceError('not_found', 'no such task')
  }
}
