/**
 * Every way of starting a run comes through here. A reference is resolved to a digest before the start is handed to the
 * writer, which it enters once; whether the run may be started at all is decided there, in the transaction that inserts it.
 */
import type { Database } from '#core/database/index.ts'
import type { ResolvedImage, StartRequest, StartedRun } from '../model/start.ts'
import { findImageUrl } from '../store/tasks.ts'
import type { KnownTasks } from '../writer/known-tasks.ts'
import type { RunWriter } from '../writer/writer.ts'

export type StarterDeps = {
  database: Database
  writer: Pick<RunWriter, 'start'>
  knownTasks: Pick<KnownTasks, 'imageUrlOf'>
  /** Asks the proxy for the digest behind a reference. */
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
}

export type Submission = Omit<StartRequest, 'taskId' | 'image'>

export class RunStarter {
  readonly #deps: StarterDeps

  constructor(deps: StarterDeps) {
    this.#deps = deps
  }

  /** Throws what the start is refused with. */
  async start(task: { id: string; domainId: string | null }, submission: Submission): Promise<StartedRun> {
    const image = await this.#imageOf(task)
    return await this.#deps.writer.start({ ...submission, taskId: task.id, image })
  }

  /**
   * Starts of one task, each with its outcome or its refusal, in order. They reach the writer together and are committed
   * together where a batch has room. Each is told to `onStarted` right after its commit, before anything can be heard of it.
   */
  async startMany(
    task: { id: string; domainId: string | null },
    submissions: readonly Submission[],
    onStarted: (started: StartedRun) => void,
  ): Promise<(StartedRun | Error)[]> {
    const image = await this.#imageOf(task)
    const starting = submissions.map(async (submission) => {
      const started = await this.#deps.writer.start({ ...submission, taskId: task.id, image })
      onStarted(started)
      return started
    })
    const settled = await Promise.allSettled(starting)
    return settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error)))
  }

  /** Why there is no digest is told by the writer, unless the start is refused for something else. */
  async #imageOf({ id, domainId }: { id: string; domainId: string | null }): Promise<StartRequest['image']> {
    const { database, knownTasks, resolveImage } = this.#deps
    // A remembered upload is compared with the row when the run is inserted; a reference may have been changed elsewhere.
    if (knownTasks.imageUrlOf(id) === null) return undefined
    const reference = await findImageUrl(database.db, id)
    if (reference === undefined || reference === null) return undefined
    return await resolveImage(reference, domainId).catch((error: unknown) => error as Error)
  }
}
