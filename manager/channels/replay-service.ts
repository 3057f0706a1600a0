/** Replays: the module of a task runs over stored messages of a channel, record by record (task-manager.md section 5). */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { TaskAccess, TaskCaller } from '../access/access.ts'
import { MAX_OPEN_REPLAYS, openReplay } from '#queues/index.ts'
import type { TasksService } from '../tasks/service.ts'
import { requireChannelId } from '../model/channel-fields.ts'
import type { NewReplay } from './schema.ts'

export type ReplaysDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  tasks: TasksService
  newId: () => string
}

export class ReplaysService {
  readonly #database: Database
  readonly #bus: Bus
  readonly #access: TaskAccess
  readonly #tasks: TasksService
  readonly #newId: () => string

  constructor({ database, bus, access, tasks, newId }: ReplaysDeps) {
    this.#database = database
    this.#bus = bus
    this.#access = access
    this.#tasks = tasks
    this.#newId = newId
  }

  /** Throws `unauthenticated` without a user, `forbidden` without the right to read the channel. */
  async start(caller: TaskCaller, taskId: string, body: NewReplay): Promise<{ id: string }> {
    const task = await this.#tasks.require(caller, taskId, 'task_start')
    if (caller === undefined) throw new ServiceError('unauthenticated', 'a replay requires a token')
    requireChannelId(body.channel_id, '/channel_id')
    if (body.from >= body.to) throw refusedField('/from', 'must be before to')
    if (task.domainId === null) throw new ServiceError('unprocessable', 'a task of no domain has no channels')
    await this.#access.requireChannel(caller, 'subscribe', task.domainId, body.channel_id)
    const id = this.#newId()
    const replay = {
      id,
      taskKey: task.key,
      userKey: caller.key,
      channelId: body.channel_id,
      from: body.from,
      to: body.to,
    }
    if (!(await openReplay(this.#database, this.#bus, replay)))
      throw new ServiceError('unavailable', `${MAX_OPEN_REPLAYS} replays of the task are running already`, {
        retryAfterSeconds: 5,
      })
    return { id }
  }
}
