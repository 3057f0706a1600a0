/** What every connection to Redis has in common: an address that is one, and an end to waiting. */
import { ServiceError } from '../errors/index.ts'

const CONNECT_DEADLINE_MS = 5000
/** Reconnection waits this long at the most. */
const MAX_RECONNECT_DELAY_MS = 2000

/** Throws `malformed` without repeating the address, which may hold a password. */
export function redisOptions(url: string) {
  if (!URL.canParse(url) || !/^rediss?:$/.test(new URL(url).protocol))
    throw new ServiceError('malformed', 'SKEIN_REDIS_URL must be an address such as redis://user:password@host:6379')
  return {
    url,
    socket: {
      connectTimeout: CONNECT_DEADLINE_MS,
      reconnectStrategy: (retries: number) => Math.min(50 * 2 ** Math.min(retries, 6), MAX_RECONNECT_DELAY_MS),
    },
  }
}
