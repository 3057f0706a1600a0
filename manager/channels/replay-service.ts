/** Replays: the module of a task runs over stored messages of a channel, record by record (task-manager.md section 5). */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { hintQueue } from '#core/log/index.ts'
import { sql } from '#core/sql.ts'
import type { TaskAccess, TaskCaller } from '../access.ts'
import type { TasksService } from '../tasks/service.ts'
import { requireChannelId } from './fields.ts'
import type { NewReplay } from './schema.ts'

export type ReplaysDeps = {
  database: Database
  bus: Bus
  access: TaskAccess
  tasks: TasksService
  newId: () => string
}
export type ReplaysService = ReturnType<typeof createReplaysService>

/** Replays of one task at a time. */
const MAX_OPEN = 10

export function createReplaysService({ database, bus, access, tasks, newId }: ReplaysDeps) {
  return {
    /** Throws `unauthenticated` without a user, `forbidden` without the right to read the channel. */
    async start(caller: TaskCaller, taskId: string, body: NewReplay): Promise<{ id: string }> {
      const task = await tasks.require(caller, taskId, 'task_start')
      if (caller === undefined) throw new ServiceError('unauthenticated', 'replay needs a token')
      requireChannelId(body.channel_id, '/channel_id')
      if (body.from >= body.to) throw refusedField('/from', 'must be before to')
      if (task.domainId === null) throw new ServiceError('unprocessable', 'a task of no domain has no channels')
      await access.requireChannel(caller, 'subscribe', task.domainId, body.channel_id)
      const id = newId()
      const { rows } = await sql`
        INSERT INTO task_replays (id, task_key, user_key, channel_id, from_time, to_time)
        SELECT ${id}, t.key, ${caller.key}, ${body.channel_id}, ${body.from}, ${body.to} FROM tasks t
        WHERE t.key = ${task.key} AND (SELECT count(*) FROM task_replays r WHERE r.task_key = t.key) < ${MAX_OPEN}
        RETURNING id`.execute(database.db)
      if (rows.length === 0)
        throw new ServiceError('unavailable', `${MAX_OPEN} replays of the task are under way`, { retryAfterSeconds: 5 })
      hintQueue(bus, 'task_replays')
      return { id }
    },
  }
}
