/** Task manager section 6 against registries that misbehave. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { WASM, digestOf, sendBytes, startRegistry, wasmOf } from './misbehaving-registry.ts'
import type { TestRegistry } from './misbehaving-registry.ts'
import { runProxy } from './running-proxy.ts'

const blobsOf = (dataDir: string) => readdirSync(join(dataDir, 'proxy/blobs/sha256'))

/** Misbehaves at the n-th blob request and behaves from then on. */
function onBlob(registry: TestRegistry, times: number, misbehave: Parameters<TestRegistry['intercept']>[0]): void {
  let left = times
  registry.intercept((request, response, path) => {
    if (!path.includes('/blobs/') || left === 0) return false
    left -= 1
    return misbehave(request, response, path)
  })
}

describe('a blob', () => {
  test('with a wrong digest is refused and nothing is cached', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const { moduleDigest } = registry.module('m', 'latest', wasmOf(1000))
    onBlob(registry, 99, (request, response) => {
      sendBytes(request, response, wasmOf(1000, 2))
      return true
    })
    await expect(proxy.bring('m')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining(moduleDigest),
    })
    expect(blobsOf(proxy.dataDir)).toEqual([])
  })

  test('longer than its descriptor is cut off', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', wasmOf(1000))
    onBlob(registry, 99, (_request, response) => {
      const endless = setInterval(() => response.write(wasmOf(65_536)), 1)
      response.on('close', () => clearInterval(endless))
      return true
    })
    await expect(proxy.bring('m')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining('longer than the 1000 bytes'),
    })
  })

  test('that is interrupted is resumed with Range', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(500_000)
    registry.module('m', 'latest', wasm)
    onBlob(registry, 1, (_request, response) => {
      response.writeHead(200, { 'content-length': wasm.length })
      response.write(wasm.subarray(0, 200_000), () => response.destroy())
      return true
    })
    expect((await proxy.bring('m')).equals(wasm)).toBe(true)
    expect(registry.seen.at(-1)?.range).toMatch(/^bytes=\d+-$/)
  })

  test('that ends early without an error is resumed, also if the registry ignores the Range', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(500_000)
    registry.module('m', 'latest', wasm)
    onBlob(registry, 1, (_request, response) => {
      response.writeHead(200, { connection: 'close' }).end(wasm.subarray(0, 300_000))
      return true
    })
    onBlob(registry, 2, (_request, response) => {
      response.writeHead(200, { 'content-length': wasm.length }).end(wasm)
      return true
    })
    expect((await proxy.bring('m')).equals(wasm)).toBe(true)
    expect(registry.count('/blobs/')).toBe(2)
  })

  test('that stalls is aborted after its deadline and resumed', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host }, limits: { stallMs: 400 } })
    const wasm = wasmOf(500_000)
    registry.module('m', 'latest', wasm)
    onBlob(registry, 1, (_request, response) => {
      response.writeHead(200, { 'content-length': wasm.length })
      response.write(wasm.subarray(0, 100_000))
      return true
    })
    expect((await proxy.bring('m')).equals(wasm)).toBe(true)
  })

  test('that is slow but never silent for long arrives', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { stallMs: 2_000 },
    })
    const wasm = wasmOf(100_000)
    registry.module('m', 'latest', wasm)
    onBlob(registry, 1, (_request, response) => {
      response.writeHead(200, { 'content-length': wasm.length })
      let sent = 0
      // Twelve pieces take longer together than one silence may last.
      const trickle = setInterval(() => {
        response.write(wasm.subarray(sent, (sent += 9_000)))
        if (sent >= wasm.length) {
          clearInterval(trickle)
          response.end()
        }
      }, 200)
      return true
    })
    expect((await proxy.bring('m')).equals(wasm)).toBe(true)
    expect(registry.count('/blobs/')).toBe(1)
  })

  test('that stalls forever fails within the deadline of the pull, and leaves nothing', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { pullDeadlineMs: 700, stallMs: 200 },
    })
    registry.module('m', 'latest', wasmOf(500_000))
    onBlob(registry, 99, (_request, response) => {
      response.writeHead(200, { 'content-length': 500_000 }).flushHeaders()
      return true
    })
    await expect(proxy.bring('m')).rejects.toMatchObject({ kind: 'timeout' })
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/tmp'))).toEqual([])
  })
})

describe('a manifest', () => {
  test('larger than 4 MiB is refused, announced or not', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.intercept((_request, response, path) => {
      if (!path.includes('/manifests/')) return false
      const body = Buffer.alloc(5 * 1024 * 1024, ' ')
      response.writeHead(200, path.endsWith('stated') ? { 'content-length': body.length } : {}).end(body)
      return true
    })
    for (const tag of ['stated', 'chunked']) {
      await expect(proxy.resolve(`m:${tag}`)).rejects.toMatchObject({
        kind: 'malformed',
        message: expect.stringContaining('4194304'),
      })
    }
  })

  test('with other bytes than its requested or announced digest is refused', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const { manifestDigest } = registry.module('m', 'latest', WASM)
    registry.intercept((_request, response, path) => {
      if (!path.includes('/manifests/')) return false
      response.writeHead(200, { 'docker-content-digest': manifestDigest }).end('{"schemaVersion":2}')
      return true
    })
    for (const reference of ['m', `m@${manifestDigest}`]) {
      await expect(proxy.resolve(reference)).rejects.toMatchObject({
        kind: 'malformed',
        message: expect.stringContaining('has digest'),
      })
    }
  })

  test('is requested by digest after its tag was resolved, and a moved tag changes nothing', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const first = wasmOf(1000, 1)
    registry.module('m', 'latest', first)
    const found = await proxy.resolve('m')
    registry.module('m', 'latest', wasmOf(1000, 2))
    expect((await proxy.fetch(found.digest, found.reference)).equals(first)).toBe(true)
  })

  test('of a moved tag is used when the cached answer is no longer fresh', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { tagFreshMs: 0 },
    })
    registry.module('m', 'latest', wasmOf(1000, 1))
    const before = await proxy.resolve('m')
    const { moduleDigest } = registry.module('m', 'latest', wasmOf(1000, 2))
    const after = await proxy.resolve('m')
    expect([before.digest === moduleDigest, after.digest]).toEqual([false, moduleDigest])
  })
})

