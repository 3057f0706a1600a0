/** Answers that need no credentials are rendered once, whatever the number of requests, and are validated (contract section 11). */
import { gunzipSync } from 'node:zlib'
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createMetrics, describeDocument, singlePage } from '#http/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { defineMetrics, gauge } from '#core/metrics/index.ts'
import { BUILD, startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

const METRICS = defineMetrics('Test', { renderings: gauge('test_renderings', 'How often the metrics were rendered') })

let folder: string
let edge: TestEdge
let renderings = 0

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'skein-kept-'))
  await mkdir(join(folder, 'assets'))
  await writeFile(join(folder, 'index.html'), '<html></html>')
  await writeFile(join(folder, 'assets/page-1.js'), 'let page = 1;'.repeat(200))
  await writeFile(join(folder, 'assets/page-1.js.br'), 'as it was built')
  const removeSource = METRICS.renderings.fromValue(() => (renderings += 1))
  edge = await startEdge({
    corsOrigins: ['https://console.example.com'],
    health: {
      build: BUILD,
      metrics: createMetrics([METRICS.set]),
      readiness: new Readiness(),
      serviceOf: () => 'test',
    },
    routes: (app) => {
      void singlePage({ path: '/console', page: { folder } })(app)
    },
  })
  return removeSource
})
afterAll(async () => {
  await edge[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

/** Without the transparent decompression of `fetch`. */
async function ask(url: string, headers: Record<string, string> = {}, method: 'GET' | 'HEAD' = 'GET') {
  const { statusCode, headers: answered, rawPayload } = await edge.app.inject({ method, url, headers })
  return { status: statusCode, headers: answered, bytes: rawPayload }
}

const CONSTANT = [
  ['/openapi.json', /^application\/json/],
  ['/docs/json', /^application\/json/],
  ['/docs/yaml', /^application\/x-yaml/],
  ['/docs', /^text\/html/],
  ['/docs/', /^text\/html/],
  ['/docs/static/swagger-ui.css', /^text\/css/],
  ['/docs/static/swagger-initializer.js', /^application\/javascript/],
  ['/docs/guides', /^text\/html/],
  ['/docs/guides/tasks.md', /^text\/html/],
  ['/', /^text\/html/],
  ['/console/assets/page-1.js', /^text\/javascript/],
] as const

describe.each(CONSTANT)('%s', (url, type) => {
  test('is validated by a tag, and 304 has no body', async () => {
    const first = await ask(url)
    expect([first.status, first.headers['content-type']]).toEqual([200, expect.stringMatching(type)])
    const etag = first.headers['etag'] as string
    expect(etag).toMatch(/^"[\w-]+"$/)
    for (const tags of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const again = await ask(url, { 'if-none-match': tags })
      expect([again.status, again.bytes.length, again.headers['etag'], again.headers['cache-control']]).toEqual([
        304,
        0,
        etag,
        first.headers['cache-control'],
      ])
      expect(again.headers['vary']).toBe(first.headers['vary'])
    }
    expect((await ask(url, { 'if-none-match': '"other"' })).status).toBe(200)
    const head = await ask(url, {}, 'HEAD')
    expect([head.status, head.bytes.length, head.headers['etag'], head.headers['content-length']]).toEqual([
      200,
      0,
      etag,
      String(first.bytes.length),
    ])
  })

  test('is compressed on request, with a tag of its own', async () => {
    const plain = await ask(url)
    const compressed = await ask(url, { 'accept-encoding': 'gzip' })
    if (plain.bytes.length < 1024) {
      expect(compressed.headers['content-encoding']).toBeUndefined()
      return
    }
    expect(compressed.headers['content-encoding']).toBe('gzip')
    expect(gunzipSync(compressed.bytes)).toEqual(plain.bytes)
    expect(compressed.headers['etag']).not.toBe(plain.headers['etag'])
    for (const { headers } of [plain, compressed]) expect(headers['vary']).toBe('Origin, Accept-Encoding')
    const known = { 'accept-encoding': 'gzip', 'if-none-match': String(compressed.headers['etag']) }
    expect((await ask(url, known)).status).toBe(304)
    expect((await ask(url, { ...known, 'accept-encoding': 'identity' })).status).toBe(200)
  })

  test('is complete for a request with a range, which it does not support', async () => {
    const part = await ask(url, { range: 'bytes=0-9' })
    expect([part.status, part.headers['accept-ranges'], part.headers['content-range']]).toEqual([
      200,
      undefined,
      undefined,
    ])
  })
})

test('the document is rendered once for all of its callers and paths', async () => {
  let readings = 0
  const older = { [Symbol.replace]: (text: string) => ((readings += 1), text) } as unknown as RegExp
  const start = () => startEdge({ routes: (app) => describeDocument(app, { twins: [{ older, newer: '' }] }) })
  await using single = await start()
  // Each path is compared with the rule whenever the document is rendered.
  await single.app.inject({ url: '/openapi.json' })
  const ofOneRendering = readings
  expect(ofOneRendering).toBeGreaterThan(0)
  await using other = await start()
  const urls = ['/openapi.json', '/docs/json', '/docs/yaml']
  const answers = await Promise.all(
    Array.from({ length: 30 }, (_, index) => other.app.inject({ url: urls[index % urls.length] as string })),
  )
  expect(answers.map(({ statusCode }) => statusCode)).toEqual(answers.map(() => 200))
  await other.app.inject({ url: '/docs/%6Ason' })
  expect(readings - ofOneRendering).toBe(ofOneRendering)
})

test('metrics are rendered once for all that read them together', async () => {
  const texts = await Promise.all(Array.from({ length: 20 }, () => ask('/metrics')))
  expect(new Set(texts.map(({ bytes }) => bytes.toString())).size).toBe(1)
  expect(texts[0]?.bytes.toString()).toMatch(/^test_renderings 1$/m)
  expect(texts[0]?.headers['cache-control']).toBe('no-store')
  const compressed = await ask('/metrics', { 'accept-encoding': 'gzip' })
  expect(gunzipSync(compressed.bytes).toString()).toMatch(/^test_renderings \d$/m)
})

test('a file of the console is sent as it was built', async () => {
  const { bytes, headers } = await ask('/console/assets/page-1.js', { 'accept-encoding': 'br' })
  expect([bytes.toString(), headers['content-encoding']]).toEqual(['as it was built', 'br'])
  expect(headers['cache-control']).toContain('immutable')
})
