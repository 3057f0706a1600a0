import { describe, expect, test } from 'vitest'
import { createTicketSigner, createTicketVerifier, isSameToken } from './tickets.ts'

const reader = 'worker:0197a1a2-0000-7000-8000-000000000001'
const digest = `sha256:${'a'.repeat(64)}`
const reference = `ghcr.io/acme/add@sha256:${'b'.repeat(64)}`
const grant = { reader, digest, reference }

describe('a ticket', () => {
  const signer = createTicketSigner('a token of both')
  const verify = createTicketVerifier(signer.publicKey)
  const ticket = signer.sign(grant, 1000)
  const [header = '', payload = '', signature = ''] = ticket.split('.')
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')

  test('names the reader that may pull this module from this reference until it expires', () => {
    expect(verify(ticket, 999)).toEqual(grant)
    expect(verify(ticket, 1000)).toBeUndefined()
  })

  test('is the same for everybody who has the token, and no one else', () => {
    expect(createTicketSigner('a token of both').sign(grant, 1000)).toBe(ticket)
    expect(verify(createTicketSigner('another token').sign(grant, 1000), 999)).toBeUndefined()
  })

  test('is a JSON Web Token with the algorithm of RFC 8037', () => {
    expect(JSON.parse(Buffer.from(header, 'base64url').toString())).toEqual({ alg: 'EdDSA', typ: 'JWT' })
    expect(JSON.parse(Buffer.from(payload, 'base64url').toString())).toEqual({
      sub: reader,
      exp: 1000,
      digest,
      reference,
    })
  })

  test.each([
    '',
    'nonsense',
    `${header}.${encode({ sub: reader, exp: 9999, digest, reference })}.${signature}`,
    `${header}.${encode({ sub: reader.replace(/1$/, '2'), exp: 1000, digest, reference })}.${signature}`,
    `${encode({ alg: 'none', typ: 'JWT' })}.${payload}.`,
    `${encode({ alg: 'none', typ: 'JWT' })}.${payload}.${signature}`,
    `${encode({ alg: 'HS256', typ: 'JWT' })}.${payload}.${signature}`,
    `${ticket.slice(0, -2)}${ticket.endsWith('AA') ? 'BB' : 'AA'}`,
    ticket.slice(0, -1),
    `${ticket}\n`,
  ])('that was changed is refused: %j', (changed) => {
    expect(verify(changed, 999)).toBeUndefined()
  })
})

test('tokens are equal as a whole or not at all', () => {
  expect(isSameToken('secret', 'secret')).toBe(true)
  expect(isSameToken('secre', 'secret')).toBe(false)
  expect(isSameToken('', 'secret')).toBe(false)
  expect(isSameToken('Secret', 'secret')).toBe(false)
})
