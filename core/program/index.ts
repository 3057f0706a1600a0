export { STOP_DEADLINE_MS, UsageError, createLifecycle, runUntilStopped, sentenceOf } from './lifecycle.ts'
export type { Lifecycle, Started } from './lifecycle.ts'
export { runProgram } from './program.ts'
export type { Program } from './program.ts'
