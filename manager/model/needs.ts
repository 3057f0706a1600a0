/** The requirements of a run for a worker, as one value with a hash: runs with the same requirements share a queue. */
import { createHash } from 'node:crypto'

export type RunNeeds = {
  /** The domain of the task; platform workers accept every domain, a domain's workers only their own. */
  domainId: string | null
  /** The only worker that may run it. */
  workerId: string | null
  /** Labels that the worker must have. */
  labels: Readonly<Record<string, string>>
  /** Runtime of the module; null if the module was not read yet. */
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
