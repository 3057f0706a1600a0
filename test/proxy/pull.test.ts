/** Task manager section 6: references, layouts and media types, digests, the cache, and one pull for many workers. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { OCI_INDEX, WASM, digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import { blobPath, runProxy, ticketFor } from './running-proxy.ts'

/** An archive of GNU tar with these files. */
function tarOf(files: Record<string, Buffer>, flags = ''): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'skein-tar-'))
  try {
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes)
    return execFileSync('tar', [`-c${flags}f`, '-', '-C', folder, '.'], { maxBuffer: 256 * 1024 * 1024 })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const TAR = 'application/vnd.oci.image.layer.v1.tar'
const IMAGE_CONFIG = 'application/vnd.oci.image.config.v1+json'

describe('a reference', () => {
  test('pulls a module by tag, by digest and without a registry', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    const { manifestDigest, moduleDigest } = registry.module('acme/add', '1.0', WASM)
    const found = await proxy.resolve(`oci://${registry.host}/acme/add:1.0`)
    expect(found).toMatchObject({
      digest: moduleDigest,
      size: 8,
      stale: false,
      reference: `${registry.host}/acme/add@${manifestDigest}`,
    })
    expect(await proxy.fetch(found.digest, found.reference)).toEqual(WASM)
    expect(await proxy.bring('acme/add:1.0')).toEqual(WASM)
    expect(await proxy.bring(`acme/add@${manifestDigest}`)).toEqual(WASM)
    expect(await proxy.bring(`acme/add:another@${manifestDigest}`)).toEqual(WASM)
  })

  test('requests identity encoding and the four manifest types', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: '127.0.0.1' } })
    registry.module('add', 'latest', WASM)
    await proxy.bring(`${registry.host}/add`)
    expect(new Set(registry.seen.map((request) => request.encoding))).toEqual(new Set(['identity']))
  })

  test('that is invalid, or of a missing module, is refused with the reason', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    await expect(proxy.resolve('Not A Reference')).rejects.toMatchObject({ kind: 'malformed' })
    await expect(proxy.resolve('nothing/here')).rejects.toMatchObject({
      kind: 'not_found',
      message: expect.stringContaining('nothing/here:latest'),
    })
    await expect(proxy.fetch('sha256:1')).rejects.toMatchObject({ kind: 'not_found' })
    await expect(proxy.fetch(digestOf(WASM))).rejects.toMatchObject({ kind: 'not_found' })
    await expect(proxy.fetch(digestOf(WASM), 'acme/add:1.0')).rejects.toMatchObject({ kind: 'not_found' })
  })
})

