/** The id of a run that a worker starts by itself, which worker and manager compute alike. */
import { createHash } from 'node:crypto'

/**
 * A UUID of version 8: the same however often the tick is started, so that it is recorded once, and another one after a change of the task,
 * which has another fence.
 */
export function idOfTick(taskId: string, fence: bigint, tickMs: number): string {
  const bytes = createHash('sha256').update(`${taskId} ${fence} ${tickMs}`).digest().subarray(0, 16)
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}
