import { beforeEach, describe, expect, test } from 'vitest'
import { Lease } from './lease.ts'

const TTL_MS = 20_000
const MARGIN_MS = 2_000
const DAY_MS = 86_400_000

let nowMs = 0
let sleptMs = 0
let lease: Lease

beforeEach(() => {
  nowMs = 1_000_000
  sleptMs = 0
  lease = new Lease({ now: () => nowMs, wallNow: () => nowMs + sleptMs + 1_700_000_000_000 })
})

function renewAfter(sequence: bigint, answerMs: number): void {
  lease.sent(sequence)
  nowMs += answerMs
  lease.renewed(sequence, TTL_MS)
}

describe('the lease of a worker', () => {
  test('is not valid before a heartbeat was answered', () => {
    lease.sent(1n)
    expect(lease.isValid()).toBe(false)
  })

  test('counts from the moment the heartbeat was sent, less 2 s', () => {
    renewAfter(1n, 5_000)
    nowMs += TTL_MS - MARGIN_MS - 5_000 - 1
    expect(lease.isValid()).toBe(true)
    nowMs += 1
    expect(lease.isValid()).toBe(false)
  })

  test('ends a tenth early where it is shorter than 20 s', () => {
    lease.sent(1n)
    lease.renewed(1n, 1_000)
    nowMs += 899
    expect(lease.isValid()).toBe(true)
    nowMs += 1
    expect(lease.isValid()).toBe(false)
  })

  test('is not renewed by a repeated answer, or by one to a heartbeat that was never sent', () => {
    renewAfter(1n, 0)
    nowMs += 10_000
    lease.renewed(1n, TTL_MS)
    lease.renewed(7n, TTL_MS)
    nowMs += TTL_MS - MARGIN_MS - 10_000
    expect(lease.isValid()).toBe(false)
  })

  test('is not renewed by an answer from an earlier session', () => {
    lease.sent(1n)
    lease.restarted()
    lease.renewed(1n, TTL_MS)
    expect(lease.isValid()).toBe(false)
  })

  test('that expired begins again with the answer to a heartbeat in flight', () => {
    lease.sent(0n)
    lease.end()
    lease.renewed(0n, TTL_MS)
    expect(lease.isValid()).toBe(true)
  })

  test('ends when the machine slept for more than 2 s, and no late answer renews it', () => {
    renewAfter(1n, 0)
    lease.sent(2n)
    sleptMs = 2_001
    expect(lease.isValid()).toBe(false)
    lease.renewed(2n, TTL_MS)
    expect(lease.isValid()).toBe(false)
    lease.end()
    expect(lease.hasSlept()).toBe(false)
    lease.renewed(2n, TTL_MS)
    expect(lease.isValid()).toBe(false)
    renewAfter(3n, 0)
    expect(lease.isValid()).toBe(true)
  })

  test('goes on when a clock that began in 1970 is set, and notices a sleep afterwards', () => {
    const sinceStart = { now: () => nowMs, wallNow: () => nowMs + sleptMs }
    lease = new Lease(sinceStart)
    renewAfter(1n, 0)
    sleptMs = 1_790_000_000_000
    expect(lease.hasSlept()).toBe(false)
    expect(lease.isValid()).toBe(true)
    lease.followClock()
    renewAfter(2n, 1_000)
    expect(lease.isValid()).toBe(true)
    nowMs += TTL_MS - MARGIN_MS - 1_000 - 1
    expect(lease.isValid()).toBe(true)
    sleptMs += 2_001
    expect(lease.hasSlept()).toBe(true)
    expect(lease.isValid()).toBe(false)
  })

  test('notices a sleep also while the clock is not set', () => {
    lease = new Lease({ now: () => nowMs, wallNow: () => nowMs + sleptMs })
    renewAfter(1n, 0)
    lease.followClock()
    sleptMs = 2_001
    expect(lease.hasSlept()).toBe(true)
    expect(lease.isValid()).toBe(false)
    lease.end()
    renewAfter(2n, 0)
    expect(lease.isValid()).toBe(true)
  })

  test('takes a day forward for a sleep, once', () => {
    renewAfter(1n, 0)
    sleptMs = DAY_MS
    expect(lease.isValid()).toBe(false)
    lease.end()
    renewAfter(2n, 0)
    expect(lease.isValid()).toBe(true)
  })

  test('neither ends nor lasts longer when the clock goes back by a day', () => {
    renewAfter(1n, 0)
    sleptMs = -DAY_MS
    expect(lease.isValid()).toBe(true)
    lease.followClock()
    nowMs += TTL_MS - MARGIN_MS - 1
    expect(lease.isValid()).toBe(true)
    nowMs += 1
    expect(lease.isValid()).toBe(false)
  })

  test('does not treat a slow correction of the wall clock as sleep', () => {
    renewAfter(1n, 0)
    for (let step = 0; step < 10; step++) {
      sleptMs += 400
      expect(lease.isValid()).toBe(true)
      lease.followClock()
    }
  })
})
