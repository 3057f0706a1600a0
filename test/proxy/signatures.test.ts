/** Task manager section 6, rule 7: cosign signatures of key pairs under their tag and as bundles, by policy. */
import { generateKeyPairSync, sign } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { OCI_INDEX, OCI_MANIFEST, WASM, startRegistry, wasmOf } from './misbehaving-registry.ts'
import type { TestRegistry } from './misbehaving-registry.ts'
import { repositoryNameOf } from '#proto/index.ts'
import { runProxy, ticketFor } from './running-proxy.ts'

const SIMPLE_SIGNING = 'application/vnd.dev.cosign.simplesigning.v1+json'
const BUNDLE = 'application/vnd.dev.sigstore.bundle.v0.3+json'

const ours = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const theirs = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const pemOf = (key: KeyObject) => key.export({ format: 'pem', type: 'spki' }).toString()
const require = { signatures: 'require', keys: [pemOf(ours.publicKey)] } as const
const warn = { ...require, signatures: 'warn' } as const
const refused = { kind: 'unprocessable', message: expect.stringContaining('not signed') }

function signatureOf(bytes: Buffer, key: KeyObject): string {
  return sign(key.asymmetricKeyType === 'ed25519' ? null : 'sha256', bytes, key).toString('base64')
}

/** What `cosign sign --key` stores beside an image. */
function signUnderTag(
  registry: TestRegistry,
  repository: string,
  manifestDigest: string,
  key: KeyObject,
  about = manifestDigest,
): void {
  const image = { 'docker-manifest-digest': about }
  const identity = { 'docker-reference': `${registry.host}/${repository}` }
  const payload = Buffer.from(
    JSON.stringify({ critical: { identity, image, type: 'cosign container image signature' }, optional: null }),
  )
  const annotations = { 'dev.cosignproject.cosign/signature': signatureOf(payload, key) }
  registry.manifest(repository, `${manifestDigest.replace(':', '-')}.sig`, {
    schemaVersion: 2,
    mediaType: OCI_MANIFEST,
    config: registry.blob(Buffer.from('{}'), 'application/vnd.oci.image.config.v1+json'),
    layers: [{ ...registry.blob(payload, SIMPLE_SIGNING), annotations }],
  })
}

/** What `cosign sign --key --new-bundle-format` stores: a bundle in a manifest whose subject is the image. */
function bundleManifest(registry: TestRegistry, repository: string, manifestDigest: string, bundle: object) {
  const bytes = Buffer.from(
    JSON.stringify({ mediaType: BUNDLE, verificationMaterial: { publicKey: { hint: 'x' } }, ...bundle }),
  )
  const manifest = {
    schemaVersion: 2,
    mediaType: OCI_MANIFEST,
    artifactType: BUNDLE,
    config: registry.blob(Buffer.from('{}'), 'application/vnd.oci.empty.v1+json'),
    layers: [registry.blob(bytes, BUNDLE)],
    subject: { mediaType: OCI_MANIFEST, digest: manifestDigest, size: 1 },
  }
  const digest = registry.manifest(repository, undefined, manifest)
  const entry = { mediaType: OCI_MANIFEST, digest, size: JSON.stringify(manifest).length, artifactType: BUNDLE }
  return { schemaVersion: 2, mediaType: OCI_INDEX, manifests: [entry] }
}

function envelope(manifestDigest: string, key: KeyObject): object {
  const type = 'application/vnd.in-toto+json'
  const payload = Buffer.from(
    JSON.stringify({
      _type: 'https://in-toto.io/Statement/v1',
      subject: [{ digest: { sha256: manifestDigest.slice(7) } }],
      predicateType: 'https://sigstore.dev/cosign/sign/v1',
      predicate: {},
    }),
  )
  const signed = Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload])
  return { payload: payload.toString('base64'), payloadType: type, signatures: [{ sig: signatureOf(signed, key) }] }
}

