/**
 * The bus over Redis pub/sub. Redis away costs speed, never a fact: publishing never waits, hints of this process reach
 * its own subscribers without Redis, and the client reconnects by itself.
 */
import { createClient } from 'redis'
import type { Logger } from '../logging/index.ts'
import { newToken } from '../ids.ts'
import type { Bus } from './bus.ts'
import { MAX_HINT_BYTES, Subscriptions } from './bus.ts'
import { redisOptions } from './redis-options.ts'

/** Commands that wait for a broken connection are refused above this, and counted as dropped. */
const MAX_QUEUED_COMMANDS = 1000

/** Each message begins with the sender's mark, so that a process does not hear its own hints twice. */
const MARK_BYTES = 16

export async function createRedisBus({ url, logger }: { url: string; logger: Logger }): Promise<Bus> {
  const subscriptions = new Subscriptions()
  const mark = Buffer.from(newToken(MARK_BYTES)).subarray(0, MARK_BYTES)
  let dropped = 0
  let closed = false
  const options = { ...redisOptions(url), commandsQueueMaxLength: MAX_QUEUED_COMMANDS }
  const publisher = createClient({ ...options, disableOfflineQueue: true })
  const subscriber = createClient(options)
  for (const client of [publisher, subscriber]) {
    let isAway = false
    client.on('error', (error: Error) => {
      if (!isAway)
        logger.warn({ err: error }, 'Redis is unavailable; processes poll the changelog instead of receiving hints')
      isAway = true
    })
    client.on('ready', () => {
      if (isAway) logger.info('Redis is available again')
      isAway = false
    })
  }
  // A Redis that is away at the start is no reason not to start.
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
      // The client repeats its subscriptions after a reconnection; one asked for while Redis is away waits for it.
      if (isFirst)
        subscriber
          .subscribe(topic, onMessage, true)
          .catch((error: unknown) => logger.warn({ err: error, topic }, 'failed to subscribe in Redis'))
      return () => {
        if (remove()) subscriber.unsubscribe(topic, onMessage, true).catch(() => undefined)
      }
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
