/**
 * The end of a run that a message caused, in the transaction of its result: what its guest has published goes out, and the messages that were
 * kept for it are removed, or run again.
 */
import { TASK_STATE } from '#proto/index.ts'
import { releaseHeld, settleMessages } from '#queues/index.ts'
import type { Endings } from '#queues/index.ts'
import { holdsPublications, type FailureReason, type RunHandle } from '../model/run.ts'
import type { RunBatch } from './batch.ts'

/** Failures that can be due to one message of several. */
const OF_ONE_MESSAGE: readonly FailureReason[] = ['timeout', 'oom', 'trap', 'guest_error', 'worker_lost']

export const ENDINGS: Endings = {
  completed: TASK_STATE.completed,
  failed: TASK_STATE.failed,
  open: [TASK_STATE.scheduled, TASK_STATE.running, TASK_STATE.unknown],
  divided: OF_ONE_MESSAGE,
}

export async function settleTriggered(batch: RunBatch, ended: readonly { run: RunHandle }[]): Promise<void> {
  const publishing = ended.flatMap(({ run }) => (mayHavePublished(run) ? [run.id] : []))
  const claiming = ended.flatMap(({ run }) => (run.spec.claims === undefined ? [] : [run.id]))
  const [moved, refused] = await Promise.all([
    publishing.length === 0 ? 0 : releaseHeld(batch.db, publishing, ENDINGS),
    claiming.length === 0 ? [] : settleMessages(batch.db, claiming, ENDINGS),
  ])
  if (moved > 0) batch.afterCommit(() => batch.context.onPublished?.())
  if (claiming.length > 0) batch.afterCommit(() => batch.context.onSettled?.(refused))
}

const mayHavePublished = ({ spec }: RunHandle) =>
  holdsPublications(spec) && spec.grants?.some(({ kind }) => kind === 'publish') === true
