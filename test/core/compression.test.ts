/** Large answers are compressed on request (RFC 9110 section 12.5.3), those with secrets are not, and streams are not held back. */
import { Readable } from 'node:stream'
import { createGunzip, brotliDecompressSync, gunzipSync } from 'node:zlib'
import { request as httpRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { Type } from 'typebox'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { NoBody, SECRET, responses } from '#http/index.ts'
import { until } from '../harness/until.ts'
import { startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

const LARGE = 'a pump and a valve, '.repeat(100)
/** Above the size up to which an answer is compressed in place. */
const LARGER = LARGE.repeat(30)
const Texts = Type.Object({ text: Type.String() })
const Tokens = Type.Object({ list: Type.Array(Type.Object({ token: Type.String(SECRET) })) })

let edge: TestEdge
let source: Readable | undefined
/** Paths of the routes that have a hook for their answers. */
const hooked = new Set<string>()

beforeAll(async () => {
  edge = await startEdge({
    corsOrigins: ['https://console.example.com'],
    routes: (app) => {
      const config = { isPublic: true }
      app.addHook('onRoute', ({ method, url, onSend }) => {
        if (method === 'GET' && onSend !== undefined) hooked.add(url)
      })
      const response = responses({ 200: Type.String() })
      app.get('/text/:length', { config, schema: { response: responses({ 200: Texts }) } }, ({ params }) => ({
        text: LARGER.slice(0, Number((params as { length: string }).length)),
      }))
      app.get('/secret', { config, schema: { response: responses({ 200: Tokens }) } }, () => ({
        list: [{ token: LARGE }],
      }))
      app.get(
        '/secrets',
        {
          config: { ...config, secretsParameter: 'secrets' },
          schema: {
            querystring: Type.Object({ secrets: Type.Optional(Type.Boolean()) }),
            response: responses({ 200: Tokens }),
          },
        },
        ({ query }) => ({
          list: [{ token: LARGE }, { token: (query as { secrets?: boolean }).secrets === false ? '' : LARGE }],
        }),
      )
      app.get('/nothing', { config, schema: { response: responses({ 202: NoBody }) } }, (_request, reply) => {
        void reply.code(202).send()
      })
      app.get('/bytes', { config, schema: { response } }, async (_request, reply) =>
        reply.type('application/wasm').send(Buffer.from(LARGE) as never),
      )
      app.get('/part', { config, schema: { response } }, async (_request, reply) =>
        reply.header('content-range', 'bytes 0-1999/4000').type('text/plain').send(LARGE),
      )
      app.get('/stream/:subtype', { config, schema: { response } }, async (request, reply) => {
        source = new Readable({ read: () => undefined })
        const { subtype } = request.params as { subtype: string }
        return await reply.type(`text/${subtype}`).send(source as never)
      })
    },
  })
})
afterAll(() => edge[Symbol.asyncDispose]())

async function ask(url: string, encoding?: string, method: 'GET' | 'HEAD' = 'GET') {
  const headers = encoding === undefined ? {} : { 'accept-encoding': encoding }
  const { headers: answered, rawPayload, statusCode } = await edge.app.inject({ method, url, headers })
  return { status: statusCode, headers: answered, bytes: rawPayload }
}

test.each([
  ['br', brotliDecompressSync],
  ['gzip', gunzipSync],
] as const)('answers of any size above 1 KiB are the same in %s', async (encoding, decompress) => {
  for (const length of [1100, 20_000, LARGER.length]) {
    const plain = await ask(`/text/${length}`)
    const { headers, bytes } = await ask(`/text/${length}`, encoding)
    expect(headers['content-encoding']).toBe(encoding)
    expect(headers['content-length']).toBe(String(bytes.length))
    expect(headers['vary']).toBe('Origin, Accept-Encoding')
    expect(headers['content-type']).toBe(plain.headers['content-type'])
    expect(decompress(bytes)).toEqual(plain.bytes)
    expect(bytes.length).toBeLessThan(plain.bytes.length / 2)
    const head = await ask(`/text/${length}`, encoding, 'HEAD')
    expect([head.headers['content-encoding'], head.headers['content-length'], head.bytes.length]).toEqual([
      encoding,
      String(bytes.length),
      0,
    ])
  }
})

test('an answer that could be compressed says so to caches', async () => {
  const { headers } = await ask('/text/2000')
  expect([headers['content-encoding'], headers['vary']]).toEqual([undefined, 'Origin, Accept-Encoding'])
})

test('answers without a body, and those with secrets, pay for no hook', () => {
  expect([...hooked].toSorted()).toEqual(['/bytes', '/part', '/secrets', '/stream/:subtype', '/text/:length'])
})

test.each([
  ['a small answer', '/text/500'],
  ['an answer with a secret', '/secret'],
  ['an answer with secrets that could be left out', '/secrets'],
  ['an answer whose secrets are asked for', '/secrets?secrets=true'],
  ['an answer without a body', '/nothing'],
  ['bytes that are compressed or checked', '/bytes'],
  ['a part of an answer', '/part'],
])('%s is sent as it is', async (_what, url) => {
  const { headers, bytes } = await ask(url, 'br, gzip')
  expect([headers['content-encoding'], headers['vary']]).toEqual([undefined, 'Origin'])
  expect(bytes).toEqual((await ask(url)).bytes)
})

test('an answer without the secrets of its route is compressed, and not stored by caches', async () => {
  const { headers } = await ask('/secrets?secrets=false', 'gzip')
  expect([headers['content-encoding'], headers['vary']]).toEqual(['gzip', 'Origin, Accept-Encoding'])
  expect(headers['cache-control']).toBe('no-store')
})

test('an answer with a secret is not stored by caches, nor is its refusal', async () => {
  expect((await ask('/secret')).headers['cache-control']).toBe('no-store')
  expect((await ask('/secret?a=1&a=2')).headers['cache-control']).toBe('no-store')
  expect((await ask('/text/2000')).headers['cache-control']).toBeUndefined()
})

/** The answer, and the stream that the route sends. */
async function openStream(path: string): Promise<{ answer: IncomingMessage; source: Readable }> {
  source = undefined
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = httpRequest(`${edge.url}${path}`, { headers: { 'accept-encoding': 'gzip' } }, resolve)
    asked.on('error', reject).end()
    // The head of a stream is sent with its first piece.
    void until(() => source, 'the stream is open').then((opened) => opened.push('first\n'))
  })
  return { answer, source: source as unknown as Readable }
}

