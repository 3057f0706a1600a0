export { STOP_DEADLINE_MS, UsageError, createLifecycle, runUntilStopped, errorMessageOf } from './lifecycle.ts'
export type { Lifecycle, StartedPart } from './lifecycle.ts'
export { runProgram } from './program.ts'
export type { Program } from './program.ts'
