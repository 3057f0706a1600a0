import { expect, test } from 'vitest'
import { FullDomains } from './full-domains.ts'

test('a domain is full from its quota on, until less is known to be used or the quota is gone', () => {
  const limits = new Map([[1, 100]])
  const used = new Map<number, number | undefined>([
    [1, 99],
    [2, 1_000_000],
  ])
  const full = new FullDomains({
    isFull(key) {
      const [limit, known] = [limits.get(key), used.get(key)]
      return limit === undefined ? false : known === undefined ? undefined : known >= limit
    },
  })
  expect([full.has(1), full.has(2), full.known()]).toEqual([false, false, []])
  used.set(1, 100)
  expect(full.known(), 'nobody has asked').toEqual([])
  expect([full.has(1), full.known()]).toEqual([true, [1]])
  used.set(1, undefined)
  expect(full.has(1), 'nothing newer is known').toBe(true)
  used.set(1, 99)
  expect([full.known(), full.has(1)]).toEqual([[], false])
  used.set(1, 200)
  expect(full.has(1)).toBe(true)
  limits.clear()
  expect([full.known(), full.has(1)]).toEqual([[], false])
})

test('a domain is not full before its figure is known', () => {
  const full = new FullDomains({ isFull: () => undefined })
  expect(full.has(1)).toBe(false)
})
