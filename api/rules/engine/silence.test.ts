import { expect, test } from 'vitest'
import { OUTAGE_WITHIN_MS, SilenceTimers } from './silence.ts'

const AFTER_MS = 600_000
const clients = (count: number, from = 0) => Array.from({ length: count }, (_, at) => `c${from + at}`)

function timersOf(ids: readonly string[], { share = 0.5, afterMs = AFTER_MS, atMs = 0 } = {}) {
  const timers = new SilenceTimers({ afterMs, share })
  for (const id of ids) timers.watch(id, atMs)
  return timers
}

test('a client is silent when its time has passed, once, and a message ends it', () => {
  const timers = timersOf(['a', 'b'])
  timers.heard('a', 5)
  expect(timers.dueMs()).toBe(AFTER_MS)
  expect(timers.judge(AFTER_MS - 1, 10)).toEqual([])
  expect(timers.judge(AFTER_MS, 10)).toEqual([{ kind: 'client', id: 'b', sinceMs: 0, atMs: AFTER_MS }])
  expect(timers.judge(AFTER_MS, 10)).toEqual([])
  expect(timers.judge(AFTER_MS + 5, 10)).toEqual([{ kind: 'client', id: 'a', sinceMs: 5, atMs: AFTER_MS + 5 }])
  expect(timers.heard('b', AFTER_MS + 7)).toBe('client')
  expect(timers.heard('b', AFTER_MS + 8)).toBe('nothing')
  expect(timers.judge(2 * AFTER_MS + 8, 10)).toMatchObject([{ id: 'b', sinceMs: AFTER_MS + 8 }])
})

test('findings beyond the limit are left for the next time', () => {
  const timers = timersOf(clients(10), { share: 1 })
  expect(timers.judge(AFTER_MS, 4)).toHaveLength(4)
  expect(timers.judge(AFTER_MS, 100)).toHaveLength(6)
})

test('more than half of the clients within a minute are one outage, which ends when half of them are heard', () => {
  const timers = timersOf(clients(10))
  for (const id of clients(4)) timers.heard(id, OUTAGE_WITHIN_MS + 1)
  expect(timers.judge(AFTER_MS, 10)).toEqual([{ kind: 'outage', silent: 6, total: 10, sinceMs: 0, atMs: AFTER_MS }])
  // What falls silent during the outage is a part of it.
  expect(timers.judge(2 * AFTER_MS, 10)).toEqual([])
  const heardMs = 2 * AFTER_MS
  expect(clients(5).map((id) => timers.heard(id, heardMs))).toEqual([
    'nothing',
    'nothing',
    'nothing',
    'nothing',
    'outage',
  ])
  timers.endOutage(heardMs)
  expect(timers.judge(heardMs + AFTER_MS - 1, 10)).toEqual([])
})

test('an outage is suspected first, and not found when those who are gone were forgotten', () => {
  const timers = new SilenceTimers({ afterMs: 5_000, share: 0.5 })
  const ids = Array.from({ length: 8 }, (_, at) => `client-${at}`)
  for (const id of ids) timers.watch(id, 0)
  expect(timers.judge(5_000, 100, false)).toEqual([])
  expect(timers.suspectsOutage).toBe(true)
  for (const id of ids.slice(0, 5)) timers.forget(id)
  expect(timers.judge(5_000, 100, false).map((one) => (one.kind === 'client' ? one.id : one.kind))).toEqual(
    ids.slice(5),
  )
  expect(timers.suspectsOutage).toBe(false)
  expect(timers.isWatched('client-0')).toBe(false)
  for (const id of ids) timers.heard(id, 10_000)
  expect(timers.judge(15_000, 100, false)).toEqual([])
  expect(timers.judge(15_000, 100)).toMatchObject([{ kind: 'outage', silent: 8, total: 8 }])
})

test('those that stay silent after an outage have their time again, and are found one by one', () => {
  const timers = timersOf(clients(10))
  expect(timers.judge(AFTER_MS, 10)).toMatchObject([{ kind: 'outage', silent: 10 }])
  for (const id of clients(7)) if (timers.heard(id, AFTER_MS) === 'outage') timers.endOutage(AFTER_MS)
  for (const id of clients(7)) timers.heard(id, 2 * AFTER_MS - 1)
  expect(timers.judge(2 * AFTER_MS, 10).map((one) => one.kind === 'client' && one.id)).toEqual(['c7', 'c8', 'c9'])
})

