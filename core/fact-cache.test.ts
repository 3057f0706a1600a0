/** A value read before a change must not be returned after it (mechanisms section 4). */
import { describe, expect, test, vi } from 'vitest'
import { createFactCache } from './fact-cache.ts'
import type { LoadedFact } from './fact-cache.ts'

/** A load that the test completes. */
function heldLoad<V>() {
  const { promise, resolve, reject } = Promise.withResolvers<LoadedFact<V>>()
  return { load: vi.fn(() => promise), resolve, reject }
}

const fact = <V>(value: V, ...dependsOn: number[]) => Promise.resolve({ value, dependsOn })
const isFresh = () => true

describe('a fact cache', () => {
  test('answers from memory until an entity that the fact depends on changes', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    expect(await cache.get('a', () => fact('first', 1, 2))).toBe('first')
    expect(cache.peek('a')).toBe('first')
    cache.invalidate([3])
    expect(cache.peek('a')).toBe('first')
    cache.invalidate([2])
    expect(cache.peek('a')).toBeUndefined()
    expect(await cache.get('a', () => fact('second', 1, 2))).toBe('second')
  })

  test('callers of one key share one load, and a failure is not cached', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const held = heldLoad<string>()
    const asked = [cache.get('a', held.load), cache.get('a', held.load)]
    held.reject(new Error('away'))
    const outcomes = await Promise.allSettled(asked)
    expect(outcomes.map((outcome) => outcome.status)).toEqual(['rejected', 'rejected'])
    expect(held.load).toHaveBeenCalledTimes(1)
    expect(await cache.get('a', () => fact('back', 1))).toBe('back')
  })

  test('does not keep a value that was read before a change', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const held = heldLoad<string>()
    const asked = cache.get('a', held.load)
    cache.invalidate([1])
    held.resolve({ value: 'old', dependsOn: [1] })
    expect(await asked).toBe('old')
    expect(cache.peek('a')).toBeUndefined()
  })

  test('does not share a load that began before a change with a caller after it', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const held = heldLoad<string>()
    const before = cache.get('a', held.load)
    cache.invalidate([1])
    expect(await cache.get('a', () => fact('new', 1))).toBe('new')
    held.resolve({ value: 'old', dependsOn: [1] })
    expect(await before).toBe('old')
    expect(cache.peek('a')).toBe('new')
  })

  test('a load that ends after other loads is still invalidated by a change during it', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const [slow, quick] = [heldLoad<string>(), heldLoad<string>()]
    const slowAsked = cache.get('slow', slow.load)
    const quickAsked = cache.get('quick', quick.load)
    cache.invalidate([1])
    quick.resolve({ value: 'q', dependsOn: [2] })
    await quickAsked
    slow.resolve({ value: 'old', dependsOn: [1] })
    await slowAsked
    expect(cache.peek('slow')).toBeUndefined()
  })

  test('a load is invalidated by the second of two changes during it', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const held = heldLoad<string>()
    const asked = cache.get('a', held.load)
    cache.invalidate([7])
    cache.invalidate([1])
    held.resolve({ value: 'old', dependsOn: [1] })
    await asked
    expect(cache.peek('a')).toBeUndefined()
  })

  test('a clear invalidates running loads too', async () => {
    const cache = createFactCache<string>({ maxEntries: 10, isFresh })
    const held = heldLoad<string>()
    const asked = cache.get('a', held.load)
    cache.invalidateAll()
    held.resolve({ value: 'old', dependsOn: [1] })
    await asked
    expect(cache.peek('a')).toBeUndefined()
    expect(cache.size).toBe(0)
  })

  test('does not answer from memory while the tail of changes is not fresh', async () => {
    let fresh = true
    const cache = createFactCache<string>({ maxEntries: 10, isFresh: () => fresh })
    await cache.get('a', () => fact('kept', 1))
    fresh = false
    expect(cache.peek('a')).toBeUndefined()
    expect(await cache.get('a', () => fact('read', 1))).toBe('read')
    fresh = true
    expect(cache.peek('a')).toBe('read')
  })

  test('caches the absence of an entity for a second at most', async () => {
    const clock = vi.spyOn(performance, 'now')
    try {
      clock.mockReturnValue(1000)
      const cache = createFactCache<string>({ maxEntries: 10, isFresh })
      await cache.get('a', () => fact('none'))
      clock.mockReturnValue(2000)
      expect(cache.peek('a')).toBe('none')
      clock.mockReturnValue(2001)
      expect(cache.peek('a')).toBeUndefined()
    } finally {
      clock.mockRestore()
    }
  })

  test('is bounded, and an evicted fact is removed completely', async () => {
    const cache = createFactCache<number>({ maxEntries: 3, isFresh })
    for (let index = 0; index < 100; index++) await cache.get(`k${index}`, () => fact(index, index % 5))
    expect(cache.size).toBe(3)
    cache.invalidate([0, 1, 2, 3, 4])
    expect(cache.size).toBe(0)
  })
})
