/** Task manager section 3: a worker reads what it was assigned and nothing else; only managers ask what references stand for. */
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Metadata, credentials, status } from '@grpc/grpc-js'
import { describe, expect, test } from 'vitest'
import { ModuleService, createServiceClient } from '#proto/index.ts'
import { WASM, digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import { asManager, runProxy, ticketFor } from './running-proxy.ts'
import type { RunningProxy } from './running-proxy.ts'

const deadlineMs = 30_000
const unauthenticated = { code: status.UNAUTHENTICATED }

function clientOf(proxy: RunningProxy) {
  const client = createServiceClient(ModuleService, proxy.address, credentials.createInsecure())
  return {
    resolve: (metadata: Metadata) => client.resolve({ reference: 'm' }, { deadlineMs, metadata }),
    async fetch(request: { digest: string; reference?: string; ticket?: string }, metadata = new Metadata()) {
      const pieces: Uint8Array[] = []
      const stream = client.fetch(request, { deadlineMs, metadata })
      for await (const { data } of stream as AsyncIterable<{ data: Uint8Array }>) pieces.push(data)
      return Buffer.concat(pieces)
    },
    [Symbol.dispose]: () => client.close(),
  }
}

describe('a manager', () => {
  test('is whoever has the proxy token; nobody else learns what a reference stands for', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    using client = clientOf(proxy)
    const basic = new Metadata()
    basic.set('authorization', 'Basic eDp5')
    for (const metadata of [new Metadata(), asManager('another token of tests'), asManager(''), basic]) {
      await expect(client.resolve(metadata)).rejects.toMatchObject(unauthenticated)
    }
    expect(registry.seen).toEqual([])
    expect(await client.resolve(asManager())).toMatchObject({ digest: digestOf(WASM) })
    expect(await client.fetch({ digest: digestOf(WASM) }, asManager()).catch(String)).toContain('no reference')
  })

  test('of the same data folder leaves the token in a file, which may come after the proxy and be replaced', async () => {
    await using registry = await startRegistry()
    registry.module('m', 'latest', WASM)
    const dataDir = await mkdtemp(join(tmpdir(), 'skein-proxy-'))
    await using proxy = await runProxy({
      dataDir,
      environment: { PROXY_REGISTRY_URL: registry.host, SKEIN_PROXY_TOKEN: '' },
    })
    using client = clientOf(proxy)
    await expect(client.resolve(asManager(''))).rejects.toMatchObject({
      ...unauthenticated,
      details: expect.stringContaining('SKEIN_PROXY_TOKEN'),
    })
    for (const token of ['the first token', 'the second token']) {
      await writeFile(join(dataDir, 'proxy-token'), `${token}\n`)
      // The file is read at most once a second.
      await expect
        .poll(() => client.resolve(asManager(token)).then(({ digest }) => digest, String), { timeout: deadlineMs })
        .toBe(digestOf(WASM))
    }
    await expect(client.resolve(asManager('the first token'))).rejects.toMatchObject(unauthenticated)
  })
})

describe('a worker', () => {
  test('reads the module of its ticket, from the reference of its ticket, until the ticket expires', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    const other = registry.module('other', 'latest', wasmOf(1000))
    const { digest, reference } = await proxy.resolve('m')
    const foreign = `${registry.host}/other@${other.manifestDigest}`
    using client = clientOf(proxy)
    const refused = [
      { digest, reference },
      { digest, reference, ticket: 'nonsense' },
      { digest, reference, ticket: ticketFor(digest, reference, -1) },
      { digest: other.moduleDigest, reference: foreign, ticket: ticketFor(digest, reference) },
      { digest, reference: foreign, ticket: ticketFor(digest, reference) },
      { digest: other.moduleDigest, reference, ticket: ticketFor(digest, reference) },
    ]
    for (const request of refused) await expect(client.fetch(request)).rejects.toMatchObject(unauthenticated)
    expect(registry.count('/blobs/')).toBe(0)
    expect(await client.fetch({ digest, reference, ticket: ticketFor(digest, reference) })).toEqual(WASM)
    // Nor does the cache give what the ticket does not name.
    await expect(client.fetch({ digest, reference: '', ticket: ticketFor(digest, reference) })).rejects.toMatchObject(
      unauthenticated,
    )
  })
})
