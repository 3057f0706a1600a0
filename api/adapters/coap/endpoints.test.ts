import { expect, test } from 'vitest'
import { Endpoints } from './endpoints.ts'

const peer = (number: number) => ({ key: `10.0.0.1 ${number}`, address: '10.0.0.1', port: number })

test('a response is kept for 247 seconds and then discarded', () => {
  let now = 0
  const endpoints = new Endpoints(() => now)
  endpoints.remember(peer(1), 7, 68)
  now = 247_000
  expect(endpoints.responseCodeOf(peer(1).key, 7)).toBe(68)
  expect(endpoints.responseCodeOf(peer(1).key, 8)).toBeUndefined()
  expect(endpoints.responseCodeOf(peer(2).key, 7)).toBeUndefined()
  now = 248_000
  expect(endpoints.responseCodeOf(peer(1).key, 7)).toBeUndefined()
  expect(endpoints.answeredRequests).toBe(1)
  for (let round = 0; round < 100; round++) endpoints.sweep()
  expect(endpoints.answeredRequests).toBe(0)
  expect(endpoints.find(peer(1).key)).toBeUndefined()
})

test('a reused message identifier is kept for the full lifetime again', () => {
  let now = 0
  const endpoints = new Endpoints(() => now)
  endpoints.remember(peer(1), 7, 68)
  now = 248_000
  endpoints.remember(peer(1), 8, 68)
  endpoints.remember(peer(1), 7, 164)
  for (let round = 0; round < 100; round++) endpoints.sweep()
  expect(endpoints.responseCodeOf(peer(1).key, 7)).toBe(164)
  expect(endpoints.answeredRequests).toBe(2)
})

test('seconds beyond the end of their counter are handled', () => {
  let now = 65_530_000
  const endpoints = new Endpoints(() => now)
  endpoints.remember(peer(1), 7, 68)
  now += 100_000
  expect(endpoints.responseCodeOf(peer(1).key, 7)).toBe(68)
  now += 200_000
  expect(endpoints.responseCodeOf(peer(1).key, 7)).toBeUndefined()
})

test('a request that waits for its response is counted before the response is kept', () => {
  const endpoints = new Endpoints(() => 0)
  expect(endpoints.isFull(0)).toBe(false)
  expect(endpoints.isFull(4 * 1024 * 1024)).toBe(true)
  for (let port = 0; port < 250_000; port++) endpoints.remember(peer(port), 1, 68)
  expect(endpoints.isFull(0)).toBe(true)
})

test('the message identifiers for a peer each occur once before one repeats, in an order of their own', () => {
  const endpoint = new Endpoints(() => 0).of(peer(1))
  const first = endpoint.nextMessageId()
  const all = new Set([first])
  for (let count = 1; count < 65_536; count++) all.add(endpoint.nextMessageId())
  expect(all.size).toBe(65_536)
  expect(endpoint.nextMessageId()).toBe(first)
})

test('a message identifier cannot be guessed from the previous one', () => {
  const endpoint = new Endpoints(() => 0).of(peer(1))
  const distances = new Map<number, number>()
  let before = endpoint.nextMessageId()
  for (let count = 0; count < 10_000; count++) {
    const next = endpoint.nextMessageId()
    const distance = (next - before + 65_536) % 65_536
    distances.set(distance, (distances.get(distance) ?? 0) + 1)
    before = next
  }
  // Of 65,536 distances each comes 0.15 times on average.
  expect(Math.max(...distances.values())).toBeLessThan(20)
})

test('a verified address stays known for five minutes, whatever else is discarded', () => {
  let now = 0
  const endpoints = new Endpoints(() => now)
  endpoints.prove(peer(1))
  now = 299_000
  for (let round = 0; round < 100; round++) endpoints.sweep()
  expect(endpoints.isProven(peer(1).key)).toBe(true)
  expect(endpoints.isProven(peer(2).key)).toBe(false)
  now = 300_000
  expect(endpoints.isProven(peer(1).key)).toBe(false)
  for (let round = 0; round < 100; round++) endpoints.sweep()
  expect(endpoints.find(peer(1).key)).toBeUndefined()
})
