// password guessing: limits per account and address that an attacker cannot use to lock out the owner
import { expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import type { ThrottleRules } from './login-throttle.ts'
import { LoginThrottle } from './login-throttle.ts'

const RULES: ThrottleRules = {
  pair: { burst: 3, perMinute: 6 },
  address: { burst: 5, perMinute: 60 },
  account: { burst: 8, perMinute: 6 },
  known: { burst: 2, perMinute: 6 },
  paceMs: 1,
}

function withClock() {
  let nowMs = 0
  const throttle = new LoginThrottle({ rules: RULES, now: () => nowMs })
  const retryAfter = async (account: string, address: string, isKnown = false) => {
    try {
      const admission = await throttle.admit({ account, address, isKnown })
      admission.fail()
      return 0
    } catch (error) {
      if (!(error instanceof ServiceError) || error.kind !== 'rate_limited') throw error
      return error.retryAfterSeconds
    }
  }
  return { throttle, retryAfter, pass: (ms: number) => (nowMs += ms) }
}

test('failures of one account from one address are limited, and the error contains the time of the next attempt', async () => {
  const { retryAfter, pass } = withClock()
  for (let attempt = 0; attempt < RULES.pair.burst; attempt++) expect(await retryAfter('a', '10.0.0.1')).toBe(0)
  expect(await retryAfter('a', '10.0.0.1')).toBe(10)
  expect(await retryAfter('a', '10.0.0.2')).toBe(0)
  pass(10_000)
  expect(await retryAfter('a', '10.0.0.1')).toBe(0)
  expect(await retryAfter('a', '10.0.0.1')).toBe(10)
})

test('one address cannot try many accounts', async () => {
  const { retryAfter } = withClock()
  for (let account = 0; account < RULES.address.burst; account++)
    expect(await retryAfter(`user ${account}`, '10.0.0.1')).toBe(0)
  expect(await retryAfter('another', '10.0.0.1')).toBe(1)
  expect(await retryAfter('another', '10.0.0.2')).toBe(0)
})

test('many addresses cannot try one account, and the known address of its owner is not limited by them', async () => {
  const { retryAfter } = withClock()
  for (let host = 0; host < RULES.account.burst; host++) expect(await retryAfter('a', `10.0.0.${host}`)).toBe(0)
  expect(await retryAfter('a', '10.0.1.1')).toBe(10)
  expect(await retryAfter('a', '192.0.2.7', true)).toBe(0)
})

test('a right password is not counted', async () => {
  const { throttle, retryAfter } = withClock()
  for (let login = 0; login < 50; login++)
    (await throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: false })).release()
  expect(await retryAfter('a', '10.0.0.1')).toBe(0)
})

test('a second release has no effect', async () => {
  const { throttle, retryAfter } = withClock()
  const first = await throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: false })
  for (let attempt = 1; attempt < RULES.pair.burst; attempt++) await retryAfter('a', '10.0.0.1')
  first.release()
  first.release()
  expect(await retryAfter('a', '10.0.0.1')).toBe(0)
  expect(await retryAfter('a', '10.0.0.1')).toBe(10)
})

test('attempts from a known address are only delayed', async () => {
  const { retryAfter } = withClock()
  for (let attempt = 0; attempt < 30; attempt++) expect(await retryAfter('a', '10.0.0.1', true)).toBe(0)
})

test('attempts above the queue limit are rejected, and the queued ones are admitted', async () => {
  const { retryAfter } = withClock()
  const answers = await Promise.all(Array.from({ length: 60 }, () => retryAfter('a', '10.0.0.1', true)))
  expect(answers.filter((seconds) => seconds === 0)).toHaveLength(RULES.known.burst + 20)
  expect(await retryAfter('a', '10.0.0.1', true)).toBe(0)
})

test('stopping ends queued attempts', async () => {
  const throttle = new LoginThrottle({ rules: { ...RULES, paceMs: 3_600_000 }, now: () => 0 })
  const attempt = () => throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: true })
  for (let count = 0; count < RULES.known.burst; count++) await attempt()
  const waiting = attempt()
  throttle.stop()
  await expect(waiting).rejects.toMatchObject({ kind: 'unavailable' })
})

test('concurrent logins with right passwords do not limit each other', async () => {
  const { throttle } = withClock()
  const attempt = () => throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: false })
  const first = await Promise.all(Array.from({ length: RULES.pair.burst }, attempt))
  const more = Array.from({ length: RULES.pair.burst * 2 }, async () => (await attempt()).release())
  for (const admission of first) admission.release()
  await Promise.all(more)
})

test('wrong passwords among concurrent logins are counted, and waiting attempts are rejected', async () => {
  const { throttle, retryAfter } = withClock()
  const attempt = () => throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: false })
  const first = await Promise.all(Array.from({ length: RULES.pair.burst }, attempt))
  const waiting = Promise.all([retryAfter('a', '10.0.0.1'), retryAfter('a', '10.0.0.1')])
  const [right, ...wrong] = first
  for (const admission of wrong) admission.fail()
  right?.release()
  right?.fail()
  expect(new Set(await waiting)).toEqual(new Set([0, 10]))
})

test('stopping ends attempts that wait for others', async () => {
  const { throttle } = withClock()
  const attempt = () => throttle.admit({ account: 'a', address: '10.0.0.1', isKnown: false })
  for (let count = 0; count < RULES.pair.burst; count++) await attempt()
  const waiting = attempt()
  throttle.stop()
  await expect(waiting).rejects.toMatchObject({ kind: 'unavailable' })
})
