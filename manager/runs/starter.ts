/**
 * The single entry for starting runs. A reference is resolved to a digest before the start is passed to the writer; the
 * transaction that inserts the run decides whether it can start.
 */
import { Slots } from '#core/slots.ts'
import { withSpan } from '#core/tracing/index.ts'
import { UnresolvedImage, type ResolvedImage, type StartRequest, type StartedRun } from '../model/start.ts'
import type { KnownTasks } from '../writer/known-tasks.ts'
import type { RunWriter } from '../writer/writer.ts'

/** Starts at the writer, in total and of one domain; the others wait, because the writer takes starts in the order of their arrival. */
const MAX_AT_WRITER = 5_000
const MAX_AT_WRITER_PER_DOMAIN = 100
/** Calls of a domain that wait for the writer, each with its next start; further ones are refused. */
const MAX_WAITING_CALLS = 10_000
/** Longest wait of a start, in milliseconds. */
const MAX_WAIT_MS = 60_000
/** Attempts at a start whose task gets another reference meanwhile. */
const MAX_ATTEMPTS = 3

export type StarterDeps = {
  writer: Pick<RunWriter, 'start'>
  knownTasks: Pick<KnownTasks, 'imageUrlOf'>
  /** Resolves a reference to a digest through the proxy. */
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
}

export type Submission = Omit<StartRequest, 'taskId' | 'image'>

/** A task of which runs are started. */
type StartedTask = { id: string; domainId: string | null }

/** Resolves each reference once; a failure is thrown by the writer, unless the start fails for another reason. */
type Images = (reference: string) => Promise<ResolvedImage | Error>

export class RunStarter {
  readonly #deps: StarterDeps
  readonly #atWriter = new Slots({
    what: 'starts of runs',
    max: MAX_AT_WRITER,
    share: MAX_AT_WRITER_PER_DOMAIN,
    waitMs: MAX_WAIT_MS,
    maxWaiting: MAX_WAITING_CALLS,
  })

  constructor(deps: StarterDeps) {
    this.#deps = deps
  }

  /** Throws the error of the start. */
  async start(task: StartedTask, submission: Submission): Promise<StartedRun> {
    return await this.#write(task, submission, this.#imagesOf(task.domainId))
  }

  /**
   * Starts runs of one task, each with its outcome or its error, in order. A domain has a bounded number of starts at the writer, so
   * that a start of another domain waits for these alone; the calls of a domain take turns. `onStarted` is called right after the
   * commit of each, before its run can report anything.
   */
  async startMany(
    task: StartedTask,
    submissions: readonly Submission[],
    onStarted: (started: StartedRun) => void,
  ): Promise<(StartedRun | Error)[]> {
    const images = this.#imagesOf(task.domainId)
    const start = async (submission: Submission, leaveWriter: () => void) => {
      const started = await this.#write(task, submission, images, leaveWriter)
      onStarted(started)
      return started
    }
    const reference = this.#deps.knownTasks.imageUrlOf(task.id)
    if (typeof reference === 'string') await images(reference)
    const outcomes: Promise<StartedRun | Error>[] = []
    for (const submission of submissions) {
      try {
        const leaveWriter = await this.#atWriter.take(task.domainId)
        outcomes.push(start(submission, leaveWriter).catch((error: unknown) => error as Error))
      } catch (error) {
        // Nothing of this domain was taken for a minute: the starts that are left would wait as long.
        const refused = Promise.resolve(error as Error)
        while (outcomes.length < submissions.length) outcomes.push(refused)
        break
      }
    }
    return await Promise.all(outcomes)
  }

  /** Resolves when the start is committed. The run keeps the place of the span in its trace. No reference is resolved at the writer. */
  async #write(
    { id: taskId, domainId }: StartedTask,
    submission: Submission,
    images: Images,
    leaveWriter?: () => void,
  ): Promise<StartedRun> {
    const attributes = { 'skein.task.id': taskId, 'skein.run.id': submission.runId }
    const options = { kind: 'producer', parent: submission.traceparent, attributes } as const
    return await withSpan('start run', options, async ({ traceparent }) => {
      let reference = this.#deps.knownTasks.imageUrlOf(taskId)
      let leave = leaveWriter
      for (let attempt = 1; ; attempt++) {
        const image = typeof reference === 'string' ? await images(reference) : undefined
        leave ??= await this.#atWriter.take(domainId)
        try {
          return await this.#deps.writer.start({ ...submission, taskId, image, traceparent }, leave)
        } catch (error) {
          // The task is not cached, or its reference was changed.
          if (!(error instanceof UnresolvedImage) || attempt === MAX_ATTEMPTS) throw error
          reference = error.reference
        } finally {
          leave()
          leave = undefined
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
