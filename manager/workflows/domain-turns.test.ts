import { expect, test } from 'vitest'
import { DomainTurns } from './domain-turns.ts'

test('domains take turns, and each run waits once', () => {
  const turns = new DomainTurns()
  for (const key of [1, 2, 3, 1]) turns.add('many', key)
  turns.add('few', 10)
  turns.add(null, 20)
  const order = Array.from({ length: 4 }, () => turns.take()?.key)
  expect(order).toEqual([1, 10, 20, 2])
  turns.add('few', 11)
  expect([turns.take()?.key, turns.take()?.key, turns.take()]).toEqual([3, 11, undefined])
})
