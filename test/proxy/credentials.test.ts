/** Task manager section 6: who sees the configured credentials, and who never does. */
import { describe, expect, test } from 'vitest'
import { WASM, digestOf, startRegistry } from './misbehaving-registry.ts'
import type { TestRegistry } from './misbehaving-registry.ts'
import { runProxy } from './running-proxy.ts'

const BASIC = `Basic ${Buffer.from('robot:s3cret').toString('base64')}`
const login = (registry: TestRegistry, more: Record<string, string> = {}) => ({
  PROXY_REGISTRY_URL: `http://${registry.host}`,
  PROXY_AUTHENTICATE: 'true',
  PROXY_REGISTRY_USERNAME: 'robot',
  PROXY_REGISTRY_PASSWORD: 's3cret',
  ...more,
})

/** Everything below /v2/ wants this header, else the challenge. */
function protect(registry: TestRegistry, wanted: () => string, challenge: string): void {
  registry.intercept((request, response, path) => {
    if (!path.startsWith('/v2/') || request.headers.authorization === wanted()) return false
    response.writeHead(401, { 'www-authenticate': challenge }).end()
    return true
  })
}

/** A token service at /token that gives the next of `token-1`, `token-2`, … to authorized callers. */
function tokenService(registry: TestRegistry, mayHave: (authorization: string | undefined) => boolean = () => true) {
  const queries: string[] = []
  registry.intercept((request, response, path) => {
    if (path !== '/token') return false
    queries.push(new URL(request.url ?? '', 'http://x').search)
    if (mayHave(request.headers.authorization)) {
      response.writeHead(200).end(JSON.stringify({ token: `token-${queries.length}`, expires_in: 300 }))
    } else {
      response.writeHead(401).end()
    }
    return true
  })
  return { queries, current: () => `Bearer token-${queries.length}` }
}

describe('Basic', () => {
  test('is sent to the configured registry when it asks, and from then on with the first request', async () => {
    await using registry = await startRegistry()
    protect(registry, () => BASIC, 'Basic realm="r"')
    await using proxy = await runProxy({ environment: login(registry) })
    registry.module('m', 'latest', WASM)
    expect(await proxy.bring('m')).toEqual(WASM)
    expect(registry.seen.map((request) => request.authorization)).toEqual([undefined, BASIC, BASIC])
  })

  test('that is wrong is reported after one retry', async () => {
    await using registry = await startRegistry()
    protect(registry, () => 'Basic other', 'Basic realm="r"')
    await using proxy = await runProxy({ environment: login(registry) })
    await expect(proxy.resolve('m')).rejects.toMatchObject({
      kind: 'unauthenticated',
      message: expect.not.stringContaining('s3cret'),
    })
    expect(registry.seen).toHaveLength(2)
  })

  test('is never sent when PROXY_AUTHENTICATE is false', async () => {
    await using registry = await startRegistry()
    protect(registry, () => BASIC, 'Basic realm="r"')
    await using proxy = await runProxy({ environment: login(registry, { PROXY_AUTHENTICATE: 'false' }) })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'unauthenticated' })
    expect(registry.seen.every((request) => request.authorization === undefined)).toBe(true)
  })

  test('is never sent to another registry, whatever it requests', async () => {
    await using registry = await startRegistry()
    await using other = await startRegistry()
    protect(other, () => BASIC, `Basic realm="${registry.host}"`)
    await using proxy = await runProxy({ environment: login(registry, { SKEIN_PROXY_HTTP_HOSTS: other.host }) })
    await expect(proxy.resolve(`${other.host}/m`)).rejects.toMatchObject({ kind: 'unauthenticated' })
    expect(other.seen.every((request) => request.authorization === undefined)).toBe(true)
  })

  test('is never sent after a redirect, not even one back to the registry', async () => {
    await using registry = await startRegistry()
    await using storage = await startRegistry()
    protect(registry, () => BASIC, 'Basic realm="r"')
    await using proxy = await runProxy({ environment: login(registry, { SKEIN_PROXY_HTTP_HOSTS: storage.host }) })
    registry.module('m', 'latest', WASM)
    storage.blob(WASM, 'application/wasm')
    registry.intercept((_request, response, path) => {
      if (!path.includes('/blobs/')) return false
      response.writeHead(307, { location: `http://${storage.host}/v2/m/blobs/${digestOf(WASM)}` }).end()
      return true
    })
    expect(await proxy.bring('m')).toEqual(WASM)
    expect(storage.seen.map((request) => request.authorization)).toEqual([undefined])
  })
})

