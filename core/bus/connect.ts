/** The bus that the settings ask for. The Redis client is loaded only where there is a Redis: it costs every start 0.1 s. */
import type { Logger } from '../logging/index.ts'
import type { Bus } from './bus.ts'
import { createLocalBus } from './local.ts'
import type { StreamWriter } from './streams.ts'

export async function connectBus(redisUrl: string | undefined, logger: Logger): Promise<Bus> {
  if (redisUrl === undefined) return createLocalBus()
  const { createRedisBus } = await import('./redis.ts')
  return await createRedisBus({ url: redisUrl, logger })
}

/** A writer of Redis streams; the client is loaded here too, not sooner. */
export async function connectStreamWriter(options: {
  url: string
  maxLength: number
  logger: Logger
}): Promise<StreamWriter> {
  const { createStreamWriter } = await import('./streams.ts')
  return createStreamWriter(options)
}
