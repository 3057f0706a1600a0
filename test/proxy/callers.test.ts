/** Task manager section 3: a reader gets the module of its ticket and nothing else; only managers ask what references stand for. */
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { createTicketSigner, repositoryNameOf } from '#proto/index.ts'
import { WASM, digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import { PROXY_TOKEN, blobPath, resolveAt, runProxy, ticketFor } from './running-proxy.ts'

const unauthenticated = { kind: 'unauthenticated' }

describe('a manager', () => {
  test('is authenticated by the proxy token; no other caller learns the target of a reference', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    const ticket = ticketFor(digestOf(WASM), '')
    for (const token of ['', 'another token of tests', `${PROXY_TOKEN}x`, ticket]) {
      await expect(resolveAt(proxy.address, 'm', {}, token)).rejects.toMatchObject(unauthenticated)
    }
    const basic = await fetch(`http://${proxy.address}/modules/status`, {
      method: 'POST',
      headers: { authorization: 'Basic eDp5', 'content-type': 'application/json' },
      body: '{"digests":[],"exports":false}',
    })
    expect(basic.status).toBe(401)
    expect(registry.seen).toEqual([])
    expect(await proxy.resolve('m')).toMatchObject({ digest: digestOf(WASM) })
  })

  test('with the same data folder writes the token into a file, which may be created after the proxy starts and be replaced', async () => {
    await using registry = await startRegistry()
    registry.module('m', 'latest', WASM)
    const dataDir = await mkdtemp(join(tmpdir(), 'skein-proxy-'))
    await using proxy = await runProxy({
      dataDir,
      environment: { PROXY_REGISTRY_URL: registry.host, SKEIN_PROXY_TOKEN: '' },
    })
    await expect(resolveAt(proxy.address, 'm', {}, 'any')).rejects.toMatchObject({
      ...unauthenticated,
      message: expect.stringContaining('SKEIN_PROXY_TOKEN'),
    })
    const digest = (token: string) => resolveAt(proxy.address, 'm', {}, token).then((found) => found.digest, String)
    for (const token of ['first-token-of-tests', 'second-token-of-tests']) {
      await writeFile(join(dataDir, 'proxy-token'), `${token}\n`)
      // The file is read at most once a second.
      await expect.poll(() => digest(token), { timeout: 30_000 }).toBe(digestOf(WASM))
    }
    await expect(resolveAt(proxy.address, 'm', {}, 'first-token-of-tests')).rejects.toMatchObject(unauthenticated)
  })
})

describe('a reader', () => {
  test('reads the module of its ticket, from the reference of its ticket, until the ticket expires', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    const other = registry.module('other', 'latest', wasmOf(1000))
    const { digest, reference } = await proxy.resolve('m')
    const foreign = `${registry.host}/other@${other.manifestDigest}`
    const elsewhere = createTicketSigner('another token altogether')
    const grant = { reader: 'platform', digest, reference }
    const soon = Math.floor(Date.now() / 1000) + 60
    const ticket = ticketFor(digest, reference)
    const [header = '', claims = '', signature = ''] = ticket.split('.')
    const forged = Buffer.from(
      JSON.stringify({ sub: 'platform', exp: soon, digest: other.moduleDigest, reference: foreign }),
    )
    const none = Buffer.from('{"alg":"none","typ":"JWT"}').toString('base64url')
    const wrong = [
      undefined,
      'nonsense',
      PROXY_TOKEN,
      ticketFor(digest, reference, -1),
      elsewhere.sign(grant, soon),
      `${header}.${forged.toString('base64url')}.${signature}`,
      `${none}.${claims}.`,
      `${none}.${claims}.${signature}`,
    ]
    for (const bearer of wrong) {
      for (const path of [
        '/v2/',
        blobPath(digest, reference),
        blobPath(other.moduleDigest, foreign),
        '/v2/no/such/path',
      ]) {
        const answer = await proxy.get(path, bearer)
        expect(answer.status, `${bearer} ${path}`).toBe(401)
        expect(answer.headers.get('www-authenticate')).toMatch(
          /^Bearer realm="http:\/\/127\.0\.0\.1:\d+\/token",service="skein"$/,
        )
        expect(await answer.json()).toEqual({ errors: [{ code: 'UNAUTHORIZED', message: expect.any(String) }] })
      }
    }
    const denied = [
      blobPath(other.moduleDigest, foreign),
      blobPath(digest, foreign),
      blobPath(other.moduleDigest, reference),
      blobPath(digest, ''),
      `/v2/${repositoryNameOf({ digest, reference })}/manifests/${other.manifestDigest}`,
      `/v2/${repositoryNameOf({ digest, reference: foreign })}/manifests/latest`,
      `/v2/${repositoryNameOf({ digest, reference })}/blobs/${digestOf(Buffer.from('x'))}`,
    ]
    for (const path of denied) {
      const answer = await proxy.get(path, ticket)
      expect([answer.status, path]).toEqual([403, path])
      expect(await answer.json()).toEqual({ errors: [{ code: 'DENIED', message: 'the ticket is for another module' }] })
    }
    expect(registry.count('/blobs/')).toBe(0)
    expect((await proxy.get('/v2/', ticket)).status).toBe(200)
    expect(await proxy.fetch(digest, reference)).toEqual(WASM)
    // Nor does the cache give what the ticket does not name.
    expect((await proxy.get(blobPath(digest, ''), ticket)).status).toBe(403)
    expect((await proxy.get('/token')).status).toBe(401)
  })

  test('that does not read is disconnected, and one reader has at most a share of all streams', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { maxStreams: 2, pieceDeadlineMs: 1_500 },
    })
    registry.module('m', 'latest', wasmOf(32 * 1024 * 1024))
    const { digest, reference } = await proxy.resolve('m')
    const held = await proxy.get(blobPath(digest, reference), ticketFor(digest, reference))
    expect(held.status).toBe(200)
    const second = await proxy.get(blobPath(digest, reference), ticketFor(digest, reference))
    expect([second.status, second.headers.get('retry-after')]).toEqual([503, '1'])
    await expect
      .poll(() => proxy.fetch(digest, reference).then((bytes) => bytes.length, String), {
        timeout: 30_000,
        interval: 200,
      })
      .toBe(32 * 1024 * 1024)
    await expect(held.arrayBuffer()).rejects.toThrow('terminated')
  })
})