test('each piece of a compressed stream arrives before the next one exists', async () => {
  const { answer, source } = await openStream('/stream/csv')
  expect(answer.headers['content-encoding']).toBe('gzip')
  let text = ''
  answer.pipe(createGunzip()).on('data', (part: Buffer) => (text += part.toString()))
  await until(() => text === 'first\n', 'the first piece has arrived')
  source.push('second\n')
  await until(() => text === 'first\nsecond\n', 'the second piece has arrived')
  source.push(null)
  await until(() => answer.complete, 'the answer has ended')
})

test('a caller that leaves a compressed stream ends its source', async () => {
  const { answer, source } = await openStream('/stream/csv')
  answer.destroy()
  await until(() => source.destroyed, 'the source is closed')
})

test('a compressed stream that fails does not end as if it were complete', async () => {
  const { answer, source } = await openStream('/stream/csv')
  answer.resume()
  const ended = new Promise<string>((resolve) => {
    answer.once('end', () => resolve('end')).once('error', () => resolve('error'))
  })
  source.destroy(new Error('broken'))
  expect(await ended).toBe('error')
})

test('event streams are not compressed', async () => {
  const { answer } = await openStream('/stream/event-stream')
  expect(answer.headers['content-encoding']).toBeUndefined()
  answer.destroy()
})
