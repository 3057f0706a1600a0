/**
 * The bus over Redis pub/sub. An unavailable Redis delays hints and loses no data: publishing never waits, hints of this
 * process reach its own subscribers without Redis, and the client reconnects automatically.
 */
import { createClient } from 'redis'
import type { Logger } from '../logging/index.ts'
import { newToken } from '../ids.ts'
import type { Bus } from './bus.ts'
import { MAX_HINT_BYTES, Subscriptions } from './bus.ts'
import { pingedRedisOptions, redisOptions } from './redis-options.ts'

/** The maximum number of commands that wait for a connection. Further commands are dropped and counted. */
const MAX_QUEUED_COMMANDS = 1000

/** Each message begins with the sender's id, so that a process ignores its own hints. */
const MARK_BYTES = 16

export async function createRedisBus({ url, logger }: { url: string; logger: Logger }): Promise<Bus> {
  const subscriptions = new Subscriptions()
  const mark = Buffer.from(newToken(MARK_BYTES)).subarray(0, MARK_BYTES)
  let dropped = 0
  let closed = false
  const limits = { commandsQueueMaxLength: MAX_QUEUED_COMMANDS }
  const publisher = createClient({ ...pingedRedisOptions(url), ...limits, disableOfflineQueue: true })
  const subscriber = createClient({ ...redisOptions(url), ...limits })
  const ready = new Set<object>()
  for (const client of [publisher, subscriber]) {
    let isUnavailable = false
    client.on('error', (error: Error) => {
      if (!isUnavailable)
        logger.warn({ err: error }, 'Redis is unavailable; processes poll the changelog instead of receiving hints')
      isUnavailable = true
      ready.delete(client)
    })
    client.on('ready', () => {
      ready.add(client)
      if (isUnavailable) logger.info('Redis is available again')
      isUnavailable = false
    })
  }
  // The process starts without Redis and connects later.
  void publisher.connect().catch(() => undefined)
  void subscriber.connect().catch(() => undefined)

  const onMessage = (message: Buffer, topic: Buffer) => {
    if (message.length < MARK_BYTES || message.subarray(0, MARK_BYTES).equals(mark)) return
    subscriptions.deliver(topic.toString(), message.subarray(MARK_BYTES))
  }

  return {
    publish(topic, payload) {
      if (closed) return
      if (payload.byteLength > MAX_HINT_BYTES) {
        dropped += 1
        return
      }
      setImmediate(() => subscriptions.deliver(topic, payload))
      publisher.publish(topic, Buffer.concat([mark, payload])).catch(() => {
        dropped += 1
      })
    },
    subscribe(topic, handler) {
      const { isFirst, remove } = subscriptions.add(topic, handler)
      // The client repeats its subscriptions after a reconnection. A subscription made while Redis is unavailable waits for it.
      if (isFirst)
        subscriber
          .subscribe(topic, onMessage, true)
          .catch((error: unknown) => logger.warn({ err: error, topic }, 'failed to subscribe in Redis'))
      return () => {
        if (remove()) subscriber.unsubscribe(topic, onMessage, true).catch(() => undefined)
      }
    },
    get isConnected() {
      return ready.size === 2
    },
    get dropped() {
      return dropped
    },
    close() {
      if (!closed) for (const client of [publisher, subscriber]) client.destroy()
      closed = true
      return Promise.resolve()
    },
  }
}
