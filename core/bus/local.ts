/**
 * The bus of one machine: a hint is delivered in the next turn of the event loop, and sent to the other processes of the machine
 * when there are any.
 */
import type { Bus, HintPeers } from './bus.ts'
import { MAX_HINT_BYTES, Subscriptions } from './bus.ts'

export function createLocalBus(peers?: HintPeers): Bus {
  const subscriptions = new Subscriptions()
  let dropped = 0
  let closed = false
  peers?.listen((topic, payload) => {
    if (!closed) subscriptions.deliver(topic, payload)
  })
  return {
    publish(topic, payload) {
      if (closed || payload.byteLength > MAX_HINT_BYTES) {
        dropped += 1
        return
      }
      setImmediate(() => subscriptions.deliver(topic, payload))
      if (peers?.send(topic, payload) === false) dropped += 1
    },
    subscribe(topic, handler) {
      const { remove } = subscriptions.add(topic, handler)
      return () => void remove()
    },
    get isConnected() {
      return peers?.isConnected ?? true
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
