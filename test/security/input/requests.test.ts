/**
 * Requests of strangers in DER, links of mails and every query of the lists never keep the main thread busy for more than 100 ms of processor time at a
 * stretch, and twice as many of them cost at most two and a half times as much. The delay of `/health` is printed, not asserted.
 */
import { describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sampled } from '../../harness/length.ts'
import { wholeDocument } from '../../harness/openapi.ts'
import { fill } from './forms.ts'
import type { Sent } from './platform.ts'
import { KIB, TIMEOUT, ledgerOf, platformOfTests } from './protocol-support.ts'
import { repeated } from './wires.ts'

const platform = platformOfTests()
/** Of one small request, so that what it costs is seen. */
const TIMES = 40

type Parameter = { in: string; name: string }
type Operation = { parameters?: Parameter[]; requestBody?: { content: Record<string, unknown> } }

const { paths } = wholeDocument() as {
  paths: Record<string, Record<string, Operation>>
}

/** Answers to what is wrong, and to what is right; 404 for ids that nobody has. */
const ANSWERS = [200, 202, 400, 401, 403, 404, 413, 414, 415, 422, 429, 431]

async function sendAll(sent: Sent, times: number): Promise<void> {
  for (let time = 0; time < times; time++) {
    const { status, text } = await platform().send(sent)
    expect([status, text]).toEqual([expect.toBeOneOf(ANSWERS), text])
  }
}

test('every kind of body that a route takes has its rows in these files', () => {
  const types = Object.values(paths)
    .flatMap((methods) => Object.values(methods))
    .flatMap(({ requestBody }) => Object.keys(requestBody?.content ?? {}))
  expect([...new Set(types)].toSorted()).toEqual([
    'application/json', // http.test.ts, documents.test.ts
    'application/merge-patch+json', // read as application/json is; test/api/device-state.test.ts
    'application/ocsp-request', // here
    'application/octet-stream', // documents.test.ts
    'application/senml+cbor', // documents.test.ts
    'application/senml+json', // documents.test.ts
    'application/toml', // documents.test.ts
    'application/wasm', // modules.test.ts
    'application/x-yaml', // documents.test.ts
    'application/yaml', // documents.test.ts
    'multipart/form-data', // multipart.test.ts
    'text/csv', // documents.test.ts
    'text/plain', // documents.test.ts
    'text/toml', // documents.test.ts
    'text/yaml', // documents.test.ts
  ])
  // Every other PUT describes its body.
  const withoutBody = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { requestBody }]) =>
      method === 'put' && requestBody === undefined ? [path] : [],
    ),
  )
  expect(withoutBody.toSorted()).toEqual([
    '/channels/{channel_id}/clients/{client_id}', // no body
    '/{domain_id}/channels/{channel_id}/clients/{client_id}', // no body
  ])
})

describe('requests in DER', () => {
  const { requireLinear } = ledgerOf('DER', platform)
  /** Of the definite form, in as many bytes of length as are needed. */
  const der = (tag: number, content: Buffer): Buffer => {
    const { length } = content
    const size =
      length < 0x80
        ? [length]
        : length < 0x1_0000
          ? [0x82, length >> 8, length & 0xff]
          : [0x83, length >> 16, (length >> 8) & 0xff, length & 0xff]
    return Buffer.concat([Buffer.from([tag, ...size]), content])
  }
  const sequence = (...parts: Buffer[]) => der(0x30, Buffer.concat(parts))
  const nested = (bytes: number) => {
    let whole: Buffer = Buffer.alloc(0)
    while (whole.length < bytes) whole = sequence(whole)
    return whole
  }
  const sha1 = sequence(der(0x06, Buffer.from('2b0e03021a', 'hex')), der(0x05, Buffer.alloc(0)))
  const question = (serial: number) =>
    sequence(
      sequence(
        sha1,
        der(0x04, Buffer.alloc(20)),
        der(0x04, Buffer.alloc(20)),
        der(0x02, Buffer.from([1, serial >> 8, serial & 0xff])),
      ),
    )
  const asking = (...questions: Buffer[]) => sequence(sequence(sequence(...questions)))

  const REQUESTS: readonly [string, (bytes: number) => Buffer][] = [
    ['nested sequences', nested],
    ['nested sequences without an end', (bytes) => repeated(bytes, [0x30, 0x80])],
    ['empty sequences', (bytes) => asking(repeated(bytes, [0x30, 0x00]))],
    ['questions', (bytes) => asking(...Array.from({ length: bytes / 80 }, (_, index) => question(index)))],
    ['a long object identifier', (bytes) => asking(sequence(sequence(sequence(der(0x06, Buffer.alloc(bytes, 0xff))))))],
    [
      'a long serial number',
      (bytes) =>
        asking(
          sequence(
            sequence(sha1, der(0x04, Buffer.alloc(20)), der(0x04, Buffer.alloc(20)), der(0x02, Buffer.alloc(bytes))),
          ),
        ),
    ],
    ['lengths that are too long', (bytes) => repeated(bytes, [0x30, 0x84, 0xff, 0xff, 0xff, 0xff])],
    ['long tags', (bytes) => repeated(bytes, [0x3f, 0xff, 0xff, 0x7f, 0])],
    ['bytes of no kind', (bytes) => Buffer.alloc(bytes, 0xff)],
  ]

  test.each(REQUESTS)('OCSP with %s, without an account', TIMEOUT, async (name, of) => {
    const body = of(15 * KIB)
    const headers = { 'content-type': 'application/ocsp-request' }
    await requireLinear(`OCSP with ${name}`, TIMES, (times) =>
      sendAll({ method: 'POST', path: '/certs/ocsp', headers, body }, times),
    )
    const path = `/certs/ocsp/${encodeURIComponent(of(700).toString('base64'))}`
    await requireLinear(`OCSP in the path with ${name}`, TIMES, (times) => sendAll({ method: 'GET', path }, times))
  })

  test('an OCSP request that is too large is refused unread', TIMEOUT, async () => {
    const headers = { 'content-type': 'application/ocsp-request' }
    const sent = { method: 'POST', path: '/certs/ocsp', headers, body: nested(20 * KIB) }
    expect(await platform().send(sent)).toMatchObject({ status: 413 })
  })

  test.each(REQUESTS)('a signing request of %s', TIMEOUT, async (name, of) => {
    const base64 = of(11 * KIB)
      .toString('base64')
      .replaceAll(/.{64}/g, '$&\n')
    const csr = `-----BEGIN CERTIFICATE REQUEST-----\n${base64}\n-----END CERTIFICATE REQUEST-----\n`
    const sent = {
      method: 'POST',
      path: `/${platform().domainId}/certs/csrs/${platform().clientId}`,
      headers: { authorization: platform().bearer, 'content-type': 'application/json' },
      body: JSON.stringify({ csr, ttl: '1h' }),
    }
    await requireLinear(`a signing request of ${name}`, TIMES, (times) => sendAll(sent, times))
  })
})

