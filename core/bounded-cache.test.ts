import { describe, expect, test } from 'vitest'
import { BoundedCache } from './bounded-cache.ts'

const BYTES_PER_EMPTY_CACHE = 4096

function allocatedBytes(): number {
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

describe('a bounded cache', () => {
  test('removes the least recently used entry beyond its number of entries', () => {
    const cache = new BoundedCache<string, number>({ maxEntries: 2 })
    cache.set('a', 1).set('b', 2)
    cache.get('a')
    cache.set('c', 3)
    expect([...cache.keys()]).toEqual(['c', 'a'])
  })

  test('removes entries beyond the size of all, and keeps none that exceeds it alone', () => {
    const cache = new BoundedCache<string, string>({ maxSize: 10, sizeOf: (value) => value.length })
    cache.set('a', 'aaaa').set('b', 'bbbb').set('c', 'cccc')
    expect([...cache.keys()]).toEqual(['c', 'b'])
    cache.set('d', 'd'.repeat(11))
    expect(cache.has('d')).toBe(false)
  })

  test('allocates nothing for entries that it does not have', () => {
    const count = 1000
    const before = allocatedBytes()
    const caches = Array.from(
      { length: count },
      () => new BoundedCache<string, number>({ maxEntries: 1_000_000, ttl: 1000 }),
    )
    expect(allocatedBytes() - before).toBeLessThan(count * BYTES_PER_EMPTY_CACHE)
    expect(caches.every(({ size }) => size === 0)).toBe(true)
  })
})
