import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { Secret } from '#core/config/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { createTicketOffice, proxyTokenOf } from './tickets.ts'

const grant = {
  workerId: '0197a1a2-0000-7000-8000-000000000001',
  digest: `sha256:${'a'.repeat(64)}`,
  reference: '',
}

describe('a ticket office', () => {
  test('gives the same ticket again for half of its life, and then a new one', () => {
    let nowMs = 1_000_000_000
    const office = createTicketOffice(new Secret('a token of both'), () => nowMs)
    const first = office.ticketFor(grant)
    nowMs += 11 * 3600_000
    expect(office.ticketFor(grant)).toBe(first)
    expect(office.ticketFor({ ...grant, workerId: grant.workerId.replace(/1$/, '2') })).not.toBe(first)
    nowMs += 2 * 3600_000
    const second = office.ticketFor(grant)
    expect(second).not.toBe(first)
    for (const ticket of [first, second]) expect(office.verify(ticket, grant, nowMs / 1000)).toBe(grant.workerId)
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