describe('a layer', () => {
  test.each([
    ['application/wasm', 'application/vnd.wasm.config.v0+json'],
    ['application/vnd.wasm.content.layer.v1+wasm', 'application/vnd.wasm.config.v1+json'],
    ['application/vnd.module.wasm.content.layer.v1+wasm', 'application/vnd.oci.empty.v1+json'],
    ['application/octet-stream', IMAGE_CONFIG],
  ])('of type %s is the module', async (layerType, configType) => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(700_001)
    registry.module('m', 'latest', wasm, layerType, configType)
    expect((await proxy.bring('m')).equals(wasm)).toBe(true)
  })

  test.each([
    [TAR, '', 'gnu'],
    [`${TAR}+gzip`, 'z', 'gnu'],
    ['application/vnd.docker.image.rootfs.diff.tar.gzip', 'z', 'gnu'],
  ])('of type %s contains the module as its only .wasm file', async (layerType, flags) => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(1_000_003)
    const archive = tarOf({ 'README.md': Buffer.from('hello'), [`${'long'.repeat(40)}.wasm`]: wasm }, flags)
    registry.module('m', 'latest', archive, layerType, IMAGE_CONFIG)
    const found = await proxy.resolve('m')
    expect(found).toMatchObject({ digest: digestOf(wasm), size: wasm.length })
    expect((await proxy.fetch(found.digest)).equals(wasm)).toBe(true)
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/tmp'))).toEqual([])
  })

  test.each<[string, () => Buffer, string, RegExp]>([
    ['without a .wasm file', () => tarOf({ 'a.txt': WASM }), TAR, /no \.wasm file.*a\.txt/],
    ['with two .wasm files', () => tarOf({ 'a.wasm': WASM, 'b.wasm': WASM }), TAR, /more than one \.wasm/],
    ['with a .wasm file that is text', () => tarOf({ 'a.wasm': Buffer.from('hello') }), TAR, /no WebAssembly binary/],
    ['that is no archive', () => Buffer.from('hello'.repeat(300)), TAR, /not a tar archive/],
    ['that is no gzip', () => tarOf({ 'a.wasm': WASM }), `${TAR}+gzip`, /not a gzip stream/],
    ['that ends early', () => tarOf({ 'a.wasm': wasmOf(5000) }, 'z').subarray(0, 3000), `${TAR}+gzip`, /gzip|middle/],
    [
      'that unpacks to more than a module may have',
      () => tarOf({ 'a.wasm': Buffer.concat([WASM, Buffer.alloc(3_000_000)]) }, 'z'),
      `${TAR}+gzip`,
      /more than 1000000 bytes/,
    ],
    ['of another type that is no module', () => Buffer.from('hello'), 'text/plain', /no WebAssembly binary/],
    ['larger than a module may be', () => wasmOf(1_000_001), 'application/wasm', /at most 1000000 are accepted/],
  ])('%s is refused', async (_what, layer, layerType, message) => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { maxModuleBytes: 1_000_000 },
    })
    registry.module('m', 'latest', layer(), layerType, IMAGE_CONFIG)
    await expect(proxy.bring('m')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringMatching(message),
    })
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/tmp'))).toEqual([])
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/sha256'))).toEqual([])
  })

  test.each<[string, (bomb: Buffer) => Record<string, Buffer>, RegExp]>([
    ['as its module', (bomb) => ({ 'a.wasm': Buffer.concat([WASM, bomb]) }), /module of more than 1000000 bytes/],
    ['beside its module', (bomb) => ({ 'a.txt': bomb, 'b.wasm': WASM }), /unpacks to more than \d+ bytes/],
    ['behind its module', (bomb) => ({ 'a.wasm': WASM, 'b.txt': bomb }), /unpacks to more than \d+ bytes/],
  ])('of some kilobytes with 80 MB of zeros %s is refused, and none of it is kept', async (_where, files, message) => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { maxModuleBytes: 1_000_000 },
    })
    const bomb = tarOf(files(Buffer.alloc(80_000_000)), 'z')
    expect(bomb.length).toBeLessThan(1_000_000)
    registry.module('m', 'latest', bomb, `${TAR}+gzip`, IMAGE_CONFIG)
    await expect(proxy.resolve('m')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringMatching(message),
    })
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/tmp'))).toEqual([])
    expect(readdirSync(join(proxy.dataDir, 'proxy/blobs/sha256'))).toEqual([])
  })

  test('with a link in place of the .wasm file is refused', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'skein-tar-'))
    symlinkSync('/etc/passwd', join(folder, 'a.wasm'))
    const archive = execFileSync('tar', ['-cf', '-', '-C', folder, 'a.wasm'])
    rmSync(folder, { recursive: true })
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', archive, TAR, IMAGE_CONFIG)
    await expect(proxy.resolve('m')).rejects.toMatchObject({ message: expect.stringContaining('as a link') })
  })
})

describe('an index', () => {
  test('leads to its wasm entry', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const { manifestDigest } = registry.module('m', 'hidden', WASM)
    const entry = (digest: string, os: string, architecture: string) => ({
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      digest,
      size: 1,
      platform: { os, architecture },
    })
    const manifests = [entry(digestOf(Buffer.from('x')), 'linux', 'amd64'), entry(manifestDigest, 'wasip1', 'wasm')]
    const index = registry.manifest('m', 'latest', { schemaVersion: 2, manifests }, OCI_INDEX)
    expect(await proxy.bring('m')).toEqual(WASM)
    expect((await proxy.resolve('m')).reference).toBe(`${registry.host}/m@${index}`)
    registry.manifest('m', 'none', { schemaVersion: 2, manifests: [manifests[0], manifests[0]] }, OCI_INDEX)
    await expect(proxy.resolve('m:none')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining('linux/amd64'),
    })
  })

  test('that refers to itself, or to a chain of indexes, ends', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    let { manifestDigest: digest } = registry.module('m', 'hidden', WASM)
    for (let depth = 0; depth < 3; depth++) {
      digest = registry.manifest(
        'm',
        'latest',
        { schemaVersion: 2, manifests: [{ mediaType: OCI_INDEX, digest, size: 1 }] },
        OCI_INDEX,
      )
    }
    await expect(proxy.resolve('m')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringContaining('nested'),
    })
  })
})

