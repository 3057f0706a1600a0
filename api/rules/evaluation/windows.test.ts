import { describe, expect, it } from 'vitest'
import type { Queryable } from '#core/database/index.ts'
import type { CompiledRule } from '../compile.ts'
import type { Meeting } from './meetings.ts'
import type { StoredValue } from './repository.ts'
import { DomainWindows } from './windows.ts'

const MINUTE_MS = 60_000
const PLACE = { xid: 1n, seq: 1, message: 0 }

const ruleOf = (minutes: number, windowNames: readonly string[] = []) =>
  ({ windowMs: minutes * MINUTE_MS, windowTime: 'arrival', windowNames }) as unknown as CompiledRule

const meetingOf = (publisherId: string, atMs: number, rules: readonly CompiledRule[], name = 'temperature') =>
  ({
    sample: {
      message: { channelId: 'hall' },
      series: { publisherId, channelKey: 1, subtopic: '', name },
      atMs,
      timeMs: atMs,
      variables: { value: atMs / MINUTE_MS },
    },
    rules,
  }) as unknown as Meeting

/** A store with these values, which counts how often it is read. */
function storeOf(values: readonly StoredValue[]): { db: Queryable; reads: () => number } {
  let reads = 0
  const query = async () => {
    reads++
    return { rows: values.toReversed() }
  }
  return { db: { query } as unknown as Queryable, reads: () => reads }
}

const valueOf = (minute: number, name = 'temperature'): StoredValue => ({
  channelKey: 1,
  publisherId: 'a',
  subtopic: '',
  name,
  timeMs: minute * MINUTE_MS,
  arrivalMs: minute * MINUTE_MS,
  value: minute,
})

describe('the windows of a domain', () => {
  it('keep each series for as long as the rules that meet it ask, and read it again for a longer window', async () => {
    const [short, long] = [ruleOf(1), ruleOf(60, ['fan'])]
    const windows = DomainWindows.of([short, long]) as DomainWindows
    const { db, reads } = storeOf([...Array.from({ length: 40 }, (_, minute) => valueOf(minute)), valueOf(3, 'fan')])
    const meeting = meetingOf('a', 40 * MINUTE_MS, [short])
    await windows.load(db, [meeting], PLACE)
    windows.add(meeting.sample)
    const count = { function: 'count', series: undefined, durationMs: 60 * MINUTE_MS } as const
    expect(windows.readerOf(short, meeting.sample)?.read(count)).toBe(12)
    await windows.load(db, [meeting], PLACE)
    expect(reads()).toBe(1)
    const next = meetingOf('a', 41 * MINUTE_MS, [long])
    await windows.load(db, [next], PLACE)
    expect(reads()).toBe(2)
    expect(windows.readerOf(long, next.sample)?.read(count)).toBe(40)
    expect(windows.readerOf(long, next.sample)?.read({ ...count, series: 'fan' })).toBe(1)
    expect(windows.size).toBe(81)
    // Nothing asks for it.
    windows.add(meetingOf('a', 41 * MINUTE_MS, [], 'noise').sample)
    expect(windows.size).toBe(81)
  })

  it('are read for some clients at once, and the step ends before the message of the next', async () => {
    const rule = ruleOf(1)
    const windows = DomainWindows.of([rule]) as DomainWindows
    const meetings = Array.from({ length: 60 }, (_, client) => meetingOf(`client-${client}`, MINUTE_MS, [rule]))
    const { db } = storeOf([])
    const first = await windows.load(db, meetings, PLACE)
    expect(first.left).toBe(meetings[50]?.sample.message)
    const second = await windows.load(db, meetings.slice(50), PLACE)
    expect(second).toEqual({ left: undefined, isTooMuch: false })
  })
})
