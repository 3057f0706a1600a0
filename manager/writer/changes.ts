/** The changes that the writer accepts. */
import type { Actor } from '#api/identity/index.ts'
import type { RunEnding, RunIdentity } from '../model/run.ts'
import type { StartRequest } from '../model/start.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { DelayedRun } from './delayed-runs.ts'
import type { HelloClaims } from './reconcile-runs.ts'
import type { WorkerRemoval } from './remove-worker.ts'
import type { TaskStop } from './stop-runs.ts'
import type { FinishedRun } from './unrecorded-runs.ts'

/** All changes of runs. */
export type Change =
  | { kind: 'start'; request: StartRequest }
  | { kind: 'running'; session: WorkerSession; runs: RunIdentity[] }
  | { kind: 'ends'; session: WorkerSession; ends: { run: RunIdentity; ending: RunEnding }[] }
  | { kind: 'finished'; session: WorkerSession; finished: FinishedRun[] }
  | { kind: 'reject'; session: WorkerSession; run: RunIdentity; reason: string }
  | { kind: 'hello'; session: WorkerSession; claims: HelloClaims; leaseMs: number }
  | { kind: 'lose'; workerKey: number; epoch: number }
  | { kind: 'remove_worker'; workerKey: number; removal: WorkerRemoval; recordedFor: Actor }
  | { kind: 'stop'; stop: TaskStop }
  | { kind: 'force'; keys: number[] }
  | { kind: 'sweep' }
  | { kind: 'due'; runs: DelayedRun[] }
  | { kind: 'claim' }

export type ChangeOf<K extends Change['kind']> = Extract<Change, { kind: K }>
