/** The link between a supervisor and a process: nothing waits for a slow peer, and its bounds hold. */
import { expect, test, vi } from 'vitest'
import { Link, MAX_WAITING_HINT_BYTES } from './link.ts'
import type { LinkEnd, LinkHandlers } from './link.ts'

/** Two ends in one process. While it is held, nothing is written. */
function createPair() {
  const listeners: ((message: unknown) => void)[] = []
  const waiting: (() => void)[] = []
  let isHeld = false
  let isOpen = true
  const endOf = (own: number): LinkEnd => ({
    send(message, written) {
      const write = () => {
        written(null)
        setImmediate(() => listeners[1 - own]?.(structuredClone(message)))
      }
      if (isHeld) waiting.push(write)
      else write()
    },
    listen: (handler) => void (listeners[own] = handler),
    get isOpen() {
      return isOpen
    },
  })
  return {
    ends: [endOf(0), endOf(1)] as const,
    hold: () => void (isHeld = true),
    release() {
      isHeld = false
      for (const write of waiting.splice(0)) write()
    },
    close: () => void (isOpen = false),
  }
}

const deaf: LinkHandlers = {
  onHint: () => undefined,
  onNotification: () => undefined,
  respond: () => Promise.resolve(undefined),
}

test('hints above the bound are dropped while the peer does not read, and flow again when it does', async () => {
  const pair = createPair()
  const heard: string[] = []
  const here = new Link(pair.ends[0], deaf)
  const there = new Link(pair.ends[1], {
    ...deaf,
    onHint: (topic, payload) => heard.push(`${topic} ${payload.byteLength}`),
  })
  const payload = new Uint8Array(16 * 1024)
  pair.hold()
  let sent = 0
  while (here.hint('a', payload)) sent += 1
  expect(sent).toBeGreaterThan(200)
  expect(sent * payload.byteLength).toBeLessThanOrEqual(MAX_WAITING_HINT_BYTES)
  expect(here.hint('a', payload)).toBe(false)
  pair.release()
  await vi.waitFor(() => expect(heard).toHaveLength(sent))
  expect(here.hint('b', new Uint8Array(1))).toBe(true)
  await vi.waitFor(() => expect(heard.at(-1)).toBe('b 1'))
  pair.close()
  expect(there.hint('a', payload)).toBe(false)
})

test('a request has a response, or none: after the deadline, after an error, and when the peer is gone', async () => {
  const pair = createPair()
  const here = new Link(pair.ends[0], deaf)
  const never = new Promise(() => undefined)
  const there = new Link(pair.ends[1], {
    ...deaf,
    respond: async (what, body) => {
      if (what === 'fails') throw new Error('no')
      return what === 'hangs' ? await never : [what, body]
    },
  })
  expect(await here.request('echo', { number: 1 }, 1000)).toEqual(['echo', { number: 1 }])
  expect(await here.request('fails', undefined, 1000)).toBeUndefined()
  expect(await here.request('hangs', undefined, 10)).toBeUndefined()
  const waiting = here.request('hangs', undefined, 60_000)
  here.close()
  expect(await waiting).toBeUndefined()
  pair.close()
  expect(await here.request('echo', undefined, 1000)).toBeUndefined()
  expect(there.isOpen).toBe(false)
})
