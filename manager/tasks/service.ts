/** The rules of tasks as records: who sees them, what may be written and when. Runs are the business of `runs/`. */
import { LRUCache } from 'lru-cache'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isUnderWay } from '../lifecycle.ts'
import type { TaskAccess, TaskAction, TaskCaller, TaskDomain } from '../access.ts'
import { judgeModule } from '../modules/upload.ts'
import { storeModule } from '../modules/repository.ts'
import {
  deleteTask,
  findIdentity,
  findTask,
  insertTask,
  listTasks,
  setModule,
  taskUnderWay,
  updateTask,
  type TaskFilter,
  type TaskIdentity,
  type TaskRecord,
} from './repository.ts'
import { NEW_TASK_FIELDS, fromBody, refuseUnserved, type NewTask, type TaskUpdate } from './schema.ts'

export type TasksDeps = { database: Database; access: TaskAccess; newId: () => string }
export type TasksService = ReturnType<typeof createTasksService>

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
/** Tasks whose id, key and domain are remembered; none of the three ever changes. */
const REMEMBERED_TASKS = 50_000

export function createTasksService({ database, access, newId }: TasksDeps) {
  const identities = new LRUCache<string, TaskIdentity>({ max: REMEMBERED_TASKS })

  async function identify(id: string): Promise<TaskIdentity | undefined> {
    const known = identities.get(id)
    if (known !== undefined) return known
    const found = UUID.test(id) ? await findIdentity(database.db, id) : undefined
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
    if (domains === 'all') return null
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

  return {
    require,

    async get(caller: TaskCaller, id: string): Promise<TaskRecord> {
      return await read(await require(caller, id, 'task_read'))
    },

    async create(caller: TaskCaller, body: NewTask): Promise<TaskRecord> {
      refuseUnserved(body)
      const fields = fromBody(body)
      const domain = await domainOf(caller, body.domain_id)
      const id = newId()
      const key = await insertTask(database.db, {
        ...NEW_TASK_FIELDS,
        ...fields,
        name: body.name,
        id,
        domain,
        userKey: caller?.key ?? null,
      })
      return await read({ key, id, domainId: domain?.id ?? null })
    },

    async update(caller: TaskCaller, id: string, body: TaskUpdate): Promise<TaskRecord> {
      const task = await require(caller, id, 'task_update')
      refuseUnserved(body)
      const fields = fromBody(body)
      if (!(await updateTask(database.db, task.key, fields, caller?.key ?? null))) {
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

    /** Stores the module and gives it to the task. Throws `malformed` for what is no module, or none that runs here. */
    async upload(task: TaskIdentity, bytes: Uint8Array): Promise<TaskRecord> {
      const module = judgeModule(bytes)
      const isSet = await database.transaction(async (tx) => {
        const stored = await storeModule(tx, module)
        return await setModule(tx, task.key, stored.key)
      })
      if (!isSet) {
        await read(task)
        throw taskUnderWay()
      }
      return await read(task)
    },

    async list(caller: TaskCaller, filter: Omit<TaskFilter, 'domains'>) {
      const domains = await access.domains(caller, 'task_read')
      return await listTasks(database.db, {
        ...filter,
        domains: domains === 'all' ? 'all' : domains.map(({ key }) => key),
      })
    },

    /** Throws `invalid_state` while a run of it is under way. */
    async remove(task: TaskIdentity): Promise<void> {
      const isGone = await deleteTask(database, task.key)
      if (!isGone) {
        await read(task)
        throw taskUnderWay()
      }
      identities.delete(task.id)
    },
  }
}
