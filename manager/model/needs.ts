/** The requirements of a run for a worker, as one value with a hash: runs with the same requirements share a queue. */
import { createHash } from 'node:crypto'
import { HTTP_RUNTIME, STATE_RUNTIME, usesState } from '#guests/wasm/index.ts'

/** The kind of a module, `state` and `http` in this order: every worker that offers one of them offers all before it. */
export function requiredRuntime(
  module: { runtime: string; imports: readonly { module: string; name: string }[] } | undefined,
  http: unknown,
): string | null {
  if (http !== null) return HTTP_RUNTIME
  if (module === undefined) return null
  // A worker of an earlier version does not have the state of tasks.
  return usesState(module.imports) ? STATE_RUNTIME : module.runtime
}

export type RunNeeds = {
  /** The domain of the task; platform workers accept every domain, a domain's workers only their own. */
  domainId: string | null
  /** The only worker that may run it. */
  workerId: string | null
  /** Labels that the worker must have. */
  labels: Readonly<Record<string, string>>
  /** What the worker must offer among its runtimes; null if the module was not read yet. */
  runtime: string | null
  /** Memory that the machine must have, a power of two. */
  memoryBytes: number
}

const SMALLEST_MEMORY_CLASS_BYTES = 64 * 1024 * 1024

/** The memory limit rounded up to a power of two, so that limits a few bytes apart share one queue. */
export function memoryClassBytes(memoryLimitBytes: number): number {
  let size = SMALLEST_MEMORY_CLASS_BYTES
  while (size < memoryLimitBytes) size *= 2
  return size
}

/** Equal needs have equal hashes, independent of the order of the labels. */
export function hashNeeds(needs: RunNeeds): string {
  const labels = Object.entries(needs.labels).toSorted(([left], [right]) => (left < right ? -1 : 1))
  const canonical = JSON.stringify([needs.domainId, needs.workerId, labels, needs.runtime, needs.memoryBytes])
  return createHash('sha256').update(canonical).digest('base64url').slice(0, 22)
}
