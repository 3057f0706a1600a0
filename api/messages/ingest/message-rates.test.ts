// The order in which messages of limited domains are admitted, and how many; the clock of the buckets is the test's.
import { expect, test } from 'vitest'
import { createMemoryLimits } from '#core/limits/index.ts'
import { MessageRates } from './message-rates.ts'

function ratesWith(values: Record<string, number>) {
  let nowMs = 0
  const limits = createMemoryLimits(() => nowMs)
  const quotas = { ofDomain: (domainKey: number, name: string) => (domainKey === 1 ? values[name] : undefined) }
  const rates = new MessageRates({ quotas, limits })
  return { rates, limits, quotas, pass: (durationMs: number) => (nowMs += durationMs) }
}

const turn = () => new Promise((resolve) => void setTimeout(resolve, 5))

test('a domain without a quota never waits', () => {
  const { rates } = ratesWith({ messages_per_second: 1 })
  expect(rates.admit(2, 1_000_000)).toBeUndefined()
  expect(rates.require(2, 1_000_000)).toBeUndefined()
})

test('the messages of one second are admitted, and later ones wait in order', async () => {
  const { rates, pass } = ratesWith({ messages_per_second: 20 })
  const admitted: number[] = []
  const waits = Array.from({ length: 30 }, async (_, index) => {
    await rates.admit(1, 1)
    admitted.push(index)
  })
  await turn()
  expect(admitted).toEqual(Array.from({ length: 20 }, (_, index) => index))
  pass(250)
  await expect.poll(() => admitted.length).toBe(24)
  pass(1000)
  await Promise.all(waits)
  expect(admitted).toEqual(Array.from({ length: 30 }, (_, index) => index))
  rates.stop()
})

test('a message that is larger than its part of the rate is admitted, and delays the next one', async () => {
  const { rates, pass } = ratesWith({ message_bytes_per_second: 100 })
  const admitted: string[] = []
  const publish = async (name: string, bytes: number) => {
    await rates.admit(1, bytes)
    admitted.push(name)
  }
  void publish('large', 250)
  void publish('next', 1)
  await turn()
  expect(admitted).toEqual(['large'])
  // The bucket holds a second: its debt is paid with what comes later.
  let passedMs = 0
  while (admitted.length < 2) {
    passedMs += pass(100) > 0 ? 100 : 0
    await new Promise((resolve) => void setTimeout(resolve, 110))
  }
  expect(passedMs).toBeGreaterThanOrEqual(1500)
  expect(admitted).toEqual(['large', 'next'])
  rates.stop()
})

test('two processes share the rate', async () => {
  const { rates, limits, quotas } = ratesWith({ messages_per_second: 20 })
  const other = new MessageRates({ quotas, limits })
  let admitted = 0
  for (const one of [rates, other]) for (let sent = 0; sent < 30; sent++) void one.admit(1, 1)?.then(() => admitted++)
  await turn()
  expect(admitted).toBe(20)
  rates.stop()
  other.stop()
})

test('messages that are only counted delay the ones after them', async () => {
  const { rates } = ratesWith({ messages_per_second: 10 })
  await rates.admit(1, 1)
  for (let sent = 0; sent < 30; sent++) rates.count(1, 1)
  let isAdmitted = false
  void rates.admit(1, 1)?.then(() => (isAdmitted = true))
  await turn()
  expect(isAdmitted).toBe(false)
  rates.stop()
  await turn()
  expect(isAdmitted).toBe(true)
})

test('a message that can be refused is refused with the quota and a time, and then does not delay others', async () => {
  const { rates, pass } = ratesWith({ messages_per_second: 1, message_bytes_per_second: 1000 })
  await rates.require(1, 1)
  await expect(rates.require(1, 1)).rejects.toMatchObject({
    kind: 'rate_limited',
    message: 'the quota of the domain is 1 messages and 1000 bytes per second',
    retryAfterSeconds: 2,
  })
  const next = rates.require(1, 1)
  pass(1000)
  await next
  rates.stop()
})

test('removing the quota admits the waiting messages', async () => {
  const values: Record<string, number> = { messages_per_second: 1 }
  const { rates } = ratesWith(values)
  await rates.admit(1, 1)
  const waiting = rates.admit(1, 1)
  delete values['messages_per_second']
  await waiting
  rates.stop()
})
