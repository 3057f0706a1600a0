import { expect, test } from 'vitest'
import type { Session, Subscription } from './session.ts'
import { SubscriptionIndex } from './subscription-index.ts'

const subscriptionTo = (filter: string): Subscription => {
  const part: Partial<Subscription> = { filter, levels: filter.split('/'), session: {} as Session }
  return part as Subscription
}

/** MQTT 5 section 4.7, level by level. */
function covers(filter: readonly string[], topic: readonly string[]): boolean {
  if (topic[0]?.startsWith('$') === true && (filter[0] === '#' || filter[0] === '+')) return false
  for (const [index, level] of filter.entries()) {
    if (level === '#') return true
    if (index >= topic.length || (level !== '+' && level !== topic[index])) return false
  }
  return filter.length === topic.length
}

const filtersMatched = (index: SubscriptionIndex, topic: string) =>
  index
    .match(topic)
    .own.flatMap(({ subscriptions }) => subscriptions.map(({ filter }) => filter))
    .toSorted()

/** Reproducible pseudo-random numbers. */
function createRandom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

test('topics match the subscriptions that MQTT specifies while subscriptions are added and removed', () => {
  const random = createRandom(7)
  const levels = ['a', 'b', '', '$s', '+']
  const randomLevels = (kinds: number) => Array.from({ length: 1 + random(5) }, () => levels[random(kinds)] ?? 'a')
  const index = new SubscriptionIndex('/')
  const held: Subscription[] = []
  let matched = 0
  for (let step = 0; step < 4000; step++) {
    if (held.length > 0 && random(5) < 2) {
      const [gone] = held.splice(random(held.length), 1)
      if (gone !== undefined) index.delete(gone)
    } else {
      const filter = [...randomLevels(levels.length), ...(random(3) === 0 ? ['#'] : [])].join('/')
      const subscription = subscriptionTo(filter)
      held.push(subscription)
      index.add(subscription)
      index.add(subscription)
    }
    expect(index.size).toBe(held.length)
    const topic = randomLevels(levels.length - 1)
    const expected = held.filter((one) => covers(one.levels, topic)).map(({ filter }) => filter)
    matched += expected.length
    expect(filtersMatched(index, topic.join('/'))).toEqual(expected.toSorted())
    expect(index.sessions().size).toBe(held.length)
  }
  expect(matched).toBeGreaterThan(1000)
  for (const one of held) index.delete(one)
  expect([index.size, index.sessions().size, filtersMatched(index, 'a/b')]).toEqual([0, 0, []])
})

test('deleting a missing subscription has no effect', () => {
  const index = new SubscriptionIndex('/')
  index.add(subscriptionTo('a/b/c'))
  for (const filter of ['a', 'a/b', 'a/b/c', 'a/b/c/d', 'a/x/c']) index.delete(subscriptionTo(filter))
  expect(filtersMatched(index, 'a/b/c')).toEqual(['a/b/c'])
})