describe('a registry', () => {
  test('that answers 429 is asked again after its Retry-After, and not before', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    registry.module('m', 'latest', WASM)
    const asked: number[] = []
    registry.intercept((_request, response, path) => {
      if (!path.includes('/manifests/')) return false
      asked.push(performance.now())
      if (asked.length > 1) return false
      response.writeHead(429, { 'retry-after': '1' }).end()
      return true
    })
    expect(await proxy.bring('m')).toEqual(WASM)
    expect((asked[1] ?? 0) - (asked[0] ?? 0)).toBeGreaterThanOrEqual(990)
  })

  test('that asks for a longer pause than the deadline of a pull is reported at once', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    registry.intercept((_request, response) => {
      response.writeHead(429, { 'retry-after': '3600' }).end()
      return true
    })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'rate_limited' })
    expect(registry.seen).toHaveLength(1)
  })

  test('that answers 500 is asked three times; one that recovers is used', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    registry.module('m', 'latest', WASM)
    let failures = 2
    registry.intercept((_request, response, path) => {
      if (!path.endsWith('/always') && failures-- <= 0) return false
      response.writeHead(500).end()
      return true
    })
    expect(await proxy.bring('m')).toEqual(WASM)
    await expect(proxy.resolve('m:always')).rejects.toMatchObject({ kind: 'unavailable' })
    expect(registry.count('/always')).toBe(3)
  })

  test('that never answers is abandoned', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: `http://${registry.host}` },
      limits: { headersMs: 100 },
    })
    registry.intercept(() => true)
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'timeout' })
  })

  test('that fails after the first pull does no harm: digests come from the cache, tags from the last answer', async () => {
    const registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: `http://${registry.host}` },
      limits: { tagFreshMs: 0 },
    })
    registry.module('m', 'latest', WASM)
    const before = await proxy.resolve('m')
    await proxy.fetch(before.digest, before.reference)
    await registry.close()
    expect(await proxy.resolve('m')).toMatchObject({ digest: before.digest, stale: true })
    expect(await proxy.bring('m')).toEqual(WASM)
    expect((await proxy.resolve(before.reference)).stale).toBe(false)
  })

  test('that deleted the tag is obeyed', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: `http://${registry.host}` },
      limits: { tagFreshMs: 0 },
    })
    registry.module('m', 'latest', WASM)
    await proxy.bring('m')
    registry.intercept((_request, response) => {
      response.writeHead(404).end()
      return true
    })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'not_found' })
  })
})

describe('redirects', () => {
  test('are followed for blobs', async () => {
    await using registry = await startRegistry()
    await using storage = await startRegistry()
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: '127.0.0.1' } })
    registry.module('m', 'latest', WASM)
    storage.blob(WASM, 'application/wasm')
    onBlob(registry, 99, (_request, response) => {
      response.writeHead(307, { location: `http://${storage.host}/v2/x/blobs/${digestOf(WASM)}?signature=1` }).end()
      return true
    })
    expect(await proxy.bring(`${registry.host}/m`)).toEqual(WASM)
    expect(storage.count('/blobs/')).toBe(1)
  })

  test('in a loop are ended', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    onBlob(registry, 99, (_request, response, path) => {
      response.writeHead(302, { location: path }).end()
      return true
    })
    await expect(proxy.bring('m')).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('redirects more than'),
    })
  })
})

describe('the private network of the proxy', () => {
  test.each([
    ['127.0.0.1 by number', (port: number) => `127.0.0.1:${port}/m`],
    ['127.0.0.1 by name', (port: number) => `localhost:${port}/m`],
    ['::1', (port: number) => `[::1]:${port}/m`],
    ['an IPv4 address in an IPv6 one', (port: number) => `[::ffff:127.0.0.1]:${port}/m`],
    ['a private address', () => '10.255.255.1/m'],
    ['the metadata service', () => '169.254.169.254/m'],
  ])('is inaccessible to references: %s', async (_what, reference) => {
    await using registry = await startRegistry()
    await using proxy = await runProxy()
    registry.module('m', 'latest', WASM)
    await expect(proxy.resolve(reference(registry.port))).rejects.toMatchObject({
      kind: 'forbidden',
      message: expect.stringContaining('SKEIN_PROXY_HTTP_HOSTS'),
    })
    expect(registry.seen).toEqual([])
  })

  test.each([
    'http://localhost:PORT/x',
    'http://127.0.0.2:PORT/x',
    'https://localhost:PORT/x',
    'http://[::1]:PORT/x',
    'file:///etc/passwd',
    'ftp://127.0.0.1/x',
  ])('is inaccessible to redirects: %s', async (location) => {
    await using registry = await startRegistry()
    await using inside = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    registry.module('m', 'latest', WASM)
    onBlob(registry, 99, (_request, response) => {
      response.writeHead(307, { location: location.replace('PORT', String(inside.port)) }).end()
      return true
    })
    await expect(proxy.bring('m')).rejects.toMatchObject({ kind: 'forbidden' })
    expect(inside.seen).toEqual([])
  })
})
