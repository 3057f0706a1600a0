/** Connects the bus that the settings choose. The Redis client is loaded on demand, because loading takes 0.1 s. */
import type { Logger } from '../logging/index.ts'
import type { Bus, HintPeers } from './bus.ts'
import { createLocalBus } from './local.ts'
import type { StreamWriter } from './streams.ts'

/** Redis reaches the processes of every machine, so `peers` are used only without it. */
export async function connectBus(redisUrl: string | undefined, logger: Logger, peers?: HintPeers): Promise<Bus> {
  if (redisUrl === undefined) return createLocalBus(peers)
  const { createRedisBus } = await import('./redis.ts')
  return await createRedisBus({ url: redisUrl, logger })
}

/** A writer of Redis streams. The Redis client is loaded on demand here too. */
export async function connectStreamWriter(options: {
  url: string
  maxLength: number
  logger: Logger
}): Promise<StreamWriter> {
  const { createStreamWriter } = await import('./streams.ts')
  return createStreamWriter(options)
}
