/** Bounded maps that grow as they are filled. */
import { LRUCache } from 'lru-cache'

/** Keeps the entries used last, as many as have `maxBytes` together by what `sizeOf` says of each. */
export function createLruOfBytes<K extends {}, V extends {}>(
  maxBytes: number,
  sizeOf: (value: V) => number,
): LRUCache<K, V> {
  return new LRUCache<K, V>({ maxSize: maxBytes, sizeCalculation: (value) => Math.max(1, sizeOf(value)) })
}

/**
 * Keeps the entries used last, at most so many. `max` of LRUCache would take the memory of all of them at once, which costs
 * a start more than all its queries; a bound in sizes does not.
 */
export function createLru<K extends {}, V extends {}>(
  maxEntries: number,
  options: { ttlMs?: number } = {},
): LRUCache<K, V> {
  return new LRUCache<K, V>({
    maxSize: maxEntries,
    sizeCalculation: () => 1,
    ...(options.ttlMs === undefined ? {} : { ttl: options.ttlMs }),
  })
}
