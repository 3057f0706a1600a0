/** Options of every connection to Redis: a validated address and deadlines. */
import { ServiceError } from '../errors/index.ts'
import { lookUpName } from '../name-lookup.ts'

const CONNECT_DEADLINE_MS = 5000
/** The maximum delay before a reconnection. */
const MAX_RECONNECT_DELAY_MS = 2000

const PING_INTERVAL_MS = 5000
/** A connection that receives nothing for this long, pings included, is broken. */
const SOCKET_SILENCE_MS = 15_000

/** Options of a connection that detects an unreachable Redis. They are not for a subscriber, whose connection may be silent. */
export function pingedRedisOptions(url: string) {
  const { socket } = redisOptions(url)
  return { url, pingInterval: PING_INTERVAL_MS, socket: { ...socket, socketTimeout: SOCKET_SILENCE_MS } }
}

/** Throws `malformed`. The message does not repeat the address, which may contain a password. */
export function redisOptions(url: string) {
  if (!URL.canParse(url) || !/^rediss?:$/.test(new URL(url).protocol))
    throw new ServiceError('malformed', 'SKEIN_REDIS_URL must be an address such as redis://user:password@host:6379')
  return {
    url,
    socket: {
      connectTimeout: CONNECT_DEADLINE_MS,
      lookup: lookUpName,
      reconnectStrategy: (retries: number) => Math.min(50 * 2 ** Math.min(retries, 6), MAX_RECONNECT_DELAY_MS),
    },
  }
}