async function world() {
  const stack = new AsyncDisposableStack()
  const registry = stack.use(await startRegistry())
  const proxy = stack.use(
    await runProxy({ environment: { PROXY_REGISTRY_URL: registry.host }, limits: { tagFreshMs: 0 } }),
  )
  return { registry, proxy, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

describe('a signature under its tag', () => {
  test.each([
    ['ECDSA P-256', ours],
    ['ECDSA P-384', generateKeyPairSync('ec', { namedCurve: 'P-384' })],
    ['RSA', generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['Ed25519', generateKeyPairSync('ed25519')],
  ])('with a key of the policy admits a module: %s', async (_name, pair) => {
    await using it = await world()
    const { manifestDigest, moduleDigest } = it.registry.module('m', 'latest', WASM)
    signUnderTag(it.registry, 'm', manifestDigest, pair.privateKey)
    const keys = [pemOf(theirs.publicKey), pemOf(pair.publicKey)]
    expect(await it.proxy.resolve('m', { ...require, keys: keys })).toMatchObject({
      digest: moduleDigest,
      signed: true,
    })
  })

  test.each<[string, (registry: TestRegistry, digest: string) => void]>([
    ['is not there', () => undefined],
    ['is of another key', (registry, digest) => signUnderTag(registry, 'm', digest, theirs.privateKey)],
    [
      'is about another module',
      (registry, digest) =>
        signUnderTag(
          registry,
          'm',
          digest,
          ours.privateKey,
          registry.module('other', 'latest', wasmOf(99)).manifestDigest,
        ),
    ],
    [
      'is nonsense',
      (registry, digest) => {
        registry.manifest('m', `${digest.replace(':', '-')}.sig`, {
          schemaVersion: 2,
          layers: [{ mediaType: 7 }, null],
        })
      },
    ],
  ])('that %s: refused under require, reported under warn, ignored under off', async (_what, put) => {
    await using it = await world()
    const { manifestDigest, moduleDigest } = it.registry.module('m', 'latest', WASM)
    put(it.registry, manifestDigest)
    await expect(it.proxy.resolve('m', require)).rejects.toMatchObject(refused)
    expect(await it.proxy.resolve('m', warn)).toMatchObject({
      digest: moduleDigest,
      signed: false,
      signature_problem: expect.stringContaining('not signed by a key'),
    })
    const asked = it.registry.count('.sig')
    expect(await it.proxy.resolve('m')).toMatchObject({ digest: moduleDigest, signed: false, signature_problem: '' })
    expect(it.registry.count('.sig')).toBe(asked)
  })

  test('that was seen is valid when the registry is gone; a new one is not', async () => {
    await using it = await world()
    const { manifestDigest } = it.registry.module('m', 'latest', WASM)
    const unsigned = it.registry.module('unsigned', 'latest', wasmOf(77))
    signUnderTag(it.registry, 'm', manifestDigest, ours.privateKey)
    await it.proxy.resolve('m', require)
    await it.proxy.resolve('unsigned')
    await it.registry.close()
    expect(await it.proxy.resolve('m', require)).toMatchObject({ signed: true, stale: true })
    const pinned = `${it.registry.host}/unsigned@${unsigned.manifestDigest}`
    await expect(it.proxy.resolve(pinned, require)).rejects.toMatchObject({ kind: 'unavailable' })
    expect(await it.proxy.resolve(pinned, warn)).toMatchObject({
      signed: false,
      signature_problem: expect.stringContaining('could not be verified'),
    })
    // What one policy's keys signed says nothing about another's.
    const other = { ...require, keys: [pemOf(theirs.publicKey)] }
    await expect(it.proxy.resolve('m', other)).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('added later is found at the next start', async () => {
    await using it = await world()
    const { manifestDigest } = it.registry.module('m', 'latest', WASM)
    await expect(it.proxy.resolve('m', require)).rejects.toMatchObject(refused)
    signUnderTag(it.registry, 'm', manifestDigest, ours.privateKey)
    expect(await it.proxy.resolve('m', require)).toMatchObject({ signed: true })
  })

  test('requires a valid key', async () => {
    await using it = await world()
    it.registry.module('m', 'latest', WASM)
    for (const key of ['nonsense', '-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----']) {
      await expect(it.proxy.resolve('m', { ...require, keys: [key] })).rejects.toMatchObject({
        kind: 'malformed',
      })
    }
    await expect(it.proxy.resolve('m', { ...require, keys: [] })).rejects.toMatchObject(refused)
  })
})

describe('a bundle', () => {
  test('among the referrers admits a module, from the API and from the tag that replaces it', async () => {
    await using it = await world()
    const { manifestDigest } = it.registry.module('m', 'latest', WASM)
    const index = bundleManifest(it.registry, 'm', manifestDigest, {
      dsseEnvelope: envelope(manifestDigest, ours.privateKey),
    })
    it.registry.intercept((_request, response, path) => {
      if (!path.includes('/referrers/')) return false
      response.writeHead(200, { 'content-type': OCI_INDEX }).end(JSON.stringify(index))
      return true
    })
    expect(await it.proxy.resolve('m', require)).toMatchObject({ signed: true })

    await using tagged = await world()
    tagged.registry.module('m', 'latest', WASM)
    const same = bundleManifest(tagged.registry, 'm', manifestDigest, {
      dsseEnvelope: envelope(manifestDigest, ours.privateKey),
    })
    tagged.registry.manifest('m', manifestDigest.replace(':', '-'), same, OCI_INDEX)
    expect(await tagged.proxy.resolve('m', require)).toMatchObject({ signed: true })
  })

  test('is listed among the referrers of the module, and read with the ticket of the module', async () => {
    await using it = await world()
    const { manifestDigest, moduleDigest } = it.registry.module('m', 'latest', WASM)
    const index = bundleManifest(it.registry, 'm', manifestDigest, {
      dsseEnvelope: envelope(manifestDigest, ours.privateKey),
    })
    const other = { ...index.manifests[0], artifactType: 'application/spdx+json', digest: moduleDigest }
    const all = { ...index, manifests: [...index.manifests, other] }
    it.registry.manifest('m', manifestDigest.replace(':', '-'), all, OCI_INDEX)
    const { digest, reference } = await it.proxy.resolve('m')
    const ticket = ticketFor(digest, reference)
    const name = repositoryNameOf({ digest, reference })
    const read = async (path: string, bearer = ticket) => {
      const response = await it.proxy.get(`/v2/${name}/${path}`, bearer)
      return { status: response.status, type: response.headers.get('content-type'), body: await response.json() }
    }
    expect(await read(`referrers/${manifestDigest}`)).toEqual({ status: 200, type: OCI_INDEX, body: index })
    const [signature] = index.manifests
    const { body } = await read(`manifests/${signature?.digest}`)
    const manifest = body as { layers: { digest: string }[] }
    expect(manifest).toMatchObject({ artifactType: BUNDLE, subject: { digest: manifestDigest } })
    expect((await read(`blobs/${manifest.layers[0]?.digest}`)).body).toMatchObject({ mediaType: BUNDLE })
    // Nobody refers to a signature, and what is not a signature is not read.
    expect((await read(`referrers/${signature?.digest}`)).body).toEqual({ ...index, manifests: [] })
    expect((await read(`manifests/${moduleDigest}`)).status).toBe(403)
    expect(
      (await read(`referrers/${manifestDigest}`, ticketFor(manifestDigest, reference.replace('/m@', '/n@')))).status,
    ).toBe(403)
    expect((await read('referrers/latest')).status).toBe(404)
  })

  test('may sign the bytes of the manifest themselves', async () => {
    await using it = await world()
    const { manifestDigest } = it.registry.module('m', 'latest', WASM)
    const url = `http://${it.registry.host}/v2/m/manifests/${manifestDigest}`
    const bytes = Buffer.from(await (await fetch(url, { headers: { accept: OCI_MANIFEST } })).arrayBuffer())
    const messageSignature = { signature: signatureOf(bytes, ours.privateKey) }
    const index = bundleManifest(it.registry, 'm', manifestDigest, { messageSignature })
    it.registry.manifest('m', manifestDigest.replace(':', '-'), index, OCI_INDEX)
    expect(await it.proxy.resolve('m', require)).toMatchObject({ signed: true })
  })

  test.each<[string, (digest: string) => object]>([
    ['of another key', (digest) => ({ dsseEnvelope: envelope(digest, theirs.privateKey) })],
    [
      'about another module',
      (digest) => ({ dsseEnvelope: envelope(digest.replaceAll(/[0-9]/g, 'a'), ours.privateKey) }),
    ],
    ['without a signature', (digest) => ({ dsseEnvelope: { ...envelope(digest, ours.privateKey), signatures: [] } })],
    [
      'of another type',
      (digest) => ({ dsseEnvelope: { ...envelope(digest, ours.privateKey), payloadType: 'text/plain' } }),
    ],
    ['over other bytes', () => ({ messageSignature: { signature: signatureOf(Buffer.from('x'), ours.privateKey) } })],
    ['of nothing', () => ({})],
  ])('%s is not accepted', async (_what, bundleOf) => {
    await using it = await world()
    const { manifestDigest } = it.registry.module('m', 'latest', WASM)
    const index = bundleManifest(it.registry, 'm', manifestDigest, bundleOf(manifestDigest))
    it.registry.manifest('m', manifestDigest.replace(':', '-'), index, OCI_INDEX)
    await expect(it.proxy.resolve('m', require)).rejects.toMatchObject(refused)
  })
})
