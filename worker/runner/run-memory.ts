/**
 * The memory that a worker with a limit counts (SKEIN_WORKER_MEMORY): what its processes usually take, and what their runs may take. It is
 * counted before a run begins; the memory that a runner really takes is watched by `memory-budget.ts`.
 */
import { RUNNER_BYTES } from '../identity/memory.ts'
import { MEMORY_PER_MODULE_BYTE, THREAD_BYTES } from './memory-budget.ts'
import type { PendingRun } from './run-request.ts'
import type { GuestThread, Runner } from './runner.ts'

/** What the runners take with the runs that they hold. */
export function countedBytes(runners: readonly Runner[]): number {
  let bytes = 0
  for (const { threads, modules } of runners) {
    bytes += RUNNER_BYTES + THREAD_BYTES * Math.max(threads.length - 1, 0)
    for (const thread of threads) bytes += largestRunOf(thread)
    for (const module of modules.values()) bytes += MEMORY_PER_MODULE_BYTE * module.bytes
  }
  return bytes
}

/** The runs of a thread execute one after the other. */
function largestRunOf(thread: GuestThread): number {
  return thread.runs.reduce((most, { request }) => Math.max(most, request.call.memoryLimitBytes), 0)
}

/** What a run adds: its limit, its module unless it is loaded, and a runner unless there is one for its domain. */
export function addedBytes({ request, moduleKey }: PendingRun, runners: readonly Runner[]): number {
  const ofDomain = runners.filter(({ domain, state }) => domain === request.domain && state !== 'dying')
  const isLoaded = ofDomain.some(({ modules }) => modules.has(moduleKey))
  const hasRunner =
    ofDomain.length > 0 || runners.some(({ domain, state }) => domain === undefined && state !== 'dying')
  return (
    request.call.memoryLimitBytes +
    (isLoaded ? 0 : MEMORY_PER_MODULE_BYTE * request.moduleBytes) +
    (hasRunner ? 0 : RUNNER_BYTES)
  )
}