describe('an identity token', () => {
  test('is exchanged at the realm, in the body, and is sent neither to the registry nor in a query', async () => {
    await using registry = await startRegistry()
    const forms: string[] = []
    registry.intercept(async (request, response, path) => {
      if (path !== '/token') return false
      const pieces: Buffer[] = []
      for await (const piece of request) pieces.push(piece as Buffer)
      forms.push(`${request.method} ${request.url} ${Buffer.concat(pieces).toString()}`)
      response.writeHead(200).end(JSON.stringify({ access_token: 'exchanged', expires_in: 300 }))
      return true
    })
    const realm = `http://${registry.host}/token`
    protect(registry, () => 'Bearer exchanged', `Bearer realm="${realm}",service="r",scope="repository:m:pull"`)
    registry.module('m', 'latest', WASM)
    await using proxy = await runProxy({
      environment: login(registry, { PROXY_REGISTRY_USERNAME: '<token>', PROXY_REGISTRY_PASSWORD: 'identity&token' }),
    })
    expect(await proxy.bring('m')).toEqual(WASM)
    expect(forms).toEqual([
      'POST /token service=r&scope=repository%3Am%3Apull&grant_type=refresh_token&client_id=skein-proxy&refresh_token=identity%26token',
    ])
    expect(registry.seen.map(({ authorization }) => authorization)).toEqual([
      undefined,
      undefined,
      'Bearer exchanged',
      'Bearer exchanged',
    ])
  })

  test('is not a password: a registry that asks for Basic does not get it', async () => {
    await using registry = await startRegistry()
    protect(registry, () => 'Basic other', 'Basic realm="r"')
    await using proxy = await runProxy({ environment: login(registry, { PROXY_REGISTRY_USERNAME: '<token>' }) })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'unauthenticated' })
    expect(registry.seen.map(({ authorization }) => authorization)).toEqual([undefined])
  })
})

describe('Bearer', () => {
  test('gets a token from the realm with service and scope, and uses it until it expires', async () => {
    await using registry = await startRegistry()
    const tokens = tokenService(registry, (authorization) => authorization === BASIC)
    protect(
      registry,
      tokens.current,
      `Bearer realm="http://${registry.host}/token",service="reg",scope="repository:acme/m:pull"`,
    )
    await using proxy = await runProxy({ environment: login(registry), limits: { tagFreshMs: 0 } })
    registry.module('acme/m', 'latest', WASM)
    for (let times = 0; times < 3; times++) expect(await proxy.bring('acme/m')).toEqual(WASM)
    expect(tokens.queries).toEqual(['?service=reg&scope=repository%3Aacme%2Fm%3Apull'])
  })

  test('asks for the repository when the challenge names no scope, and anonymously without credentials', async () => {
    await using registry = await startRegistry()
    const tokens = tokenService(registry)
    protect(registry, tokens.current, `Bearer realm="http://${registry.host}/token"`)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    expect(await proxy.bring('m')).toEqual(WASM)
    expect(tokens.queries).toEqual(['?scope=repository%3Am%3Apull'])
    expect(
      registry.seen
        .filter((request) => request.path === '/token')
        .every((request) => request.authorization === undefined),
    ).toBe(true)
  })

  test('asks for another token when the registry no longer takes the one it gave', async () => {
    await using registry = await startRegistry()
    const tokens = tokenService(registry)
    let revoked = ''
    protect(
      registry,
      () => (tokens.current() === revoked ? 'nothing' : tokens.current()),
      `Bearer realm="http://${registry.host}/token"`,
    )
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { tagFreshMs: 0 },
    })
    registry.module('m', 'latest', WASM)
    await proxy.resolve('m')
    revoked = 'Bearer token-1'
    await proxy.resolve('m')
    expect(tokens.queries).toHaveLength(2)
  })

  test('stops asking when no token is sufficient', async () => {
    await using registry = await startRegistry()
    const tokens = tokenService(registry)
    protect(registry, () => 'nothing', `Bearer realm="http://${registry.host}/token"`)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'unauthenticated' })
    expect(tokens.queries).toHaveLength(1)
    expect(registry.count('/manifests/')).toBe(2)
  })

  test('a realm on another host that was named over plain HTTP does not get the credentials', async () => {
    await using registry = await startRegistry()
    await using realm = await startRegistry()
    const tokens = tokenService(realm, (authorization) => authorization === BASIC)
    protect(registry, tokens.current, `Bearer realm="http://localhost:${realm.port}/token"`)
    await using proxy = await runProxy({ environment: login(registry, { SKEIN_PROXY_HTTP_HOSTS: 'localhost' }) })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'unauthenticated' })
    expect(realm.seen.map((request) => request.authorization)).toEqual([undefined])
  })

  test('a realm in the private network of the proxy is refused', async () => {
    await using registry = await startRegistry()
    await using realm = await startRegistry()
    protect(registry, () => 'x', `Bearer realm="http://localhost:${realm.port}/token"`)
    await using proxy = await runProxy({ environment: login(registry) })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'forbidden' })
    expect(realm.seen).toEqual([])
  })

  test.each([
    ['no JSON', '<html>'],
    ['no token', '{}'],
    ['a token that would end the header', '{"token":"a\\r\\nX: y"}'],
    ['too much', `{"token":"${'a'.repeat(300_000)}"}`],
  ])('a realm that returns %s gives an error, not a request', async (_what, body) => {
    await using registry = await startRegistry()
    registry.intercept((_request, response, path) => {
      if (path !== '/token') return false
      response.writeHead(200).end(body)
      return true
    })
    protect(registry, () => 'x', `Bearer realm="http://${registry.host}/token"`)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    await expect(proxy.resolve('m')).rejects.toMatchObject({ kind: 'unavailable' })
  })
})