describe('the cache', () => {
  test('costs the registry one manifest and one blob for many workers', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(3_000_000)
    registry.module('m', 'latest', wasm)
    const copies = await Promise.all(Array.from({ length: 20 }, () => proxy.bring('m')))
    expect(copies.every((copy) => copy.equals(wasm))).toBe(true)
    expect(registry.count('/manifests/')).toBe(1)
    expect(registry.count('/blobs/')).toBe(1)
  })

  test('works after a restart without the registry, and reports that the tag is old', async () => {
    const registry = await startRegistry()
    const environment = { PROXY_REGISTRY_URL: registry.host }
    const first = await runProxy({ environment })
    registry.module('m', 'latest', tarOf({ 'a.wasm': WASM }), TAR, IMAGE_CONFIG)
    await first.bring('m')
    await first.stop()
    await registry.close()
    await using second = await runProxy({ environment, dataDir: first.dataDir })
    const found = await second.resolve('m')
    expect(found.stale).toBe(true)
    expect(await second.fetch(found.digest)).toEqual(WASM)
    expect(await second.bring(found.reference)).toEqual(WASM)
    await expect(second.resolve('never/seen')).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('drops a module whose bytes changed on disk, and pulls it again', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const { moduleDigest } = registry.module('m', 'latest', wasmOf(1000))
    const found = await proxy.resolve('m')
    await proxy.fetch(found.digest, found.reference)
    const path = join(proxy.dataDir, 'proxy/blobs/sha256', moduleDigest.slice(7))
    const bytes = readFileSync(path)
    writeFileSync(path, Buffer.concat([bytes.subarray(0, 999), Buffer.from('!')]))
    expect(digestOf(await proxy.fetch(found.digest, found.reference))).toBe(moduleDigest)
    expect(registry.count('/blobs/')).toBe(2)
    expect(digestOf(readFileSync(path))).toBe(moduleDigest)
  })

  test('refuses a pinned reference to another module than the requested digest', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    registry.module('m', 'latest', WASM)
    const { reference } = await proxy.resolve('m')
    await expect(proxy.fetch(digestOf(Buffer.from('x')), reference)).rejects.toMatchObject({
      kind: 'malformed',
    })
  })
})

describe('delivery', () => {
  test('asks long-waiting readers to retry while the module is still being pulled', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: registry.host },
      limits: { pullWaitMs: 10 },
    })
    const { moduleDigest } = registry.module('m', 'latest', WASM)
    const isAsked = Promise.withResolvers<void>()
    registry.intercept(async (_request, _response, path) => {
      if (path.includes('/blobs/')) await isAsked.promise
      return false
    })
    const { reference } = await proxy.resolve('m')
    const early = await proxy.get(blobPath(moduleDigest, reference), ticketFor(moduleDigest, reference))
    expect([early.status, early.headers.get('retry-after')]).toEqual([503, '1'])
    isAsked.resolve()
    await expect.poll(() => proxy.fetch(moduleDigest, reference).catch(String), { timeout: 30_000 }).toEqual(WASM)
    expect(registry.count('/blobs/')).toBe(1)
  })

  test('resumes from an offset, returns a part and refuses an offset beyond the end', async () => {
    await using registry = await startRegistry()
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host } })
    const wasm = wasmOf(600_000)
    registry.module('m', 'latest', wasm)
    const { digest } = await proxy.resolve('m').then(async (found) => {
      await proxy.fetch(found.digest, found.reference)
      return found
    })
    expect((await proxy.fetch(digest, '', 500_001)).equals(wasm.subarray(500_001))).toBe(true)
    const range = (bytes: string) => proxy.get(blobPath(digest, ''), ticketFor(digest, ''), { range: `bytes=${bytes}` })
    for (const beyond of ['600000-', '600001-']) expect((await range(beyond)).status).toBe(416)
    const part = await range('10-19')
    expect([part.status, part.headers.get('content-range')]).toEqual([206, 'bytes 10-19/600000'])
    expect(Buffer.from(await part.arrayBuffer()).equals(wasm.subarray(10, 20))).toBe(true)
  })
})
