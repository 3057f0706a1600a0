import { expect, test } from 'vitest'
import { Managers } from './managers.ts'

test('workers begin with different managers of the same list', () => {
  const addresses = ['a:1', 'b:1', 'c:1']
  expect([0, 0.34, 0.99].map((random) => new Managers(addresses, () => random).current)).toEqual(addresses)
})

test('the next manager follows until all were tried', () => {
  const managers = new Managers(['a:1', 'b:1', 'c:1'], () => 0.5)
  const tried = Array.from({ length: 6 }, () => [managers.next(), managers.current])
  expect(tried).toEqual([
    [false, 'c:1'],
    [false, 'a:1'],
    [true, 'b:1'],
    [false, 'c:1'],
    [false, 'a:1'],
    [true, 'b:1'],
  ])
})

test('a session begins a new round, and a single manager is a round by itself', () => {
  const managers = new Managers(['a:1', 'b:1'], () => 0)
  managers.next()
  managers.joined()
  expect(managers.next()).toBe(false)
  expect(new Managers(['a:1']).next()).toBe(true)
})
