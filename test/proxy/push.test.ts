/** Pushing: who may write where, what is refused before a registry hears of it, and registries that misbehave. */
import { describe, expect, test } from 'vitest'
import { digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import type { TestRegistry } from './misbehaving-registry.ts'
import { componentFromText } from '../worker/pool.ts'
import { runProxy } from './running-proxy.ts'

const DOMAIN = '0197a1a2-0000-7000-8000-00000000000d'
const OTHER = '0197a1a2-0000-7000-8000-00000000000e'
const wasm = wasmOf(50_000)

/** Takes pushes as the specification says; `uploadsTo` is where the bytes of blobs are to go. */
function acceptPushes(registry: TestRegistry, uploadsTo = `http://${registry.host}`): Map<string, Buffer> {
  const taken = new Map<string, Buffer>()
  registry.intercept(async (request, response, path) => {
    if (request.method === 'HEAD') return response.writeHead(404).end() !== undefined
    if (request.method === 'GET') return false
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const bytes = Buffer.concat(pieces)
    if (request.method === 'POST') {
      response.writeHead(202, { location: `${uploadsTo}/upload/1?state=x` }).end()
    } else {
      const digest = new URL(request.url ?? '', 'http://x').searchParams.get('digest') ?? path
      taken.set(digest, bytes)
      response.writeHead(201).end()
    }
    return true
  })
  return taken
}

describe('a push', () => {
  test('requires the token of managers', async () => {
    await using proxy = await runProxy()
    const pushed = proxy.push({ reference: 'm:1' }, wasm, 'a wrong token of tests')
    await expect(pushed).rejects.toMatchObject({ kind: 'unauthenticated' })
  })

  test('of a component names what it exports and imports, and the file of the module', async () => {
    await using registry = await startRegistry()
    const taken = acceptPushes(registry)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const component = Buffer.from(
      await componentFromText(`(component
        (import "wasi:cli/environment@0.2.0" (instance (export "initial-cwd" (func (result (option string))))))
        (core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (instance $api (export "get" (func $f)) (export "put" (func $f)))
        (export "plant:meter/api@0.1.0" (instance $api)) (export "run" (func $f)))`),
    )
    expect(await proxy.push({ reference: 'acme/meter:1' }, component)).toContain('/acme/meter@')
    const [config, manifest] = [...taken.values()].flatMap((bytes) => {
      if (bytes[0] !== 0x7b) return []
      return [JSON.parse(bytes.toString()) as Record<string, unknown>]
    })
    expect(config).toMatchObject({
      architecture: 'wasm',
      os: 'wasip2',
      component: { exports: ['plant:meter/api@0.1.0', 'run'], imports: ['wasi:cli/environment@0.2.0'] },
    })
    expect(manifest).toMatchObject({ layers: [{ annotations: { 'org.opencontainers.image.title': 'meter.wasm' } }] })
    taken.clear()
    await proxy.push({ reference: 'acme/core:1' }, wasm)
    const core = [...taken.values()].map((bytes) => bytes.toString()).find((text) => text.includes('layerDigests'))
    expect(JSON.parse(core ?? '')).not.toHaveProperty('component')
  })

  test('of a domain is never stored below the id of another one, with a login or without', async () => {
    await using registry = await startRegistry()
    acceptPushes(registry)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const order = { reference: `${OTHER}/m:1`, domainId: DOMAIN }
    const forbidden = { kind: 'forbidden', message: expect.stringContaining('another domain') as string }
    await expect(proxy.push(order, wasm)).rejects.toMatchObject(forbidden)
    await expect(proxy.push({ ...order, username: 'u', password: 'p' }, wasm)).rejects.toMatchObject(forbidden)
    expect(registry.seen).toEqual([])
    expect(await proxy.push({ ...order, domainId: OTHER }, wasm)).toContain(`/${OTHER}/m@`)
  })

  test('of a domain is accepted by a registry without logins', async () => {
    await using registry = await startRegistry()
    acceptPushes(registry)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    for (const reference of [`${DOMAIN}/m:1`, 'm:1', `${registry.host}/acme/m:1`]) {
      expect(await proxy.push({ reference, domainId: DOMAIN }, wasm)).toContain('/m@')
      expect(await proxy.push({ reference, domainId: DOMAIN, username: 'u', password: 'p' }, wasm)).toContain('/m@')
    }
    expect(registry.seen.map(({ authorization }) => authorization).filter((one) => one !== undefined)).toEqual([])
  })

  test('of a domain uses the configured login below its own id only, and reports this', async () => {
    await using registry = await startRegistry()
    const configured = `Basic ${Buffer.from('robot:s3cret').toString('base64')}`
    const own = `Basic ${Buffer.from('u:p').toString('base64')}`
    registry.intercept((request, response) => {
      const { authorization } = request.headers
      if (authorization === configured || authorization === own) return false
      response.writeHead(401, { 'www-authenticate': 'Basic realm="test"' }).end()
      return true
    })
    acceptPushes(registry)
    await using proxy = await runProxy({
      environment: {
        PROXY_REGISTRY_URL: `http://${registry.host}`,
        PROXY_AUTHENTICATE: 'true',
        PROXY_REGISTRY_USERNAME: 'robot',
        PROXY_REGISTRY_PASSWORD: 's3cret',
      },
    })
    const shown = () => new Set(registry.seen.splice(0).map(({ authorization }) => authorization))
    expect(await proxy.push({ reference: `${DOMAIN}/m:1`, domainId: DOMAIN }, wasm)).toContain('/m@')
    expect(shown()).toEqual(new Set([undefined, configured]))
    await expect(proxy.push({ reference: 'acme/m:1', domainId: DOMAIN }, wasm)).rejects.toMatchObject({
      kind: 'unauthenticated',
      message: expect.stringMatching(
        new RegExp(`requires credentials for acme/m.*--registry-user.*/${DOMAIN}/`),
      ) as string,
    })
    expect(shown()).toEqual(new Set([undefined]))
    expect(await proxy.push({ reference: 'acme/m:1', domainId: DOMAIN, username: 'u', password: 'p' }, wasm)).toContain(
      '/m@',
    )
    expect(shown()).toEqual(new Set([undefined, own]))
  })

  test('below the id of a domain is visible to that domain and the platform only', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module(`${DOMAIN}/m`, 'latest', wasm)
    const notFound = { kind: 'not_found' }
    await expect(proxy.resolve(`${DOMAIN}/m`, { domain_id: OTHER })).rejects.toMatchObject(notFound)
    expect(registry.seen).toEqual([])
    expect(await proxy.resolve(`${DOMAIN}/m`, { domain_id: DOMAIN })).toMatchObject({ digest: digestOf(wasm) })
    expect(await proxy.resolve(`${DOMAIN}/m`)).toMatchObject({ digest: digestOf(wasm) })
    await expect(proxy.resolve(`${DOMAIN}/m`, { domain_id: OTHER })).rejects.toMatchObject(notFound)
  })

  test('of an invalid or too large module, another digest, or under a digest is refused and not kept', async () => {
    await using registry = await startRegistry()
    acceptPushes(registry)
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { maxModuleBytes: 60_000 },
    })
    const malformed = { kind: 'malformed' }
    const text = Buffer.from('hello, this is text')
    await expect(proxy.push({ reference: 'm:1' }, text)).rejects.toMatchObject(malformed)
    await expect(proxy.push({ reference: 'm:1', digest: digestOf(text) }, wasm)).rejects.toMatchObject(malformed)
    await expect(proxy.push({ reference: 'm:1', sizeBytes: 10 }, wasm)).rejects.toMatchObject(malformed)
    await expect(proxy.push({ reference: `m@${digestOf(wasm)}` }, wasm)).rejects.toMatchObject(malformed)
    await expect(proxy.push({ reference: 'm:1' }, wasmOf(70_000))).rejects.toMatchObject({
      kind: 'too_large',
    })
    expect(registry.seen).toEqual([])
    const digests = [digestOf(text), digestOf(wasm)]
    expect(await proxy.ask('POST', '/modules/status', { digests, exports: true })).toEqual({ modules: [] })
  })

  test('continues at another host without the credentials', async () => {
    await using registry = await startRegistry()
    await using storage = await startRegistry()
    acceptPushes(registry, `http://${storage.host}`)
    const taken = acceptPushes(storage)
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: '127.0.0.1' } })
    const reference = `${registry.host}/m:1`
    expect(await proxy.push({ reference, username: 'u', password: 'p' }, wasm)).toContain('/m@')
    expect(taken.get(digestOf(wasm))?.equals(wasm)).toBe(true)
    expect(storage.seen.map(({ authorization }) => authorization)).toEqual([undefined, undefined])
  })

  test.each([
    [401, 'unauthenticated'],
    [403, 'forbidden'],
    [405, 'forbidden'],
    [404, 'not_found'],
    [429, 'rate_limited'],
    [500, 'unavailable'],
  ])('that the registry answers with %i reports it', async (answer, kind) => {
    await using registry = await startRegistry()
    registry.intercept((request, response) => {
      response.writeHead(request.method === 'HEAD' ? 404 : answer).end()
      return true
    })
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    await expect(proxy.push({ reference: 'm:1' }, wasm)).rejects.toMatchObject({ kind })
  })

  test('to a private address that is not listed is refused', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy()
    const order = { reference: `${registry.host}/m:1`, username: 'u', password: 'p' }
    await expect(proxy.push(order, wasm)).rejects.toMatchObject({ kind: 'forbidden' })
    expect(registry.seen).toEqual([])
  })
})

