/** Dead letters of tasks: listed, tried again, discarded. */
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { requireSelection } from '#core/changelog/index.ts'
import type { LetterSelection } from '#core/changelog/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { discardLetters, hintMessages, hintPublications, listLetters, retryLetters } from '#queues/index.ts'
import type { LetterSource, StoredLetter } from '#queues/index.ts'
import type { TaskAccess, TaskCaller } from '../access/access.ts'
import type { TasksService } from '../tasks/service.ts'

export type LettersDeps = { database: Database; bus: Bus; access: TaskAccess; tasks: TasksService }

/** `content` only for a caller who may read the channel. */
export type ShownLetter = Omit<StoredLetter, 'content'> & { content: StoredLetter['content'] | undefined }
export type LetterPage = { total: number; letters: ShownLetter[]; next: PageEnd }

export class LettersService {
  readonly #database: Database
  readonly #bus: Bus
  readonly #access: TaskAccess
  readonly #tasks: TasksService

  constructor({ database, bus, access, tasks }: LettersDeps) {
    this.#database = database
    this.#bus = bus
    this.#access = access
    this.#tasks = tasks
  }

  /** The newest first. Throws `not_found`. */
  async list(
    caller: TaskCaller,
    taskId: string,
    { source, ...range }: PageRange & { source?: LetterSource | undefined },
  ): Promise<LetterPage> {
    const task = await this.#tasks.require(caller, taskId, 'task_read')
    const { total, letters: rows, next } = await listLetters(this.#database.db, task.key, source, range)
    const shown = await this.#readable(caller, task.domainId, new Set(rows.map((row) => row.channel_id)))
    const letters = rows.map((row) => ({ ...row, content: shown.has(row.channel_id) ? row.content : undefined }))
    return { total, letters, next }
  }

  /** Tries them again; returns their number. Throws `not_found`, `forbidden` and `malformed`. */
  async retry(caller: TaskCaller, taskId: string, selection: LetterSelection): Promise<number> {
    const task = await this.#tasks.require(caller, taskId, 'task_start')
    requireSelection(selection)
    const count = await this.#database.transaction((tx) => retryLetters(tx, task.key, selection))
    hintMessages(this.#bus)
    hintPublications(this.#bus)
    return count
  }

  /** Removes them; returns their number. Throws `not_found`, `forbidden` and `malformed`. */
  async discard(caller: TaskCaller, taskId: string, selection: LetterSelection): Promise<number> {
    const task = await this.#tasks.require(caller, taskId, 'task_update')
    requireSelection(selection)
    return await this.#database.transaction((tx) => discardLetters(tx, task.key, selection))
  }

  /** Whether the caller may read each of these channels of the domain. */
  async #readable(
    caller: TaskCaller,
    domainId: string | null,
    channelIds: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    if (caller === undefined || domainId === null) return new Set()
    const found = await Promise.all(
      [...channelIds].map(async (channelId) => {
        try {
          await this.#access.requireChannel(caller, 'subscribe', domainId, channelId)
          return [channelId]
        } catch (error) {
          if (error instanceof ServiceError && error.kind === 'forbidden') return []
          throw error
        }
      }),
    )
    return new Set(found.flat())
  }
}
