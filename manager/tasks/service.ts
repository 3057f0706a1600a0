/** The rules of tasks as records: who sees them, what may be written and when. Runs are the business of `runs/`. */
import { isId } from '#core/ids.ts'
import { createLru } from '#core/lru.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { judgeModule } from '#core/module-reading/index.ts'
import { isUnderWay } from '../lifecycle.ts'
import { visibleDomains, type TaskAccess, type TaskAction, type TaskCaller, type TaskDomain } from '../access.ts'
import { refuseReferences } from '../workflows/references.ts'
import { storeModule } from '../modules/repository.ts'
import { extrasOf, type ExtrasDeps } from './extras.ts'
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
} from './repository.ts'
import { NEW_TASK_FIELDS, fromBody, refuseWorkflowFields, type NewTask, type TaskUpdate } from './schema.ts'

export type TasksDeps = {
  database: Database
  access: TaskAccess
  keyring: Keyring
  newId: () => string
  now: () => Date
}
export type TasksService = ReturnType<typeof createTasksService>

/** Tasks whose id, key and domain are remembered; none of the three ever changes. */
const REMEMBERED_TASKS = 50_000

export function createTasksService({ database, access, keyring, newId, now }: TasksDeps) {
  const extrasDeps: ExtrasDeps = { access, keyring, now }
  const identities = createLru<string, TaskIdentity>(REMEMBERED_TASKS)

  async function identify(id: string): Promise<TaskIdentity | undefined> {
    const known = identities.get(id)
    if (known !== undefined) return known
    const found = isId(id) ? await findIdentity(database.db, id) : undefined
    if (found !== undefined) identities.set(id, found)
    return found
  }

  /** Throws `not_found` for what the caller may not read, `forbidden` for what he may read but not do. */
  async function require(caller: TaskCaller, id: string, action: TaskAction): Promise<TaskIdentity> {
    const task = await identify(id)
    if (task === undefined || !(await access.can(caller, 'task_read', task.domainId))) {
      throw new ServiceError('not_found', 'no such task')
    }
    if (action !== 'task_read' && !(await access.can(caller, action, task.domainId))) {
      throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in the domain of the task`)
    }
    return task
  }

  async function read(task: TaskIdentity): Promise<TaskRecord> {
    const record = await findTask(database.db, task.key)
    if (record !== undefined) return record
    identities.delete(task.id)
    throw new ServiceError('not_found', 'no such task')
  }

  /** Where a new task belongs: the domain named, else the token's, else the caller's only one. */
  async function domainOf(caller: TaskCaller, domainId: string | null | undefined): Promise<TaskDomain | null> {
    if (caller === undefined) {
      if (typeof domainId === 'string' && domainId !== '') {
        throw new ServiceError('unauthenticated', 'a task of a domain needs a token')
      }
      return null
    }
    if (typeof domainId === 'string' && domainId !== '') return await access.require(caller, 'task_create', domainId)
    const domains = await access.domains(caller, 'task_create')
    if (typeof domains === 'string') return null
    const [only, ...others] = domains
    if (only === undefined)
      throw new ServiceError('forbidden', 'failed to perform authorization: needs task_create in a domain')
    if (others.length > 0) {
      throw new ServiceError('malformed', 'domain_id is required: you may create tasks in several domains', {
        details: [{ path: '/domain_id', message: 'is required' }],
      })
    }
    return only
  }

  async function newRow(
    caller: TaskCaller,
    domain: TaskDomain | null,
    body: NewTask,
    workflow: NewTaskRow['workflow'],
  ): Promise<NewTaskRow> {
    const fields = fromBody(body)
    const id = newId()
    const task = { id, domainId: domain?.id ?? null }
    const asked = { caller, task, fields, secrets: body.secrets, before: undefined, sealed: null }
    return {
      ...NEW_TASK_FIELDS,
      nextTickAt: null,
      triggerRule: null,
      secrets: null,
      secretNames: [],
      ...fields,
      ...(await extrasOf(extrasDeps, asked)),
      name: body.name,
      id,
      domain,
      userKey: caller?.key ?? null,
      workflow,
    }
  }

  return {
    require,

    async get(caller: TaskCaller, id: string): Promise<TaskRecord> {
      return await read(await require(caller, id, 'task_read'))
    },

    domainOf,

    async create(caller: TaskCaller, body: NewTask): Promise<TaskRecord> {
      refuseWorkflowFields(body)
      refuseReferences(body.inputs ?? [])
      const row = await newRow(caller, await domainOf(caller, body.domain_id), body, null)
      const key = await database.transaction(async (tx) => await insertTask(tx, row))
      return await read({ key, id: row.id, domainId: row.domain?.id ?? null })
    },

    /** A task of a workflow, ready to be inserted. */
    newRow,

    async update(caller: TaskCaller, id: string, body: TaskUpdate): Promise<TaskRecord> {
      const task = await require(caller, id, 'task_update')
      refuseWorkflowFields(body)
      const before = await read(task)
      if (before.workflowId === null) refuseReferences(body.inputs ?? [])
      else if (body.name !== undefined && body.name !== before.name)
        throw new ServiceError('invalid_state', 'other tasks of the workflow know this one by its name')
      const fields = fromBody(body)
      const sealed = body.secrets === undefined ? null : await findSecrets(database.db, task.key)
      const extras = await extrasOf(extrasDeps, { caller, task, fields, secrets: body.secrets, before, sealed })
      const isChanged = await database.transaction(
        async (tx) => await updateTask(tx, task.key, fields, extras, caller?.key ?? null),
      )
      if (!isChanged) {
        await read(task)
        throw taskUnderWay()
      }
      return await read(task)
    },

    /** Refuses an upload before its bytes are read. */
    async requireUploadable(caller: TaskCaller, id: string): Promise<TaskIdentity> {
      const task = await require(caller, id, 'task_update')
      if (isUnderWay((await read(task)).state)) throw taskUnderWay()
      return task
    },

    /**
     * Stores the module and gives it to the task; the bytes cannot be used afterwards. Throws `malformed` for what is no module, or none that
     * runs here, and what `judgeModule` throws.
     */
    async upload(caller: TaskCaller, task: TaskIdentity, bytes: Uint8Array<ArrayBuffer>): Promise<TaskRecord> {
      const judged = await judgeModule(bytes, task.domainId ?? '')
      const module = { ...judged, sizeBytes: judged.bytes.byteLength }
      const isSet = await database.transaction(async (tx) => {
        const stored = await storeModule(tx, module)
        return await setModule(tx, task.key, stored.key, caller?.key ?? null)
      })
      if (!isSet) {
        await read(task)
        throw taskUnderWay()
      }
      return await read(task)
    },

    async list(caller: TaskCaller, filter: Omit<TaskFilter, 'domains'>) {
      const domains = visibleDomains(await access.domains(caller, 'task_read'))
      return await listTasks(database.db, { ...filter, domains })
    },

    /** Throws `invalid_state` while a run of it is under way. */
    async remove(task: TaskIdentity): Promise<void> {
      const isGone = await deleteTask(database, task.key)
      if (!isGone) {
        const { workflowId } = await read(task)
        if (workflowId !== null)
          throw new ServiceError('invalid_state', 'the task belongs to a workflow: delete the workflow')
        throw taskUnderWay()
      }
      identities.delete(task.id)
    },
  }
}
