/**
 * Token buckets in Redis, shared by all nodes, in addition to those of each process. While Redis is unavailable or slow, requests
 * do not wait, and only the buckets of the process apply.
 */
import { createClient } from 'redis'
import { redisOptions } from '../bus/index.ts'
import type { Logger } from '../logging/index.ts'
import { withDeadline } from '../time.ts'
import { digestOf } from './shared-limits.ts'
import type { NamedBucket, SharedLimits } from './shared-limits.ts'

const KEY_PREFIX = 'skein:limit:'
/** Redis answers in a fraction of a millisecond; a login does not wait longer than this. */
const ANSWER_DEADLINE_MS = 250
/** The maximum number of pending commands; above it Redis is not used. */
const MAX_QUEUED_COMMANDS = 1000

/** KEYS: buckets; ARGV: burst and refill per minute of each. Uses the clock of Redis, so that clocks of nodes may differ. */
const TAKE = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left, wait = {}, 0
for i, key in ipairs(KEYS) do
  local burst, rate = tonumber(ARGV[2 * i - 1]), ARGV[2 * i] / 60000
  local kept = redis.call('HMGET', key, 'tokens', 'at')
  local tokens = tonumber(kept[1]) or burst
  tokens = math.min(burst, tokens + math.max(0, now - (tonumber(kept[2]) or now)) * rate)
  if tokens < 1 then wait = math.max(wait, (1 - tokens) / rate) end
  left[i] = tokens - 1
end
if wait > 0 then return math.ceil(wait) end
for i, key in ipairs(KEYS) do
  redis.call('HSET', key, 'tokens', tostring(left[i]), 'at', now)
  redis.call('PEXPIRE', key, math.ceil(ARGV[2 * i - 1] * 60000 / ARGV[2 * i]))
end
return 0`

const GIVE_BACK = `
for i, key in ipairs(KEYS) do
  local tokens = tonumber(redis.call('HGET', key, 'tokens'))
  if tokens then redis.call('HSET', key, 'tokens', tostring(math.min(tonumber(ARGV[2 * i - 1]), tokens + 1))) end
end
return 0`

export function createSharedLimits({ url, logger }: { url: string; logger: Logger }): SharedLimits {
  const client = createClient({
    ...redisOptions(url),
    disableOfflineQueue: true,
    commandsQueueMaxLength: MAX_QUEUED_COMMANDS,
  })
  let isClosed = false
  let isUnavailable = false
  client.on('error', (error: Error) => {
    if (!isUnavailable && !isClosed)
      logger.warn({ err: error }, 'Redis is unavailable; each node counts its own requests for rate limits')
    isUnavailable = true
  })
  client.on('ready', () => (isUnavailable = false))
  // The process starts without Redis and connects later.
  void client.connect().catch(() => undefined)

  const run = (script: string, buckets: readonly NamedBucket[]) =>
    client.eval(script, {
      keys: buckets.map(({ name }) => KEY_PREFIX + digestOf(name)),
      arguments: buckets.flatMap(({ rule }) => [String(rule.burst), String(rule.perMinute)]),
    })

  return {
    async take(buckets) {
      try {
        const waitMs = await withDeadline(run(TAKE, buckets), ANSWER_DEADLINE_MS, 'asking Redis')
        return typeof waitMs === 'number' ? waitMs : undefined
      } catch {
        return undefined
      }
    },
    refund(buckets) {
      run(GIVE_BACK, buckets).catch(() => undefined)
    },
    close() {
      if (!isClosed) client.destroy()
      isClosed = true
    },
  }
}
