/** How every cache is bounded: by its number of entries, or by their size. */
import { LRUCache } from 'lru-cache'

type Options<K extends {}, V extends {}> = Omit<
  LRUCache.OptionsBase<K, V, unknown>,
  'max' | 'maxSize' | 'maxEntrySize' | 'sizeCalculation'
>

type Bound<V> = { maxEntries: number } | { maxSize: number; sizeOf: (value: V) => number }

/**
 * A cache that removes its least recently used entries beyond the bound; an entry that exceeds `maxSize` alone is not kept. An empty cache
 * uses almost no memory: with its option `max`, `lru-cache` allocates lists for all entries at once.
 */
export class BoundedCache<K extends {}, V extends {}> extends LRUCache<K, V> {
  constructor(options: Options<K, V> & Bound<V>) {
    if ('maxEntries' in options) {
      const { maxEntries, ...others } = options
      super({ ...others, maxSize: maxEntries, sizeCalculation: () => 1 })
    } else {
      const { sizeOf, ...others } = options
      super({ ...others, sizeCalculation: sizeOf })
    }
  }
}
