/** The limits that the nodes of an installation share, where they share a Redis. Its client is loaded only then. */
import type { Logger } from '../logging/index.ts'
import type { SharedLimits } from './redis-buckets.ts'

export async function connectSharedLimits(
  redisUrl: string | undefined,
  logger: Logger,
): Promise<SharedLimits | undefined> {
  if (redisUrl === undefined) return undefined
  const { createSharedLimits } = await import('./redis-buckets.ts')
  return createSharedLimits({ url: redisUrl, logger })
}
