import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Queryable } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import type { DropReason } from '../device-topics/index.ts'
import { NotifiedDevices } from './notified.ts'
import type { NotifiedState } from './repository.ts'

type Sent = { state: NotifiedState; onAcknowledged: () => void; onDropped: (reason: DropReason) => void }

const CLIENT = 5

/** The rows of a client, and how many of them each statement has read in full. `isSmall`: their deltas are read with the changes. */
function rowsOf(clientKey: number, isSmall = false) {
  const rows = new Map<string, NotifiedState>()
  const read: number[] = []
  const db = {
    query: async ({ name, values }: { name: string; values: readonly unknown[] }) => {
      await Promise.resolve()
      if (name === 'find_device_state_changes')
        return {
          rows: [...rows.values()].map(({ delta, ...row }) => {
            const isInSync = Object.keys(delta).length === 0
            return { ...row, isInSync, delta: isSmall || isInSync ? delta : null }
          }),
        }
      const found = (values[1] as string[]).flatMap((wanted) => rows.get(wanted) ?? [])
      read.push(found.length)
      return { rows: found }
    },
  } as unknown as Queryable
  let version = 0
  const desire = (name: string, delta: Record<string, unknown>) => {
    version += 1
    rows.set(name, { clientKey, name, delta, version, notifiedVersion: version })
  }
  return { db, desire, read, rows }
}

function subscribed(db: Queryable, wants: (name: string) => boolean = () => true) {
  const devices = new NotifiedDevices(db, createLogger({ name: 'test', level: 'silent' }))
  const sent: Sent[] = []
  const device = { clientKey: CLIENT, clientId: 'a', domainKey: 1, domainId: 'd' }
  devices.subscribe({ device }, { wants, send: (state, callbacks) => sent.push({ state, ...callbacks }) })
  const tell = async () => {
    devices.listener.invalidate([CLIENT], new Set())
    await vi.advanceTimersByTimeAsync(1)
  }
  return { sent, tell, values: () => sent.map(({ state }) => state.delta['v']) }
}

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('only what is sent is read in full', async () => {
  const { db, desire, read } = rowsOf(CLIENT)
  for (let document = 0; document < 100; document++) desire(`d${document}`, { v: document })
  const { sent, tell } = subscribed(db)
  await vi.advanceTimersByTimeAsync(1)
  expect(sent).toHaveLength(100)
  // Never more than 64 documents at once.
  expect(read.reduce((sum, rows) => sum + rows)).toBe(100)
  expect(Math.max(...read)).toBeLessThanOrEqual(64)
  for (const { onAcknowledged } of sent) onAcknowledged()
  desire('d7', { v: 'new' })
  desire('d8', {})
  await tell()
  expect(sent.slice(100).map(({ state }) => [state.name, state.delta])).toEqual([
    ['d8', {}],
    ['d7', { v: 'new' }],
  ])
  expect(read.reduce((sum, rows) => sum + rows)).toBe(101)
})

test('what is small is read once, with the look for changes', async () => {
  const { db, desire, read } = rowsOf(CLIENT, true)
  for (let document = 0; document < 100; document++) desire(`d${document}`, { v: document })
  const { sent, tell, values } = subscribed(db)
  await vi.advanceTimersByTimeAsync(1)
  expect(values()).toEqual(Array.from({ length: 100 }, (_, document) => document))
  desire('d7', { v: 'next' })
  await tell()
  desire('d7', { v: 'newest' })
  await tell()
  // One at a time, and the newest.
  expect(sent).toHaveLength(100)
  sent[7]?.onAcknowledged()
  await vi.advanceTimersByTimeAsync(1)
  expect(values().slice(100)).toEqual(['newest'])
  expect(read).toEqual([])
})

test('what nobody wants is not read in full', async () => {
  const { db, desire, read } = rowsOf(CLIENT)
  for (const name of ['', 'one', 'two']) desire(name, { v: name })
  const { values } = subscribed(db, (name) => name === 'one')
  await vi.advanceTimersByTimeAsync(1)
  expect(values()).toEqual(['one'])
  expect(read).toEqual([1])
})

test('what was dropped because there was no room is sent again after a second, in its newest form', async () => {
  const { db, desire } = rowsOf(CLIENT)
  desire('', { v: 1 })
  const { sent, tell, values } = subscribed(db)
  await vi.advanceTimersByTimeAsync(1)
  sent[0]?.onDropped('slow')
  await vi.advanceTimersByTimeAsync(500)
  expect(values()).toEqual([1])
  await vi.advanceTimersByTimeAsync(600)
  expect(values()).toEqual([1, 1])
  sent[1]?.onAcknowledged()
  desire('', { v: 2 })
  await tell()
  sent[2]?.onDropped('slow')
  desire('', { v: 3 })
  await vi.advanceTimersByTimeAsync(1100)
  expect(values()).toEqual([1, 1, 2, 3])
  sent[3]?.onAcknowledged()
  await vi.advanceTimersByTimeAsync(5000)
  expect(sent).toHaveLength(4)
})

test('what is too large is not sent again, and does not hold up what comes next', async () => {
  const { db, desire } = rowsOf(CLIENT)
  desire('', { v: 'large' })
  const { sent, tell, values } = subscribed(db)
  await vi.advanceTimersByTimeAsync(1)
  desire('', { v: 'small' })
  await tell()
  expect(values()).toEqual(['large'])
  sent[0]?.onDropped('too_large')
  await vi.advanceTimersByTimeAsync(5000)
  expect(values()).toEqual(['large', 'small'])
})

test('a document that is deleted while it is read is not sent, and its successor is', async () => {
  const { db, desire, rows } = rowsOf(CLIENT)
  desire('', { v: 1 })
  const { tell, values } = subscribed(db)
  queueMicrotask(() => rows.delete(''))
  await vi.advanceTimersByTimeAsync(1)
  desire('', { v: 2 })
  await tell()
  expect(values()).toEqual([2])
})
