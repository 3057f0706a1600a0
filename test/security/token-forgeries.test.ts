/** Tokens that are not ours, or not as we write them (RFC 8725): refused wherever a bearer is taken, as if there were none. */
import { createHmac, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi, TestUser } from '../harness/api.ts'

/** Order of the group of Ed25519 (RFC 8032 section 5.1). */
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

type Json = Record<string, unknown>
type Signer = (input: string) => Buffer

let api: TestApi
let user: TestUser
let victim: TestUser
let domain: string
let kid: string
/** The key of the installation itself: what is refused with it is refused for its form. */
let ownKey: KeyObject
let ownPublicKey: KeyObject
beforeAll(async () => {
  api = await startTestApi()
  ;[user, victim] = [await api.newUser(), await api.newUser()]
  domain = (await user.call('POST', '/domains', { name: 'own' })).json<{ id: string }>().id
  const { rows } = await sql<{ kid: string; sealed: Buffer }>`
    SELECT kid, sealed_private_key AS sealed FROM signing_keys WHERE retired_at IS NULL`.execute(api.database.db)
  const [row] = rows
  kid = row?.kid ?? ''
  ownKey = createPrivateKey(api.infrastructure.keyring.open('signing key', kid, row?.sealed ?? Buffer.alloc(0)))
  ownPublicKey = createPublicKey(ownKey)
})
afterAll(async () => await api[Symbol.asyncDispose]())

const base64url = (text: string | Buffer) => Buffer.from(text).toString('base64url')
const partsOf = (token: string) => token.split('.') as [string, string, string]
const decode = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString()) as Json

const own: Signer = (input) => sign(null, Buffer.from(input), ownKey)
const write = (header: string, claims: string, by: Signer = own) =>
  `${header}.${claims}.${base64url(by(`${header}.${claims}`))}`
/** A token with another header and other claims, signed by us unless said otherwise. */
function forge({ header = {}, claims = {}, by }: { header?: Json; claims?: Json; by?: Signer }): string {
  const [ownHeader, ownClaims] = partsOf(user.accessToken)
  const merged = [decode(ownHeader), decode(ownClaims)].map((value, index) => ({
    ...value,
    ...(index === 0 ? header : claims),
  }))
  return write(...(merged.map((value) => base64url(JSON.stringify(value))) as [string, string]), by)
}

function withRawHeader(change: (json: string) => string): string {
  const [header, claims] = partsOf(user.accessToken)
  return write(base64url(change(Buffer.from(header, 'base64url').toString())), claims)
}
function withRawClaims(change: (json: string) => string): string {
  const [header, claims] = partsOf(user.accessToken)
  return write(header, base64url(change(Buffer.from(claims, 'base64url').toString())))
}

const hmacWith = (format: 'pem' | 'der' | 'raw', digest: string): Signer => {
  const der = ownPublicKey.export({ format: 'der', type: 'spki' })
  const key = { pem: ownPublicKey.export({ format: 'pem', type: 'spki' }), der, raw: der.subarray(-32) }[format]
  return (input) => createHmac(digest, key).update(input).digest()
}

/** S + L instead of S: the same equation holds where nobody asks that S is small. */
function malleated(token: string): string {
  const [header, claims, text] = partsOf(token)
  const signature = Buffer.from(text, 'base64url')
  const s = BigInt(`0x${Buffer.from(signature.subarray(32)).reverse().toString('hex')}`) + ORDER
  const more = Buffer.from(s.toString(16).padStart(64, '0'), 'hex').reverse()
  return `${header}.${claims}.${base64url(Buffer.concat([signature.subarray(0, 32), more]))}`
}

/** Another last letter with the same bits. */
function sameBits(part: string): string {
  const at = ALPHABET.indexOf(part.at(-1) ?? '')
  const unused = { 2: 15, 3: 3 }[part.length % 4] ?? 0
  return unused === 0 ? `${part}=` : part.slice(0, -1) + (ALPHABET[(at & ~unused) | ((at + 1) & unused)] ?? '')
}

const strangers = generateKeyPairSync('ed25519')
const byStranger: Signer = (input) => sign(null, Buffer.from(input), strangers.privateKey)
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const strangersJwk = () => strangers.publicKey.export({ format: 'jwk' })
const nothing: Signer = () => Buffer.alloc(0)
const now = () => Math.floor(Date.now() / 1000)

