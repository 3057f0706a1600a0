/** The bus of a single process: a hint is delivered in the next turn of the event loop. */
import type { Bus } from './bus.ts'
import { MAX_HINT_BYTES, Subscriptions } from './bus.ts'

export function createLocalBus(): Bus {
  const subscriptions = new Subscriptions()
  let dropped = 0
  let closed = false
  return {
    publish(topic, payload) {
      if (closed || payload.byteLength > MAX_HINT_BYTES) {
        dropped += 1
        return
      }
      setImmediate(() => subscriptions.deliver(topic, payload))
    },
    subscribe(topic, handler) {
      const { remove } = subscriptions.add(topic, handler)
      return () => void remove()
    },
    get dropped() {
      return dropped
    },
    close() {
      closed = true
      return Promise.resolve()
    },
  }
}
