/**
 * The single entry for starting runs. A reference is resolved to a digest before the start is passed to the writer, which
 * receives it once; the transaction that inserts the run decides whether it can start.
 */
import type { Database } from '#core/database/index.ts'
import { withSpan } from '#core/tracing/index.ts'
import type { ResolvedImage, StartRequest, StartedRun } from '../model/start.ts'
import { findImageUrl } from '../store/tasks.ts'
import type { KnownTasks } from '../writer/known-tasks.ts'
import type { RunWriter } from '../writer/writer.ts'

export type StarterDeps = {
  database: Database
  writer: Pick<RunWriter, 'start'>
  knownTasks: Pick<KnownTasks, 'imageUrlOf'>
  /** Resolves a reference to a digest through the proxy. */
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
}

export type Submission = Omit<StartRequest, 'taskId' | 'image'>

export class RunStarter {
  readonly #deps: StarterDeps

  constructor(deps: StarterDeps) {
    this.#deps = deps
  }

  /** Throws the error of the start. */
  async start(task: { id: string; domainId: string | null }, submission: Submission): Promise<StartedRun> {
    const image = await this.#imageOf(task)
    return await this.#write(task.id, submission, image)
  }

  /**
   * Starts runs of one task, each with its outcome or its error, in order. They reach the writer together and are
   * committed together if a batch has room. `onStarted` is called right after the commit of each, before its run can
   * report anything.
   */
  async startMany(
    task: { id: string; domainId: string | null },
    submissions: readonly Submission[],
    onStarted: (started: StartedRun) => void,
  ): Promise<(StartedRun | Error)[]> {
    const image = await this.#imageOf(task)
    const starting = submissions.map(async (submission) => {
      const started = await this.#write(task.id, submission, image)
      onStarted(started)
      return started
    })
    const settled = await Promise.allSettled(starting)
    return settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error)))
  }

  /** Until the start is committed. The run keeps the place of the span in its trace. */
  async #write(taskId: string, submission: Submission, image: StartRequest['image']): Promise<StartedRun> {
    const attributes = { 'skein.task.id': taskId, 'skein.run.id': submission.runId }
    return await withSpan('start run', { kind: 'producer', parent: submission.traceparent, attributes }, (span) =>
      this.#deps.writer.start({ ...submission, taskId, image, traceparent: span.traceparent }),
    )
  }

  /** A failure of the resolution is thrown by the writer, unless the start fails for another reason. */
  async #imageOf({ id, domainId }: { id: string; domainId: string | null }): Promise<StartRequest['image']> {
    const { database, knownTasks, resolveImage } = this.#deps
    // A cached upload is compared with the row when the run is inserted; another manager can have changed the reference.
    if (knownTasks.imageUrlOf(id) === null) return undefined
    const reference = await findImageUrl(database.db, id)
    if (reference === undefined || reference === null) return undefined
    return await resolveImage(reference, domainId).catch((error: unknown) => error as Error)
  }
}