const FORGERIES: Readonly<Record<string, () => string>> = {
  'alg none without a signature': () => forge({ header: { alg: 'none' }, by: nothing }),
  'alg None': () => forge({ header: { alg: 'None' }, by: nothing }),
  'alg nOnE with our signature': () => forge({ header: { alg: 'nOnE' } }),
  'no signature at all': () => `${partsOf(user.accessToken).slice(0, 2).join('.')}.`,
  'no third part': () => partsOf(user.accessToken).slice(0, 2).join('.'),
  'no alg': () => withRawHeader((json) => json.replace('"alg":"EdDSA",', '')),
  'alg as a list': () => forge({ header: { alg: ['EdDSA'] } }),
  'HS256 with the public key as PEM': () => forge({ header: { alg: 'HS256' }, by: hmacWith('pem', 'sha256') }),
  'HS256 with the public key as DER': () => forge({ header: { alg: 'HS256' }, by: hmacWith('der', 'sha256') }),
  'HS512 with the bytes of the public key': () => forge({ header: { alg: 'HS512' }, by: hmacWith('raw', 'sha512') }),
  'HS256 under the name of EdDSA': () => forge({ by: hmacWith('raw', 'sha256') }),
  'RS256 with a key of somebody': () =>
    forge({ header: { alg: 'RS256' }, by: (input) => sign('sha256', Buffer.from(input), rsa.privateKey) }),
  'ES256, whatever is signed': () => forge({ header: { alg: 'ES256' } }),
  'Ed25519, the newer name': () => forge({ header: { alg: 'Ed25519' } }),
  'a key of somebody under our kid': () => forge({ by: byStranger }),
  'a kid that is unknown': () => forge({ header: { kid: 'unknown' }, by: byStranger }),
  'a kid that is a path': () => forge({ header: { kid: '../../../dev/null' }, by: nothing }),
  'a kid that is SQL': () => forge({ header: { kid: "' OR 1=1 --" }, by: byStranger }),
  'a kid that is a member of every object': () => forge({ header: { kid: '__proto__' }, by: byStranger }),
  'a kid that is a number': () => forge({ header: { kid: 1 } }),
  'no kid': () => withRawHeader((json) => json.replace(/,"kid":"[^"]*"/, '')),
  'another typ': () => forge({ header: { typ: 'at+jwt' } }),
  'no typ': () => withRawHeader((json) => json.replace('"typ":"JWT",', '')),
  'a key of its own (jwk)': () => forge({ header: { jwk: strangersJwk() }, by: byStranger }),
  'a key of its own, signed by us': () => forge({ header: { jwk: strangersJwk() } }),
  'an address of keys (jku)': () => forge({ header: { jku: 'https://evil.example/jwks.json' } }),
  'an address of a certificate (x5u)': () => forge({ header: { x5u: 'https://evil.example/cert.pem' } }),
  'a certificate (x5c)': () => forge({ header: { x5c: ['MIIB'] } }),
  'crit with an extension': () => forge({ header: { crit: ['exp'] } }),
  'crit with b64': () => forge({ header: { crit: ['b64'], b64: false } }),
  'crit without an extension': () => forge({ header: { crit: [] } }),
  'compressed (zip)': () => forge({ header: { zip: 'DEF' } }),
  'a nested token (cty)': () => forge({ header: { cty: 'JWT' } }),
  'alg twice in the header': () => withRawHeader((json) => json.replace('{', '{"alg":"none",')),
  'kid twice in the header': () => withRawHeader((json) => json.replace('{', '{"kid":"other",')),
  'blanks in the header': () => withRawHeader((json) => json.replace('{', '{ ')),
  'something behind the header': () => withRawHeader((json) => `${json} `),
  'another user': () => {
    const [header, claims, signature] = partsOf(user.accessToken)
    return `${header}.${base64url(JSON.stringify({ ...decode(claims), sub: victim.id }))}.${signature}`
  },
  administrator: () => {
    const [header, claims, signature] = partsOf(user.accessToken)
    return `${header}.${base64url(JSON.stringify({ ...decode(claims), role: 'admin' }))}.${signature}`
  },
  'the claims of another token': () =>
    [partsOf(user.accessToken)[0], partsOf(victim.accessToken)[1], partsOf(user.accessToken)[2]].join('.'),
  'an expired one': () => forge({ claims: { exp: now() - 1 } }),
  'one that never ends': () => withRawClaims((json) => json.replace(/"exp":\d+,?/, '')),
  'an end that is text': () => forge({ claims: { exp: String(now() + 3600) } }),
  'an end beyond all numbers': () => withRawClaims((json) => json.replace(/"exp":\d+/, '"exp":1e999')),
  'another issuer': () => forge({ claims: { iss: 'https://evil.example' } }),
  'our issuer in a list': () => forge({ claims: { iss: ['skein'] } }),
  'no issuer': () => withRawClaims((json) => json.replace('"iss":"skein",', '')),
  'a session of nobody': () => forge({ claims: { jti: '00000000-0000-4000-8000-000000000000.0' } }),
  'a session that is no id': () => forge({ claims: { jti: "x' OR true --.0" } }),
  'a token for somebody else (aud)': () => forge({ claims: { aud: 'https://other.example' } }),
  'a token for later (nbf)': () => forge({ claims: { nbf: now() + 3600 } }),
  'a recovery token': () => forge({ claims: { type: 2 } }),
  'a token of no known type': () => forge({ claims: { type: 99 } }),
  'an API key that was never made': () => forge({ claims: { type: 3 } }),
  'a domain that is no text': () => forge({ claims: { domain: { id: 1 } } }),
  'a refresh token': () => user.refreshToken,
  'sub twice in the claims': () => withRawClaims((json) => json.replace('{', `{"sub":"${victim.id}",`)),
  'role twice in the claims': () => withRawClaims((json) => json.replace('{', '{"role":"admin",')),
  'blanks in the claims': () => withRawClaims((json) => `${json}\n`),
  'claims that are a list': () => write(partsOf(user.accessToken)[0], base64url('[]')),
  'claims that are null': () => write(partsOf(user.accessToken)[0], base64url('null')),
  'a fourth part': () => `${user.accessToken}.${partsOf(user.accessToken)[2]}`,
  'an empty part behind it': () => `${user.accessToken}.`,
  'text behind it': () => `${user.accessToken}A`,
  padding: () => `${user.accessToken}==`,
  'a signature with other unused bits': () => {
    const [header, claims, signature] = partsOf(user.accessToken)
    return `${header}.${claims}.${sameBits(signature)}`
  },
  'a header with other unused bits, signed': () => {
    const [header, claims] = partsOf(user.accessToken)
    return write(sameBits(header), claims)
  },
  'claims with other unused bits, signed': () => {
    const [header, claims] = partsOf(user.accessToken)
    return write(header, sameBits(claims))
  },
  'the other alphabet of base64, signed': () => {
    const [header] = partsOf(user.accessToken)
    const claims = Buffer.from(
      JSON.stringify({ ...decode(partsOf(user.accessToken)[1]), extra: '???>>>~~~' }),
    ).toString('base64')
    return write(header, claims.replaceAll('=', ''))
  },
  'an equal signature of a larger number': () => malleated(user.accessToken),
  'a signature of zeros': () => forge({ by: () => Buffer.alloc(64) }),
  'half a signature': () => forge({ by: (input) => own(input).subarray(0, 32) }),
  'a signature of another encoding': () =>
    forge({ by: (input) => Buffer.concat([Buffer.from([0x30, 0x40]), own(input)]) }),
  'JSON instead of the compact form': () => {
    const [header, payload, signature] = partsOf(user.accessToken)
    return JSON.stringify({ payload, signatures: [{ protected: header, signature }] })
  },
  'five parts, encrypted': () => `${partsOf(user.accessToken)[0]}.a.b.c.d`,
}

test('the unforged token is accepted, and the method of forging is valid', async () => {
  expect((await api.as(`Bearer ${user.accessToken}`)('GET', '/users/profile')).status).toBe(200)
  expect(forge({})).toBe(user.accessToken)
  expect((await api.as(`Bearer ${forge({ claims: { exp: now() + 60 } })}`)('GET', '/users/profile')).status).toBe(200)
  expect(sameBits(partsOf(user.accessToken)[2])).not.toBe(partsOf(user.accessToken)[2])
})

test.each(Object.keys(FORGERIES))('%s is refused', async (name) => {
  const token = FORGERIES[name]?.() ?? ''
  const call = api.as(`Bearer ${token}`)
  const answers = [
    await call('GET', '/users/profile'),
    await call('GET', `/users/${victim.id}`),
    await call('POST', '/domains', { name: 'forged' }),
    await api.anonymous('GET', `/${domain}/events?authorization=${encodeURIComponent(`Bearer ${token}`)}`),
    // A refresh token is what this one is for.
    ...(name === 'a refresh token' ? [] : [await call('POST', '/users/tokens/refresh')]),
  ]
  for (const { status, text } of answers) {
    expect(status, text).toBe(401)
    expect(text).not.toContain(victim.username)
  }
})

test('a token is accepted for its own purpose only', async () => {
  expect((await api.as(`Bearer ${user.accessToken}`)('POST', '/users/tokens/refresh')).status).toBe(401)
  expect((await api.as(`Bearer ${user.refreshToken}`)('GET', '/users/profile')).status).toBe(401)
  expect((await api.as(`Client ${user.accessToken}`)('GET', '/users/profile')).status).toBe(401)
  expect((await api.as(user.accessToken)('GET', '/users/profile')).status).toBe(401)
})
