/**
 * Continues paused tasks when their grantor has the rights again, pauses tasks whose grantor was deleted (contract decision 88), and records
 * that the channel of a trigger was deleted.
 * The loss of any other right is noticed when the task uses it.
 */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import { hintCommandRuns, hintMessages, hintPublications } from '#queues/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { listPaused, listWithoutChannel, listWithoutGrantor, pauseFor, resumeTask } from '../store/pauses.ts'
import type { PausedTask } from '../store/pauses.ts'
import { writeRefusals } from '../store/refusals.ts'
import { needsOf, requireRights } from '../tasks/grantor.ts'
import { requireActingUser } from './acting-user.ts'

/** Paused tasks per round; the next round continues after them. */
const MAX_TASKS = 100

export type RightsWatchDeps = {
  database: Database
  bus: Bus
  access: Pick<TaskAccess, 'findUser' | 'requireChannel' | 'requireCommands'>
  logger: Logger
  intervalMs: number
}

export function startRightsWatch({ database, bus, access, logger, intervalMs }: RightsWatchDeps): {
  stop(): Promise<void>
} {
  const { db } = database
  let afterKey = 0

  async function check(task: PausedTask): Promise<void> {
    try {
      const { user, domainId } = await requireActingUser(access, { userKey: task.grantorKey, domainId: task.domainId })
      await requireRights({ access, db }, user, domainId, needsOf(task))
      if (!(await resumeTask(database, task.key, user.key))) return
      hintMessages(bus)
      hintPublications(bus)
      hintCommandRuns(bus)
    } catch (error) {
      if (kindOf(error) !== 'forbidden') throw error
    }
  }

  const rounds = startRounds(async () => {
    try {
      const tasks = await listPaused(db, afterKey, MAX_TASKS)
      afterKey = tasks.length === MAX_TASKS ? (tasks.at(-1)?.key ?? 0) : 0
      for (const task of tasks) await check(task)
      for (const taskKey of await listWithoutGrantor(db, MAX_TASKS))
        await pauseFor(database, { taskKey, grantorKey: null, reason: 'the user of the task was deleted or disabled' })
      const ofDeletedChannels = await listWithoutChannel(db, MAX_TASKS)
      await writeRefusals(
        database,
        ofDeletedChannels.map(({ taskKey, channelId }) => ({
          taskKey,
          source: 'message',
          reason: `the channel ${channelId} was deleted`,
          count: 1,
          needsAction: true,
        })),
      )
      return { pauseMs: intervalMs, isWakeable: false }
    } catch (error) {
      logger.warn({ err: error }, 'failed to check the rights of paused tasks; retrying')
      return { pauseMs: intervalMs, isWakeable: false }
    }
  })
  return { stop: () => rounds.stop() }
}