test('a client is found at once when few could follow, and after a minute when many could', () => {
  const alone = timersOf(clients(10))
  for (const id of clients(9)) alone.heard(id, OUTAGE_WITHIN_MS + 1)
  expect(alone.judge(AFTER_MS, 10)).toHaveLength(1)

  const many = timersOf(['first'])
  for (const id of clients(9)) many.watch(id, 30_000)
  expect(many.judge(AFTER_MS, 10)).toEqual([])
  for (const id of clients(9)) many.heard(id, AFTER_MS + 1000)
  expect(many.judge(AFTER_MS + 2000, 10)).toEqual([{ kind: 'client', id: 'first', sinceMs: 0, atMs: AFTER_MS }])

  const most = timersOf(['first'])
  for (const id of clients(9)) most.watch(id, 30_000)
  expect(most.judge(AFTER_MS + 29_000, 10)).toEqual([])
  expect(most.judge(AFTER_MS + 30_000, 10)).toMatchObject([{ kind: 'outage', silent: 10 }])
})

test('few clients, and a share of 1, are no outage', () => {
  expect(timersOf(clients(4)).judge(AFTER_MS, 10)).toHaveLength(4)
  expect(timersOf(clients(5)).judge(AFTER_MS, 10)).toMatchObject([{ kind: 'outage' }])
  expect(timersOf(clients(100), { share: 1 }).judge(AFTER_MS, 1000)).toHaveLength(100)
})

test('what was stored is taken over: the silent stay silent, and an outage waits for all clients to be known', () => {
  const timers = new SilenceTimers({ afterMs: AFTER_MS, share: 0.5 })
  timers.restore({ silent: new Set(['a']), isOutage: true }, 0)
  for (const id of ['a', ...clients(9)]) timers.watch(id, 0, true)
  expect(timers.heard('c0', 1)).toBe('nothing')
  expect(timers.complete()).toBe(false)
  expect(timers.judge(2 * AFTER_MS, 100)).toEqual([])
  expect(timers.heard('a', 2)).toBe('client')
  const heard = ['c0', 'c1', 'c2', 'c3'].map((id) => timers.heard(id, 3))
  expect(heard).toEqual(['nothing', 'nothing', 'nothing', 'outage'])
})

test('what is no longer stored begins again', () => {
  const timers = timersOf(['a', 'b'])
  timers.judge(AFTER_MS, 10)
  timers.restore({ silent: new Set(['b']), isOutage: false }, AFTER_MS)
  expect(timers.judge(2 * AFTER_MS, 10)).toEqual([{ kind: 'client', id: 'a', sinceMs: AFTER_MS, atMs: 2 * AFTER_MS }])
})

test('a client that is not watched any more is not silent', () => {
  const timers = timersOf(['a', 'b', 'c'])
  expect(timers.forget('a')).toBe('nothing')
  timers.judge(AFTER_MS, 10)
  expect(timers.forget('b')).toBe('client')
  expect([...timers.ids()]).toEqual(['c'])
})

/** The same in other words: looks at every client at every millisecond. */
class PlainTimers {
  readonly heardMs = new Map<string, number>()
  readonly silent = new Set<string>()
  readonly afterMs: number

  constructor(ids: readonly string[], afterMs: number) {
    for (const id of ids) this.heardMs.set(id, 0)
    this.afterMs = afterMs
  }

  heard(id: string, atMs: number): void {
    this.silent.delete(id)
    this.heardMs.set(id, atMs)
  }

  look(nowMs: number): string[] {
    const found = [...this.heardMs].filter(([id, ms]) => !this.silent.has(id) && nowMs - ms >= this.afterMs)
    for (const [id] of found) this.silent.add(id)
    return found.map(([id, ms]) => `${id} ${ms}`).toSorted()
  }
}

test('a plain reading finds the same over generated messages', () => {
  let seed = 1
  const random = (max: number) => (seed = (seed * 48_271) % 2_147_483_647) % max
  for (let round = 0; round < 200; round++) {
    const ids = clients(1 + random(12))
    const afterMs = 5 + random(40)
    const timers = timersOf(ids, { share: 1, afterMs })
    const plain = new PlainTimers(ids, afterMs)
    const [found, expected]: string[][] = [[], []]
    for (let nowMs = 0; nowMs < 200; nowMs++) {
      const now = timers.judge(nowMs, Infinity).map((one) => (one.kind === 'client' ? `${one.id} ${one.sinceMs}` : ''))
      found?.push(`${nowMs}`, ...now.toSorted())
      expected?.push(`${nowMs}`, ...plain.look(nowMs))
      if (random(3) > 0) continue
      const id = ids[random(ids.length)] ?? ''
      timers.heard(id, nowMs)
      plain.heard(id, nowMs)
    }
    expect(found).toEqual(expected)
  }
})
