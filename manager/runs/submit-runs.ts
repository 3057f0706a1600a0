/** Hands starts to the writer: what every way of starting a run has in common. */
import { ServiceError } from '#core/errors/index.ts'
import type { ResolvedImage, StartOutcome, StartRequest } from './start-runs.ts'
import type { RunWriter } from './writer.ts'

export type SubmitDeps = {
  writer: Pick<RunWriter, 'start'>
  /** Asks the proxy for the digest behind a reference. */
  resolveImage: (reference: string, domainId: string | null) => Promise<ResolvedImage>
}

export type Submission = Omit<StartRequest, 'image'>
export type Submitted = Extract<StartOutcome, { runId: string }>

/** The reference may be edited between two rounds; a third one would be a coincidence. */
const MAX_ROUNDS = 3

/**
 * Starts of one task, each with its outcome or its refusal, in order. They reach the writer together and are committed
 * together where a batch has room; a reference to an image is resolved once for all of them. Each is told to `onStarted`
 * right after its commit, before anything can be heard of it.
 */
export async function submitRuns(
  { writer, resolveImage }: SubmitDeps,
  submissions: readonly Submission[],
  domainId: string | null,
  onStarted: (submitted: Submitted) => void = () => undefined,
): Promise<(Submitted | Error)[]> {
  const outcomes: (Submitted | Error)[] = []
  let image: ResolvedImage | undefined
  let open = submissions.map((submission, index) => ({ submission, index }))
  for (let round = 0; round < MAX_ROUNDS && open.length > 0; round++) {
    const starting = open.map(async ({ submission }) => {
      const outcome = await writer.start({ ...submission, image })
      if ('runId' in outcome) onStarted(outcome)
      return outcome
    })
    const settled = await Promise.allSettled(starting)
    let reference: string | undefined
    open = open.filter(({ index }, at) => {
      const outcome = settled[at]
      if (outcome?.status !== 'fulfilled') outcomes[index] = outcome?.reason as Error
      else if ('resolveImage' in outcome.value) reference = outcome.value.resolveImage
      else outcomes[index] = outcome.value
      return outcomes[index] === undefined
    })
    if (reference !== undefined) image = await resolveImage(reference, domainId)
  }
  for (const { index } of open) {
    outcomes[index] = new ServiceError('unavailable', 'the task is being edited, try again', { retryAfterSeconds: 1 })
  }
  return outcomes
}
