/** Records runs that workers have started by themselves, and what follows from their ends. */
import type { Database } from '#core/database/index.ts'
import type { RunEnding, RunIdentity } from '../model/run.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { recordOfflineRuns } from '../store/offline-tasks.ts'
import type { OfflineEnd } from '../store/offline-tasks.ts'
import { countRun } from './counted-quota.ts'
import type { CountedQuotas } from './counted-quota.ts'
import type { RunEndings } from './endings.ts'

type Ended = { run: RunIdentity; ending: RunEnding; end: OfflineEnd }

/** Returns the ids of the runs that are recorded, now or earlier. The others are stale: their task was changed since. */
export type RecordOffline = (session: WorkerSession, ended: readonly Ended[]) => Promise<ReadonlySet<string>>

export type OfflineRecorderDeps = {
  database: Database
  counted: CountedQuotas
  endings: Pick<RunEndings, 'notify'>
  /** Called after the commit, before anyone is notified. */
  onTasksChanged: (keys: Iterable<number>) => void
}

export function createOfflineRecorder({
  database,
  counted,
  endings,
  onTasksChanged,
}: OfflineRecorderDeps): RecordOffline {
  return async (session, ended) => {
    const ends = ended.map(({ end }) => end)
    const { recorded, added } = await recordOfflineRuns(database, session.key, ends)
    onTasksChanged(new Set(added.map(({ taskKey }) => taskKey)))
    const endingOf = new Map(ended.map(({ run, ending }) => [run.id, ending]))
    for (const { id, key, domainId } of added) {
      const ending = endingOf.get(id)
      if (ending === undefined) continue
      countRun(counted, domainId, ending)
      endings.notify({ ...ending, runKey: key, runId: id, workerId: session.id })
    }
    return recorded
  }
}
