/** The right of a task to read the channel of a message that starts its run. */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { whyUnusable } from '#queues/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { pauseForLack, requireActingUser } from './acting-user.ts'

type Reader = { taskKey: number; userKey: number | null; domainId: string | null }

/**
 * The rights of the tasks of one step, so that thousands of tasks of a user ask once for their channel. Each step begins with new ones: a
 * right that was withdrawn is missing from the next step on.
 */
export class ReadingRights {
  readonly #deps: { database: Database; access: TaskAccess }
  readonly #asked = new Map<string, Promise<void>>()

  constructor(deps: { database: Database; access: TaskAccess }) {
    this.#deps = deps
  }

  /** Throws `forbidden` if the user of the task cannot read the channel. */
  async require({ userKey, domainId }: Reader, channelId: string): Promise<void> {
    const key = `${userKey} ${domainId} ${channelId}`
    await this.#asked.getOrInsertComputed(key, () => this.#ask({ userKey, domainId }, channelId))
  }

  async #ask(task: Pick<Reader, 'userKey' | 'domainId'>, channelId: string): Promise<void> {
    const { access } = this.#deps
    const { user, domainId } = await requireActingUser(access, task)
    await access.requireChannel(user, 'subscribe', domainId, channelId)
  }

  /**
   * Why nobody can read the channel, as a sentence; undefined: the task can. Throws `Paused` if the grantor of the task has lost the right, and
   * `unavailable` if it has another grantor by now.
   */
  async whyUnreadable(task: Reader, channelId: string): Promise<string | undefined> {
    try {
      await this.require(task, channelId)
      return undefined
    } catch (error) {
      if (kindOf(error) !== 'forbidden' || task.domainId === null) throw error
      const { database } = this.#deps
      const fault = await whyUnusable(database.db, task.domainId, channelId)
      if (fault !== undefined) return fault
      return await pauseForLack(database, task, error as ServiceError)
    }
  }
}
