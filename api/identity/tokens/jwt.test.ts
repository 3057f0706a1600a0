import { generateKeyPairSync } from 'node:crypto'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MAX_TOKEN_CHARS, TOKEN_TYPE, newClaims, signToken, verifyToken } from './jwt.ts'

const pair = generateKeyPairSync('ed25519')
const other = generateKeyPairSync('ed25519')
const keyOf = (kid: string) => (kid === 'one' ? pair.publicKey : undefined)
const claims = newClaims({ jti: 's.0', sub: 'u', type: TOKEN_TYPE.access, role: 'user' }, 1000, 3600)

test('a signed token is valid until it expires', () => {
  const token = signToken(claims, 'one', pair.privateKey)
  expect(verifyToken(token, keyOf, 1000)).toEqual(claims)
  expect(verifyToken(token, keyOf, 4599)).toEqual(claims)
  expect(verifyToken(token, keyOf, 4600)).toBeUndefined()
})

test('a token with another key, an unknown key id or another algorithm is rejected', () => {
  expect(verifyToken(signToken(claims, 'one', other.privateKey), keyOf, 1000)).toBeUndefined()
  expect(verifyToken(signToken(claims, 'two', pair.privateKey), keyOf, 1000)).toBeUndefined()
  const [, body] = signToken(claims, 'one', pair.privateKey).split('.')
  const none = Buffer.from(JSON.stringify({ alg: 'none', kid: 'one' })).toString('base64url')
  expect(verifyToken(`${none}.${body}.`, keyOf, 1000)).toBeUndefined()
})

test('other texts are rejected without an exception', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: MAX_TOKEN_CHARS + 10 }), (text) => verifyToken(text, keyOf, 1000) === undefined),
  )
  const token = signToken(claims, 'one', pair.privateKey)
  fc.assert(
    fc.property(fc.nat(token.length - 1), fc.constantFrom('A', 'z', '.', '_', '='), (index, letter) => {
      const changed = token.slice(0, index) + letter + token.slice(index + 1)
      return changed === token || verifyToken(changed, keyOf, 1000) === undefined
    }),
  )
})

test('a token has one valid text: no padding, no unused bits, no trailing characters (RFC 7515 section 2)', () => {
  const token = signToken(claims, 'one', pair.privateKey)
  for (const end of ['=', '==', 'A', '.', ' ', '\n', '%3D'])
    expect(verifyToken(token + end, keyOf, 1000)).toBeUndefined()
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const last = alphabet.indexOf(token.at(-1) ?? '')
  for (let step = 1; step < 16; step++)
    expect(verifyToken(token.slice(0, -1) + alphabet[(last + step) % 64], keyOf, 1000)).toBeUndefined()
})
