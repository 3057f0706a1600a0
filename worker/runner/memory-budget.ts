/** The memory budget of a runner, and the eviction of compiled modules. */
import { heldRuns, runsUnderWay } from './runner.ts'
import type { Runner } from './runner.ts'

/** Memory besides the guests' limits: the engine, code, threads. */
export const DEFAULT_OVERHEAD_BYTES = 128 * 1024 * 1024
/** The engine keeps a module's bytes, and its compiled code takes up to three times their size. */
export const MEMORY_PER_MODULE_BYTE = 4
/** A thread of the engine with its heap, measured at 7 to 12 MB. */
export const THREAD_BYTES = 16 * 1024 * 1024
/**
 * Output is held in pieces, as text, in the result and in messages on their way, before it is collected as garbage. What a run may print by
 * default is part of the overhead.
 */
const MEMORY_PER_OUTPUT_BYTE = 16
const COMMON_OUTPUT_BYTES = 1024 * 1024
/** Compiled modules that a runner keeps. */
const MAX_LOADED_MODULES = 64
const MAX_LOADED_BYTES = 64 * 1024 * 1024

/** The limits of active runs, the loaded modules, the threads, and the overhead of the engine. */
export function memoryBudgetBytes(runner: Runner, overheadBytes: number): number {
  let allowed = overheadBytes + THREAD_BYTES * runner.threads.length
  for (const { request } of runsUnderWay(runner)) {
    const { memoryLimitBytes, maxOutputBytes } = request.call
    allowed += memoryLimitBytes + MEMORY_PER_OUTPUT_BYTE * Math.max(maxOutputBytes - COMMON_OUTPUT_BYTES, 0)
  }
  for (const module of runner.modules.values()) allowed += MEMORY_PER_MODULE_BYTE * module.bytes
  return allowed
}

/** Keys of the modules to evict for a new one of this size, least recently used first. */
export function findModulesToDrop(runner: Runner, bytes: number, maxLoadedBytes = MAX_LOADED_BYTES): string[] {
  const held = new Set(heldRuns(runner).map((run) => run.moduleKey))
  const byAge = [...runner.modules].sort(([, a], [, b]) => a.lastUsedMs - b.lastUsedMs)
  let total = byAge.reduce((sum, [, module]) => sum + module.bytes, bytes)
  const dropped: string[] = []
  for (const [moduleKey, module] of byAge) {
    if (byAge.length - dropped.length < MAX_LOADED_MODULES && total <= maxLoadedBytes) break
    if (module.state === 'loading' || held.has(moduleKey)) continue
    dropped.push(moduleKey)
    total -= module.bytes
  }
  return dropped
}
