/** Stops a task and resolves when every run has ended. */
import type { ManagerTiming } from '../model/timing.ts'
import { AwaitedEnds, type RunEndings } from './endings.ts'
import type { TaskStop } from './stop-runs.ts'
import type { RunWriter } from './writer.ts'

export type StopDeps = { writer: Pick<RunWriter, 'stop' | 'forceStop'>; endings: RunEndings; timing: ManagerTiming }

/** Ends all active runs of the task: confirmed by their worker, or forced at the deadline. */
export async function stopTaskRuns({ writer, endings, timing }: StopDeps, stop: TaskStop): Promise<void> {
  const held = await writer.stop(stop)
  const awaited = new AwaitedEnds(endings)
  for (const key of held) awaited.add(key)
  const ends = await awaited.within(timing.stopDeadlineMs)
  const silent = held.filter((key) => !ends.has(key))
  if (silent.length > 0) await writer.forceStop(silent)
}
