/**
 * Task manager section 6 against a registry that we did not write: Debian's `docker-registry` (distribution 2.8), filled
 * by `skopeo`. Where they are not installed the tests say so and are skipped, but not in CI, where absence is a failure.
 */
import { execFile, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { repositoryNameOf } from '#proto/index.ts'
import { freePort } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { OCI_MANIFEST, digestOf, wasmOf } from './misbehaving-registry.ts'
import { runProxy, ticketFor } from './running-proxy.ts'

const run = promisify(execFile)
/** bcrypt of `s3cret`, which is what the registry's htpasswd understands. */
const HTPASSWD = 'robot:$2b$04$/GC/ggSy9aTw/pAHx/gy3emKab/NRv9Np9gwwfAgaEQ1C63tddfwK\n'

const isInstalled = await run('sh', ['-c', 'command -v docker-registry && command -v skopeo']).then(
  () => true,
  () => false,
)

test.runIf(process.env['CI'] === 'true')('docker-registry and skopeo are installed where tests decide', () => {
  expect(isInstalled, 'apt-get install docker-registry skopeo').toBe(true)
})

/** The registry as a process on a free port of loopback, with or without a login. */
async function startDockerRegistry({ login = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'skein-docker-registry-'))
  const host = `127.0.0.1:${await freePort()}`
  writeFileSync(join(folder, 'htpasswd'), HTPASSWD)
  const auth = login ? { auth: { htpasswd: { realm: 'test', path: join(folder, 'htpasswd') } } } : {}
  const storage = { filesystem: { rootdirectory: join(folder, 'data') } }
  // YAML is a superset of JSON.
  writeFileSync(
    join(folder, 'config.yml'),
    JSON.stringify({ version: '0.1', log: { level: 'error' }, storage, http: { addr: host }, ...auth }),
  )
  const child = spawn('docker-registry', ['serve', join(folder, 'config.yml')], { stdio: 'ignore' })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  await until(
    () =>
      fetch(`http://${host}/v2/`).then(
        () => true,
        () => false,
      ),
    'docker-registry answers',
  )
  async function stop(): Promise<void> {
    child.kill()
    await exited
  }
  return {
    host,
    stop,
    /** Copies an image layout made of these parts into the registry, as any tool of the field would push it. */
    async push(reference: string, config: Part, ...layers: Part[]): Promise<void> {
      const layout = join(folder, `layout-${digestOf(Buffer.from(reference)).slice(7, 20)}`)
      writeLayout(layout, config, layers)
      const credentials = login ? ['--dest-creds', 'robot:s3cret'] : []
      await run('skopeo', [
        'copy',
        '--insecure-policy',
        '--dest-tls-verify=false',
        ...credentials,
        `oci:${layout}:x`,
        `docker://${host}/${reference}`,
      ])
    },
    /** Runs skopeo on a repository and gives what it prints. */
    async skopeo(command: string, ...rest: string[]): Promise<string> {
      const name = rest.pop()
      const { stdout } = await run('skopeo', [command, '--tls-verify=false', ...rest, `docker://${host}/${name}`])
      return stdout
    },
    /** A blob of what skopeo copies into a folder. */
    async copyOut(reference: string, digest: string): Promise<Buffer> {
      const target = join(folder, 'out')
      await run('skopeo', [
        'copy',
        '--insecure-policy',
        '--src-tls-verify=false',
        `docker://${host}/${reference}`,
        `dir:${target}`,
      ])
      return readFileSync(join(target, digest.slice(7)))
    },
    async [Symbol.asyncDispose]() {
      await stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

type Part = { mediaType: string; bytes: Buffer }

/** OCI image specification, "Image Layout". */
function writeLayout(folder: string, config: Part, layers: Part[]): void {
  const blobs = join(folder, 'blobs/sha256')
  mkdirSync(blobs, { recursive: true })
  const put = ({ mediaType, bytes }: Part) => {
    const digest = digestOf(bytes)
    writeFileSync(join(blobs, digest.slice(7)), bytes)
    return { mediaType, digest, size: bytes.length }
  }
  const manifest = { schemaVersion: 2, mediaType: OCI_MANIFEST, config: put(config), layers: layers.map(put) }
  const entry = {
    ...put({ mediaType: OCI_MANIFEST, bytes: Buffer.from(JSON.stringify(manifest)) }),
    annotations: { 'org.opencontainers.image.ref.name': 'x' },
  }
  writeFileSync(join(folder, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  writeFileSync(join(folder, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [entry] }))
}

/** A ustar archive with one file. */
function tarOf(name: string, bytes: Buffer): Buffer {
  const header = Buffer.alloc(512)
  header.write(name, 0)
  header.write(
    '0000644\0' +
      '0000000\0'.repeat(2) +
      bytes.length.toString(8).padStart(11, '0') +
      '\0' +
      '00000000000\0' +
      '        0',
    100,
  )
  header.write('ustar\x0000', 257)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(sum.toString(8).padStart(6, '0') + '\0 ', 148)
  return Buffer.concat([header, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512), Buffer.alloc(1024)])
}

const WASM_CONFIG = {
  mediaType: 'application/vnd.wasm.config.v0+json',
  bytes: Buffer.from('{"architecture":"wasm","os":"wasip1"}'),
}

describe.skipIf(!isInstalled)('docker-registry (needs docker-registry and skopeo)', () => {
  test('serves a Wasm artifact that skopeo pushed, by tag and by digest, also after the registry is gone', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(5_000_000)
    await registry.push('acme/add:1.0', WASM_CONFIG, { mediaType: 'application/wasm', bytes: wasm })
    await using proxy = await runProxy({
      environment: { PROXY_REGISTRY_URL: `http://${registry.host}` },
      limits: { tagFreshMs: 0 },
    })
    expect((await proxy.bring('acme/add:1.0')).equals(wasm)).toBe(true)
    const { reference } = await proxy.resolve('acme/add:1.0')
    await registry.stop()
    expect(await proxy.resolve('acme/add:1.0')).toMatchObject({ digest: digestOf(wasm), stale: true })
    expect((await proxy.bring(reference)).equals(wasm)).toBe(true)
  })

  test('has a manifest only for who names its type, as the proxy does', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(1000)
    await registry.push('acme/add:1.0', WASM_CONFIG, { mediaType: 'application/wasm', bytes: wasm })
    const status = async (accept: string) =>
      (await fetch(`http://${registry.host}/v2/acme/add/manifests/1.0`, { headers: { accept } })).status
    // What the registry does, or the next line would prove nothing.
    expect([await status('*/*'), await status(OCI_MANIFEST)]).toEqual([404, 200])
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    expect((await proxy.bring('acme/add:1.0')).equals(wasm)).toBe(true)
  })

  test('serves the module inside the layer of a container image', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(300_000)
    const archive = tarOf('hello.wasm', wasm)
    const image = {
      architecture: 'wasm',
      os: 'wasi',
      config: {},
      rootfs: { type: 'layers', diff_ids: [digestOf(archive)] },
    }
    const config = { mediaType: 'application/vnd.oci.image.config.v1+json', bytes: Buffer.from(JSON.stringify(image)) }
    await registry.push('acme/hello', config, {
      mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip',
      bytes: gzipSync(archive),
    })
    await using proxy = await runProxy({ environment: { SKEIN_PROXY_HTTP_HOSTS: registry.host } })
    expect((await proxy.bring(`${registry.host}/acme/hello`)).equals(wasm)).toBe(true)
  })

  test('serves what other tools push: any file type of oras, the config of solo.io, an image with zstd', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(300_000)
    const tar = 'application/vnd.oci.image.layer.v1.tar'
    const empty = Buffer.from('{}')
    const parts: [string, Part, Part][] = [
      [
        'oras/old',
        { mediaType: 'application/vnd.unknown.config.v1+json', bytes: empty },
        { mediaType: tar, bytes: wasm },
      ],
      ['oras/new', { mediaType: 'application/vnd.oci.empty.v1+json', bytes: empty }, { mediaType: tar, bytes: wasm }],
      [
        'oras/own',
        { mediaType: 'application/vnd.acme.config+json', bytes: empty },
        { mediaType: 'text/x', bytes: wasm },
      ],
      [
        'solo/add',
        { mediaType: 'application/vnd.module.wasm.config.v1+json', bytes: empty },
        { mediaType: 'application/vnd.module.wasm.content.layer.v1+wasm', bytes: wasm },
      ],
      [
        'buildx/add',
        { mediaType: 'application/vnd.oci.image.config.v1+json', bytes: empty },
        { mediaType: `${tar}+zstd`, bytes: zstdCompressSync(tarOf('add.wasm', wasm)) },
      ],
    ]
    for (const [reference, config, layer] of parts) await registry.push(reference, config, layer)
    const helm = { mediaType: 'application/vnd.cncf.helm.config.v1+json', bytes: empty }
    await registry.push('charts/add', helm, {
      mediaType: 'application/vnd.cncf.helm.chart.content.v1.tar+gzip',
      bytes: gzipSync(tarOf('add/Chart.yaml', Buffer.from('name: add'))),
    })
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    for (const [reference] of parts) expect((await proxy.bring(reference)).equals(wasm), reference).toBe(true)
    await expect(proxy.resolve('charts/add')).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringMatching(/helm\.chart.*config .*helm\.config.*begins with 1f 8b .*gzip.*accepted are/),
    })
  })

  test('admits with a login and not without', async () => {
    await using registry = await startDockerRegistry({ login: true })
    const wasm = wasmOf(1000)
    await registry.push('private/add', WASM_CONFIG, { mediaType: 'application/wasm', bytes: wasm })
    const environment = {
      PROXY_REGISTRY_URL: `http://${registry.host}`,
      PROXY_REGISTRY_USERNAME: 'robot',
      PROXY_REGISTRY_PASSWORD: 's3cret',
    }
    await using without = await runProxy({ environment })
    await expect(without.resolve('private/add')).rejects.toMatchObject({ kind: 'unauthenticated' })
    await using wrong = await runProxy({
      environment: { ...environment, PROXY_AUTHENTICATE: 'true', PROXY_REGISTRY_PASSWORD: 'no' },
    })
    await expect(wrong.resolve('private/add')).rejects.toMatchObject({ kind: 'unauthenticated' })
    await using proxy = await runProxy({ environment: { ...environment, PROXY_AUTHENTICATE: 'true' } })
    expect((await proxy.bring('private/add')).equals(wasm)).toBe(true)
    await expect(proxy.resolve('private/none')).rejects.toMatchObject({ kind: 'not_found' })
  })

  test('stores a pushed module as an artifact that skopeo reads, and serves it', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(3_000_000)
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    const reference = await proxy.push({ reference: 'acme/pushed:1.0' }, wasm)
    expect(reference).toMatch(new RegExp(`^${registry.host}/acme/pushed@sha256:[0-9a-f]{64}$`))
    const manifest = JSON.parse(await registry.skopeo('inspect', '--raw', 'acme/pushed:1.0')) as object
    expect(manifest).toMatchObject({
      mediaType: OCI_MANIFEST,
      config: { mediaType: 'application/vnd.wasm.config.v0+json' },
      layers: [{ mediaType: 'application/wasm', digest: digestOf(wasm), size: wasm.length }],
    })
    expect(JSON.parse(await registry.skopeo('inspect', '--config', '--raw', 'acme/pushed:1.0'))).toMatchObject({
      architecture: 'wasm',
      os: 'wasip1',
      layerDigests: [digestOf(wasm)],
      created: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    })
    expect((await registry.copyOut('acme/pushed:1.0', digestOf(wasm))).equals(wasm)).toBe(true)
    await using another = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    expect((await another.bring(reference)).equals(wasm)).toBe(true)
    // What the registry has is not sent again.
    expect(await proxy.push({ reference: 'acme/pushed:1.1' }, wasm)).toContain('/acme/pushed@sha256:')
  })

  test('accepts pushes with a login: the configured one, or that of the call', async () => {
    await using registry = await startDockerRegistry({ login: true })
    const environment = { PROXY_REGISTRY_URL: `http://${registry.host}` }
    const login = { PROXY_REGISTRY_USERNAME: 'robot', PROXY_REGISTRY_PASSWORD: 's3cret', PROXY_AUTHENTICATE: 'true' }
    const wasm = wasmOf(100_000)
    await using known = await runProxy({ environment: { ...environment, ...login } })
    expect(await known.push({ reference: 'acme/a:1' }, wasm)).toContain(`${registry.host}/acme/a@`)
    await using stranger = await runProxy({ environment })
    await expect(stranger.push({ reference: 'acme/b:1' }, wasm)).rejects.toMatchObject({ kind: 'unauthenticated' })
    await expect(
      stranger.push({ reference: 'acme/b:1', username: 'robot', password: 'wrong' }, wasm),
    ).rejects.toMatchObject({ kind: 'unauthenticated' })
    const own = { reference: 'acme/b:1', username: 'robot', password: 's3cret' }
    expect(await stranger.push(own, wasm)).toContain(`${registry.host}/acme/b@`)
    // The credentials of one call are forgotten with it.
    await expect(stranger.resolve('acme/b:1')).rejects.toMatchObject({ kind: 'unauthenticated' })
  })

  test('is pulled through by skopeo with a ticket and no account: the manifest unchanged, and a copy of it', async () => {
    await using registry = await startDockerRegistry()
    const wasm = wasmOf(2_000_000)
    await registry.push('acme/add:1.0', WASM_CONFIG, { mediaType: 'application/wasm', bytes: wasm })
    await using proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
    const { digest, reference } = await proxy.resolve('acme/add:1.0')
    const [, manifestDigest = ''] = reference.split('@')
    const name = repositoryNameOf({ digest, reference })
    await using skopeo = await startSkopeo(proxy.address, ticketFor(digest, reference))
    expect(await skopeo.inspectRaw(`${name}@${manifestDigest}`)).toBe(
      await registry.skopeo('inspect', '--raw', 'acme/add:1.0'),
    )
    for (const artifact of [`${name}@${manifestDigest}`, `${name}:1.0`]) {
      const copied = await skopeo.copy(artifact)
      expect(copied.blob(digest).equals(wasm)).toBe(true)
      expect(copied.blob(digestOf(WASM_CONFIG.bytes)).equals(WASM_CONFIG.bytes)).toBe(true)
      expect(digestOf(copied.manifest)).toBe(manifestDigest)
    }
    // The registry answered for each of them once.
    await registry.stop()
    expect((await skopeo.copy(`${name}@${manifestDigest}`)).blob(digest).equals(wasm)).toBe(true)
    await expect(skopeo.copy(`${name}:2.0`)).rejects.toThrow(/unknown|denied|unavailable|cannot be reached/i)
  })

  test('has the same manifest of an upload for skopeo every time, and tells skopeo where to get tickets', async () => {
    const wasm = wasmOf(300_000)
    const digest = digestOf(wasm)
    const name = `uploads/${digest.slice(7)}`
    const manifests: string[] = []
    for (let round = 0; round < 2; round++) {
      await using proxy = await runProxy()
      proxy.uploads = async function* (wanted, offset) {
        expect(wanted).toBe(digest)
        yield wasm.subarray(offset)
      }
      await using skopeo = await startSkopeo(proxy.address, ticketFor(digest, ''))
      manifests.push(await skopeo.inspectRaw(`${name}:latest`))
      const copied = await skopeo.copy(`${name}:latest`)
      expect(copied.blob(digest).equals(wasm)).toBe(true)
      expect(digestOf(copied.manifest)).toBe(digestOf(Buffer.from(manifests[0] ?? '')))
      expect((await skopeo.copy(`${name}@${digestOf(copied.manifest)}`)).blob(digest).equals(wasm)).toBe(true)
      await using stranger = await startSkopeo(proxy.address, undefined)
      await expect(stranger.inspectRaw(`${name}:latest`)).rejects.toThrow('POST /modules/tickets')
      await using other = await startSkopeo(proxy.address, ticketFor(digestOf(Buffer.from('x')), ''))
      await expect(other.inspectRaw(`${name}:latest`)).rejects.toThrow(/denied/i)
    }
    expect(manifests[0]).toBe(manifests[1])
    expect(JSON.parse(manifests[0] ?? '')).toMatchObject({
      mediaType: OCI_MANIFEST,
      config: { mediaType: 'application/vnd.wasm.config.v0+json' },
      layers: [
        {
          mediaType: 'application/wasm',
          digest,
          size: wasm.length,
          annotations: { 'org.opencontainers.image.title': 'module.wasm' },
        },
      ],
    })
  })
})

/** Runs skopeo with this ticket against the proxy. */
async function startSkopeo(address: string, ticket: string | undefined) {
  const folder = mkdtempSync(join(tmpdir(), 'skein-skopeo-'))
  let copies = 0
  const token = (name: string) => (ticket === undefined ? [] : [`--${name}`, ticket])
  return {
    async inspectRaw(artifact: string): Promise<string> {
      const image = `docker://${address}/${artifact}`
      const { stdout } = await run('skopeo', [
        'inspect',
        '--raw',
        '--tls-verify=false',
        ...token('registry-token'),
        image,
      ])
      return stdout
    },
    async copy(artifact: string) {
      const target = join(folder, String((copies += 1)))
      const options = ['--insecure-policy', '--src-tls-verify=false', ...token('src-registry-token')]
      await run('skopeo', ['copy', ...options, `docker://${address}/${artifact}`, `dir:${target}`])
      return {
        manifest: readFileSync(join(target, 'manifest.json')),
        blob: (digest: string) => readFileSync(join(target, digest.slice(7))),
      }
    },
    [Symbol.asyncDispose]: () => Promise.resolve(rmSync(folder, { recursive: true, force: true })),
  }
}
