/**
 * The single entry for starting runs. A reference is resolved to a digest before the start is passed to the writer; the
 * transaction that inserts the run decides whether it can start.
 */
import { Slots } from '#core/slots.ts'
import { withSpan } from '#core/tracing/index.ts'
import { UnresolvedImage, type ResolvedImage, type StartRequest, type StartedRun } from '../model/start.ts'
import type { KnownTasks } from '../writer/known-tasks.ts'
import type { RunWriter } from '../writer/writer.ts'

/** Runs of one call that reach the writer together. */
const STARTED_TOGETHER = 50
/** Such groups of a domain at the writer; the others wait, because the writer takes starts in the order of their arrival. */
const MAX_GROUPS_PER_DOMAIN = 2
const MAX_GROUPS = 100
/** Groups of a domain that wait for the writer; further ones are refused. */
const MAX_WAITING_GROUPS = 10_000
/** Longest wait of a group, in milliseconds. */
const MAX_GROUP_WAIT_MS = 60_000
/** Attempts at a start whose task gets another reference meanwhile. */
const MAX_ATTEMPTS = 3

export type StarterDeps = {
  writer: Pick<RunWriter, 'start'>
  knownTasks: Pick<KnownTasks, 'imageUrlOf'>
  /** Resolves a reference to a digest through the proxy. */
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
}

export type Submission = Omit<StartRequest, 'taskId' | 'image'>

/** Resolves each reference once; a failure is thrown by the writer, unless the start fails for another reason. */
type Images = (reference: string) => Promise<ResolvedImage | Error>

export class RunStarter {
  readonly #deps: StarterDeps
  readonly #groups = new Slots({
    what: `groups of ${STARTED_TOGETHER} starts`,
    max: MAX_GROUPS,
    share: MAX_GROUPS_PER_DOMAIN,
    waitMs: MAX_GROUP_WAIT_MS,
    maxWaiting: MAX_WAITING_GROUPS,
  })

  constructor(deps: StarterDeps) {
    this.#deps = deps
  }

  /** Throws the error of the start. */
  async start(task: { id: string; domainId: string | null }, submission: Submission): Promise<StartedRun> {
    return await this.#write(task.id, submission, this.#imagesOf(task.domainId))
  }

  /**
   * Starts runs of one task, each with its outcome or its error, in order. They reach the writer in groups, a few of a domain at a time,
   * so that a start of another domain waits for these alone. `onStarted` is called right after the commit of each, before its run
   * can report anything.
   */
  async startMany(
    task: { id: string; domainId: string | null },
    submissions: readonly Submission[],
    onStarted: (started: StartedRun) => void,
  ): Promise<(StartedRun | Error)[]> {
    const images = this.#imagesOf(task.domainId)
    const start = async (submission: Submission) => {
      const started = await this.#write(task.id, submission, images)
      onStarted(started)
      return started
    }
    const groups = Array.from({ length: Math.ceil(submissions.length / STARTED_TOGETHER) }, async (_, at) => {
      const group = submissions.slice(at * STARTED_TOGETHER, (at + 1) * STARTED_TOGETHER)
      try {
        return await this.#groups.run(task.domainId, () => Promise.allSettled(group.map(start)))
      } catch (error) {
        return group.map((): PromiseRejectedResult => ({ status: 'rejected', reason: error }))
      }
    })
    const settled = (await Promise.all(groups)).flat()
    return settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error)))
  }

  /** Until the start is committed. The run keeps the place of the span in its trace. */
  async #write(taskId: string, submission: Submission, images: Images): Promise<StartedRun> {
    const attributes = { 'skein.task.id': taskId, 'skein.run.id': submission.runId }
    const options = { kind: 'producer', parent: submission.traceparent, attributes } as const
    return await withSpan('start run', options, async ({ traceparent }) => {
      let reference = this.#deps.knownTasks.imageUrlOf(taskId)
      for (let attempt = 1; ; attempt++) {
        const image = typeof reference === 'string' ? await images(reference) : undefined
        try {
          return await this.#deps.writer.start({ ...submission, taskId, image, traceparent })
        } catch (error) {
          // The task is not cached, or its reference was changed.
          if (!(error instanceof UnresolvedImage) || attempt === MAX_ATTEMPTS) throw error
          reference = error.reference
        }
      }
    })
  }

  #imagesOf(domainId: string | null): Images {
    const images = new Map<string, Promise<ResolvedImage | Error>>()
    return (reference) => {
      const image =
        images.get(reference) ?? this.#deps.resolveImage(reference, domainId).catch((error: unknown) => error as Error)
      images.set(reference, image)
      return image
    }
  }
}
