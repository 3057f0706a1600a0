/** The rate limits that processes share. The Redis client is loaded only when Redis is configured. */
import type { Logger } from '../logging/index.ts'
import type { SharedLimits } from './shared-limits.ts'

/** Redis counts for every machine, so `ofMachine`, the limits of this machine's processes, are used only without it. */
export async function connectSharedLimits(
  redisUrl: string | undefined,
  logger: Logger,
  ofMachine?: SharedLimits,
): Promise<SharedLimits | undefined> {
  if (redisUrl === undefined) return ofMachine
  const { createSharedLimits } = await import('./redis-buckets.ts')
  return createSharedLimits({ url: redisUrl, logger })
}
