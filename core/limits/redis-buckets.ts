/**
 * Token buckets in Redis, for all nodes together. Beside counting in the process, not instead of it: while Redis is away or
 * slow nobody is asked, nobody waits, and each node counts for itself.
 */
import { createHash } from 'node:crypto'
import { createClient } from 'redis'
import { redisOptions } from '../bus/index.ts'
import type { Logger } from '../logging/index.ts'
import { withDeadline } from '../time.ts'
import type { BucketRule } from './token-bucket.ts'

export type NamedBucket = {
  /** May hold what a caller typed: Redis is given a digest of it. */
  name: string
  rule: BucketRule
}

export type SharedLimits = {
  /**
   * Takes one of each bucket, or none: resolves to the milliseconds after which there is one of each, 0 when they were
   * taken. Undefined when Redis did not say so in time. Never rejects.
   */
  take(buckets: readonly NamedBucket[]): Promise<number | undefined>
  /** Gives back what was taken. */
  giveBack(buckets: readonly NamedBucket[]): void
  close(): void
}

const KEY_PREFIX = 'skein:limit:'
/** Redis answers in a fraction of a millisecond; whoever logs in does not wait longer for it. */
const ANSWER_DEADLINE_MS = 250
/** Questions on their way; beyond, nobody is asked. */
const MAX_QUEUED_COMMANDS = 1000

/** KEYS: buckets; ARGV: burst and refill per minute of each. In Redis's own time, so that clocks of nodes do not matter. */
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
  let isAway = false
  client.on('error', (error: Error) => {
    if (!isAway && !isClosed)
      logger.warn({ err: error }, 'Redis is unavailable; each node counts its own requests for rate limits')
    isAway = true
  })
  client.on('ready', () => (isAway = false))
  // A Redis that is away at the start is no reason not to start.
  void client.connect().catch(() => undefined)

  const run = (script: string, buckets: readonly NamedBucket[]) =>
    client.eval(script, {
      keys: buckets.map(({ name }) => KEY_PREFIX + createHash('sha256').update(name).digest('base64url')),
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
    giveBack(buckets) {
      run(GIVE_BACK, buckets).catch(() => undefined)
    },
    close() {
      if (!isClosed) client.destroy()
      isClosed = true
    },
  }
}
