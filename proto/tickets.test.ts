import { describe, expect, test } from 'vitest'
import { createTicketSigner, createTicketVerifier, isSameToken } from './tickets.ts'

const workerId = '0197a1a2-0000-7000-8000-000000000001'
const digest = `sha256:${'a'.repeat(64)}`
const reference = `ghcr.io/acme/add@sha256:${'b'.repeat(64)}`

describe('a ticket', () => {
  const signer = createTicketSigner('a token of both')
  const verify = createTicketVerifier(signer.publicKey)
  const ticket = signer.sign({ workerId, digest, reference }, 1000)

  test('names the worker that may read this module from this reference until it expires', () => {
    expect(verify(ticket, { digest, reference }, 999)).toBe(workerId)
    expect(verify(ticket, { digest, reference }, 1000)).toBeUndefined()
    expect(verify(ticket, { digest: digest.replace('a', 'c'), reference }, 999)).toBeUndefined()
    expect(verify(ticket, { digest, reference: '' }, 999)).toBeUndefined()
  })

  test('is the same for everybody who has the token, and no one else', () => {
    expect(createTicketSigner('a token of both').sign({ workerId, digest, reference }, 1000)).toBe(ticket)
    const other = createTicketSigner('another token').sign({ workerId, digest, reference }, 1000)
    expect(verify(other, { digest, reference }, 999)).toBeUndefined()
  })

  test.each([
    '',
    'nonsense',
    ticket.replace('1000', '9999'),
    ticket.replace('-000000000001', '-000000000002'),
    `${ticket.slice(0, -2)}${ticket.endsWith('AA') ? 'BB' : 'AA'}`,
    ticket.slice(0, -1),
    `${ticket}\n`,
  ])('that was changed counts for nothing: %j', (changed) => {
    expect(verify(changed, { digest, reference }, 999)).toBeUndefined()
  })
})

test('tokens are equal as a whole or not at all', () => {
  expect(isSameToken('secret', 'secret')).toBe(true)
  expect(isSameToken('secre', 'secret')).toBe(false)
  expect(isSameToken('', 'secret')).toBe(false)
  expect(isSameToken('Secret', 'secret')).toBe(false)
})
