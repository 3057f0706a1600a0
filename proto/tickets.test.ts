import { createPrivateKey, hkdfSync, sign } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { createTicketSigner, createTicketVerifier, isSameToken } from './tickets.ts'

const reader = 'worker:0197a1a2-0000-7000-8000-000000000001'
const digest = `sha256:${'a'.repeat(64)}`
const reference = `ghcr.io/acme/add@sha256:${'b'.repeat(64)}`
const grant = { reader, digest, reference }

/** The signature with the key of the tickets of `a token of both`. */
function signBySameKey(text: string): string {
  const seed = Buffer.from(hkdfSync('sha256', 'a token of both', 'skein', 'module tickets', 32))
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed])
  return sign(null, Buffer.from(text), createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })).toString(
    'base64url',
  )
}

describe('a ticket', () => {
  const signer = createTicketSigner('a token of both')
  const verify = createTicketVerifier(signer.publicKey)
  const ticket = signer.sign(grant, 1000)
  const [header = '', payload = '', signature = ''] = ticket.split('.')
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')

  test('is signed in this test as the product signs it', () => {
    const [head, claims, own] = ticket.split('.')
    expect(signBySameKey(`${head}.${claims}`)).toBe(own)
  })

  test('contains the reader, the module and the reference, and expires', () => {
    expect(verify(ticket, 999)).toEqual(grant)
    expect(verify(ticket, 1000)).toBeUndefined()
  })

  test('is the same for all holders of the token, and invalid for another token', () => {
    expect(createTicketSigner('a token of both').sign(grant, 1000)).toBe(ticket)
    expect(verify(createTicketSigner('another token').sign(grant, 1000), 999)).toBeUndefined()
  })

  test.each<[string, object, object?]>([
    ['for another audience', { sub: reader, exp: 1000, digest, reference, aud: 'other' }],
    ['for later', { sub: reader, exp: 1000, digest, reference, nbf: 2000 }],
    ['without an end', { sub: reader, digest, reference }],
    ['with an end that is text', { sub: reader, exp: '1000', digest, reference }],
    ['in another order', { exp: 1000, sub: reader, digest, reference }],
    ['with an extension that must be understood', { sub: reader, exp: 1000, digest, reference }, { crit: ['exp'] }],
    ['compressed', { sub: reader, exp: 1000, digest, reference }, { zip: 'DEF' }],
  ])('%s is refused, also with a valid signature', (_, claims, more = {}) => {
    const text = [{ alg: 'EdDSA', typ: 'JWT', ...more }, claims].map((part) => encode(part)).join('.')
    expect(verify(`${text}.${signBySameKey(text)}`, 999)).toBeUndefined()
  })

  test('with a member twice is refused, also with a valid signature', () => {
    const twice = `{"sub":"worker:other",${JSON.stringify({ sub: reader, exp: 1000, digest, reference }).slice(1)}`
    const text = `${header}.${Buffer.from(twice).toString('base64url')}`
    expect(verify(`${text}.${signBySameKey(text)}`, 999)).toBeUndefined()
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
