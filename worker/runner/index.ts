export { createRunnerPool } from './pool.ts'
export type { RunnerPool, RunnerPoolOptions, RunnerPoolStats } from './pool.ts'
export type { RunOutcome, RunRequest } from './run-request.ts'
export { stageRunnerCode } from './launch.ts'