describe('queries', () => {
  const { measure } = ledgerOf('queries', platform)
  const LONG = 14_000
  const encoded = (text: string) => encodeURIComponent(text).slice(0, LONG).replace(/%.?$/, '')
  const VALUES: readonly [string, string][] = [
    ['nested lists', '['.repeat(LONG / 2) + ']'.repeat(LONG / 2)],
    ['nested objects', encoded('{"a":'.repeat(700) + '1' + '}'.repeat(700))],
    ['many keys', encoded(`{${fill(LONG / 2.5, (index) => `"k${index}":1`, ',')}}`)],
    ['wildcards', '%25'.repeat(LONG / 3)],
    ['backslashes', '%5C'.repeat(LONG / 3)],
    ['commas', 'a,'.repeat(LONG / 2)],
    ['a token', `${'a.'.repeat(LONG / 4)}${'a'.repeat(LONG / 2)}`],
    ['base64', 'A'.repeat(LONG)],
    ['digits', '9'.repeat(LONG)],
    ['letters of two bytes', '%D0%96'.repeat(LONG / 6)],
  ]
  const queried = Object.entries(paths).flatMap(([path, { get }]) => {
    const names = get?.parameters?.filter((one) => one.in === 'query').map(({ name }) => name) ?? []
    return names.length === 0 || /events|stream|live|logs$/.test(path) ? [] : [{ path, names }]
  })
  const addressOf = (path: string) =>
    path
      .replaceAll('{domain_id}', platform().domainId)
      .replaceAll('{channel_id}', platform().channelId)
      .replaceAll('{client_id}', platform().clientId)
      .replaceAll(/\{[^{}]+\}/g, () => newId())

  test.each(VALUES)('%s in each parameter', TIMEOUT, async (name, value) => {
    expect(queried.length).toBeGreaterThan(60)
    const headers = { authorization: platform().bearer }
    await measure(`${name} in each parameter of ${queried.length} routes`, async () => {
      // One parameter after the other has its turn, so that each route meets each value in some of them.
      for (const [index, { path, names }] of sampled(queried, 4).entries()) {
        for (let step = 0; step < 3; step++) {
          const parameter = names[(index + step) % names.length] as string
          await sendAll({ method: 'GET', path: `${addressOf(path)}?${parameter}=${value}`, headers }, 1)
        }
      }
    })
  })

  test('one parameter again and again', TIMEOUT, async () => {
    const headers = { authorization: platform().bearer }
    for (const parameter of ['tag', 'tags', 'metadata', 'id', 'name', 'order', 'limit', 'cursor', 'a[]', '__proto__']) {
      const query = fill(LONG, (index) => `${parameter}=a${index}`, '&')
      const path = `/${platform().domainId}/clients?${query}`
      await measure(`${parameter} again and again`, () => sendAll({ method: 'GET', path, headers }, TIMES))
    }
  })

  test('links of mails, without an account', TIMEOUT, async () => {
    for (const [name, value] of VALUES)
      for (const path of ['/verify-email', '/subscriptions/confirm'])
        await measure(`${path} with ${name}`, () => sendAll({ method: 'GET', path: `${path}?token=${value}` }, TIMES))
  })
})
