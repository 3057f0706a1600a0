// The order in which domains get slots; the numbers are runs, never times.
import { expect, test } from 'vitest'
import { FairShares, type Share, type WaitingQueue } from './fair-shares.ts'

const queue = (share: Share, waiting: number, room = waiting, needs = String(share)): WaitingQueue => ({
  needs,
  share,
  waiting,
  room,
})

const order = (shares: FairShares, queues: WaitingQueue[], runs: number) =>
  shares.plan(queues, runs).map(({ needs, reserves }) => (reserves ? `(${needs})` : needs))

function serve(shares: FairShares, queues: WaitingQueue[], runs: number): string[] {
  const planned = shares.plan(queues, runs)
  for (const { share, reserves } of planned) if (!reserves) shares.served(share)
  return planned.map(({ needs }) => needs)
}

test('domains are served in rotation, in the order in which they queued, and so are runs of no domain', () => {
  expect(order(new FairShares(), [queue('a', 8_000), queue(null, 3), queue('b', 2)], 8)).toEqual([
    'a',
    'null',
    'b',
    'a',
    'null',
    'b',
    'a',
    'null',
  ])
})

test('a domain gets all slots that no other domain wants', () => {
  expect(order(new FairShares(), [queue('a', 5), queue('b', 1)], 10)).toEqual(['a', 'b', 'a', 'a', 'a', 'a'])
})

test('the rotation continues from one claim to the next', () => {
  const shares = new FairShares()
  const queues = [queue('a', 100), queue('b', 100), queue('c', 100)]
  const served = Array.from({ length: 9 }, () => serve(shares, queues, 1)).flat()
  expect(served).toEqual(['a', 'b', 'c', 'a', 'b', 'c', 'a', 'b', 'c'])
})

test('a domain that comes late is next, and saves nothing while it is idle', () => {
  const shares = new FairShares()
  serve(shares, [queue('a', 8_000)], 1_000)
  expect(serve(shares, [queue('a', 7_000), queue('b', 10)], 6)).toEqual(['b', 'a', 'b', 'a', 'b', 'a'])
})

test('a domain that queues one run at a time gets no more than its share', () => {
  const shares = new FairShares()
  const counts = new Map<string, number>()
  for (let claim = 0; claim < 100; claim++) {
    for (const needs of serve(shares, [queue('a', 8_000), queue('b', 1)], 1))
      counts.set(needs, (counts.get(needs) ?? 0) + 1)
  }
  expect(counts).toEqual(
    new Map([
      ['a', 50],
      ['b', 50],
    ]),
  )
})

test('several queues of a domain are one share', () => {
  const queues = [queue('a', 9, 9, 'a1'), queue('a', 9, 9, 'a2'), queue('b', 9)]
  expect(order(new FairShares(), queues, 6)).toEqual(['a1', 'b', 'a2', 'b', 'a1', 'b'])
})

test('a domain that is next and has no room reserves its workers before the next domain gets any', () => {
  expect(order(new FairShares(), [queue('a', 3, 0), queue('b', 5)], 2)).toEqual(['(a)', 'b', 'b'])
  expect(order(new FairShares(), [queue('a', 3, 1), queue('b', 5)], 4)).toEqual(['a', 'b', '(a)', 'b', 'b'])
})

test('domains that find no room each get one reservation, and the one that finds room gets it', () => {
  const queues = Array.from({ length: 10_000 }, (_, index) => queue(`domain ${index}`, 1, index === 9_000 ? 1 : 0))
  const planned = new FairShares().plan(queues, 500)
  expect(planned.filter(({ reserves }) => !reserves).map(({ needs }) => needs)).toEqual(['domain 9000'])
  expect(planned.map(({ needs }) => needs)).toEqual(queues.map(({ needs }) => needs))
})

test('a domain of weight three gets three runs for each run of a domain of weight one', () => {
  const shares = new FairShares((share) => (share === 'a' ? 3 : 1))
  const queues = [queue('a', 100), queue('b', 100), queue(null, 100)]
  const counts = new Map<string, number>()
  for (let claim = 0; claim < 50; claim++)
    for (const needs of serve(shares, queues, 1)) counts.set(needs, (counts.get(needs) ?? 0) + 1)
  expect(counts).toEqual(
    new Map([
      ['a', 30],
      ['b', 10],
      ['null', 10],
    ]),
  )
  expect(order(new FairShares((share) => (share === 'a' ? 3 : 1)), queues, 10)).toEqual([
    'a',
    'b',
    'null',
    'a',
    'a',
    'b',
    'null',
    'a',
    'a',
    'a',
  ])
})

test('a new weight is in force for the next run', () => {
  let weight = 1
  const shares = new FairShares((share) => (share === 'a' ? weight : 1))
  const queues = [queue('a', 100), queue('b', 100)]
  expect(serve(shares, queues, 4)).toEqual(['a', 'b', 'a', 'b'])
  weight = 100
  const next = serve(shares, queues, 50)
  expect(next.filter((needs) => needs === 'b')).toHaveLength(1)
})

test('a domain gets no more runs than it is allowed, leaves its workers to others and reserves none', () => {
  const plan = (queues: WaitingQueue[], runs: number, allowed: number) =>
    new FairShares()
      .plan(queues, runs, (share) => (share === 'a' ? allowed : Infinity))
      .map(({ needs, reserves }) => (reserves ? `(${needs})` : needs))
  expect(plan([queue('a', 9, 9, 'a1'), queue('a', 9, 0, 'a2'), queue('b', 9)], 6, 1)).toEqual([
    'a1',
    'b',
    'b',
    'b',
    'b',
    'b',
  ])
  expect(plan([queue('a', 9, 0), queue('b', 3)], 6, 0)).toEqual(['b', 'b', 'b'])
})