test('managers pre-pull modules, list what is cached and remove it', async () => {
  await using registry = await startRegistry()
  await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
  const { moduleDigest } = registry.module('m', 'latest', wasm)
  const status = async (digests: string[]) => {
    const answer = await proxy.ask('POST', '/modules/status', { digests, exports: true })
    return (answer as { modules: { last_used_ms: number }[] }).modules
  }
  const { digest, reference } = await proxy.resolve('m')
  expect(await status([digest])).toEqual([])
  await proxy.ask('POST', '/modules/pull', { digest, reference })
  const [known] = await status([digest, digestOf(Buffer.from('x'))])
  expect(known).toMatchObject({ digest: moduleDigest, size: 50_000 })
  expect(Number(known?.last_used_ms)).toBeGreaterThan(Date.now() - 60_000)
  await proxy.ask('DELETE', `/modules/${digest}`)
  await proxy.ask('DELETE', `/modules/${digest}`)
  expect(await status([digest])).toEqual([])
  for (const token of ['a wrong token of tests', '']) {
    const unauthenticated = { kind: 'unauthenticated' }
    await expect(proxy.ask('DELETE', `/modules/${digest}`, undefined, token)).rejects.toMatchObject(unauthenticated)
    const asked = { digests: [digest], exports: false }
    await expect(proxy.ask('POST', '/modules/status', asked, token)).rejects.toMatchObject(unauthenticated)
    await expect(proxy.ask('POST', '/modules/pull', { digest, reference }, token)).rejects.toMatchObject(
      unauthenticated,
    )
  }
})
