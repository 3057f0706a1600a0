import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { Secret } from '#core/config/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { TicketIssuer, proxyTokenOf } from './tickets.ts'

const workerId = '0197a1a2-0000-7000-8000-000000000001'
const module = { digest: `sha256:${'a'.repeat(64)}`, reference: '' }

describe('the tickets of a manager', () => {
  test('are reused for half of their lifetime, then replaced', () => {
    let nowMs = 1_000_000_000
    const tickets = new TicketIssuer(new Secret('a token of both'), () => nowMs)
    const first = tickets.forWorker(workerId, module)
    nowMs += 11 * 3600_000
    expect(tickets.forWorker(workerId, module)).toBe(first)
    expect(tickets.forWorker(workerId.replace(/1$/, '2'), module)).not.toBe(first)
    nowMs += 2 * 3600_000
    const second = tickets.forWorker(workerId, module)
    expect(second).not.toBe(first)
    for (const ticket of [first, second]) {
      expect(tickets.check(ticket)).toEqual({ ...module, reader: `worker:${workerId}` })
    }
    nowMs += 24 * 3600_000
    for (const ticket of [first, second]) expect(tickets.check(ticket)).toBeUndefined()
  })

  test('for readers are valid for an hour', () => {
    let nowMs = 1_000_000_000
    const tickets = new TicketIssuer(new Secret('a token of both'), () => nowMs)
    const { ticket, expiresAt } = tickets.forReader(null, module)
    expect(expiresAt.getTime()).toBe(nowMs + 3600_000)
    expect(tickets.check(ticket)).toEqual({ ...module, reader: 'platform' })
    nowMs = expiresAt.getTime()
    expect(tickets.check(ticket)).toBeUndefined()
  })
})

describe('the proxy token', () => {
  test('is the configured one, else the same for all managers with one secret key', () => {
    const master = randomBytes(32)
    const made = () => proxyTokenOf(undefined, createKeyring(master)).reveal()
    expect(made()).toBe(made())
    expect(made()).toMatch(/^[A-Za-z0-9_-]{22}$/)
    expect(proxyTokenOf(undefined, createKeyring(randomBytes(32))).reveal()).not.toBe(made())
    expect(proxyTokenOf(new Secret('given'), createKeyring(master)).reveal()).toBe('given')
  })
})
