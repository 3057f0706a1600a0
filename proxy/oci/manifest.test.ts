import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chooseEntry, chooseLayer, parseManifest } from './manifest.ts'
import {
  CONFIG_TYPES,
  TAR_GZIP_LAYER_TYPES,
  TAR_LAYER_TYPES,
  TAR_ZSTD_LAYER_TYPES,
  WASM_LAYER_TYPES,
} from './media-types.ts'

const DIGEST = `sha256:${'1'.repeat(64)}`
const descriptor = (mediaType: string, more: object = {}) => ({ mediaType, digest: DIGEST, size: 8, ...more })
const bytesOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value))
const OCI_MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
const OCI_INDEX = 'application/vnd.oci.image.index.v1+json'

function layerOf(config: string, ...layers: string[]) {
  const body = { schemaVersion: 2, config: descriptor(config), layers: layers.map((layer) => descriptor(layer)) }
  const manifest = parseManifest(bytesOf(body), OCI_MANIFEST)
  if (manifest.kind !== 'manifest') throw new Error('expected a manifest')
  return chooseLayer(manifest)
}

function entryOf(...manifests: object[]) {
  const index = parseManifest(bytesOf({ schemaVersion: 2, manifests }), OCI_INDEX)
  if (index.kind !== 'index') throw new Error('expected an index')
  return chooseEntry(index.entries)
}

const platform = (os: string, architecture: string, more: object = {}) =>
  descriptor(OCI_MANIFEST, { platform: { os, architecture }, ...more })

describe('chooseLayer', () => {
  it.each(WASM_LAYER_TYPES)('takes a layer of %s', (type) => {
    expect(layerOf(CONFIG_TYPES[0], type).form).toBe('wasm')
  })

  it.each([
    ...TAR_LAYER_TYPES.map((type) => [type, 'tar']),
    ...TAR_GZIP_LAYER_TYPES.map((type) => [type, 'tar+gzip']),
    ...TAR_ZSTD_LAYER_TYPES.map((type) => [type, 'tar+zstd']),
  ])('takes an archive layer of %s', (type, form) => expect(layerOf(CONFIG_TYPES[2], type).form).toBe(form))

  it.each(CONFIG_TYPES)('takes a config of %s', (config) => {
    expect(layerOf(config, 'application/wasm').form).toBe('wasm')
  })

  it('accepts a single layer of any type last, checked by its bytes', () => {
    expect(layerOf(CONFIG_TYPES[4], 'application/octet-stream').form).toBe('any')
  })

  it.each(['application/vnd.unknown.config.v1+json', 'application/vnd.module.wasm.config.v1+json'])(
    'accepts a single layer with the config %s, checked by its bytes unless its type is WebAssembly',
    (config) => {
      expect(layerOf(config, TAR_LAYER_TYPES[0]).form).toBe('any')
      expect(layerOf(config, WASM_LAYER_TYPES[2]).form).toBe('wasm')
    },
  )

  it('takes the wasm layer among others', () => {
    expect(layerOf(CONFIG_TYPES[0], 'text/plain', 'application/wasm', TAR_LAYER_TYPES[0]).form).toBe('wasm')
  })

  it('reports the layers that were found and those that are accepted', () => {
    expect(() => layerOf('application/vnd.cncf.helm.config.v1+json', 'text/plain', TAR_LAYER_TYPES[0])).toThrow(
      /text\/plain, .*layer\.v1\.tar \(config application\/vnd\.cncf\.helm.*accepted are.*wasm\.config\.v0/,
    )
    expect(() => layerOf(CONFIG_TYPES[0], 'text/plain', 'text/html')).toThrow(
      /text\/plain, text\/html \(config .*accepted.*application\/wasm/,
    )
    expect(() => layerOf(CONFIG_TYPES[0], 'application/wasm', 'application/wasm')).toThrow(/exactly one/)
    expect(() => layerOf(CONFIG_TYPES[0])).toThrow(/no layers/)
  })
})

describe('chooseEntry', () => {
  it.each(['wasi', 'wasip1', 'wasip2'])('prefers the entry of %s/wasm', (os) => {
    const wanted = `sha256:${'2'.repeat(64)}`
    expect(entryOf(platform('linux', 'amd64'), platform(os, 'wasm', { digest: wanted })).digest).toBe(wanted)
  })

  it('accepts the only entry with any platform, ignoring attestations', () => {
    const attestation = platform('unknown', 'unknown', {
      annotations: { 'vnd.docker.reference.type': 'attestation-manifest' },
    })
    expect(entryOf(platform('linux', 'amd64'), attestation).platform).toBe('linux/amd64')
    expect(entryOf(descriptor(OCI_MANIFEST)).platform).toBeUndefined()
  })

  it('lists the entries if none matches', () => {
    expect(() => entryOf(platform('linux', 'amd64'), platform('linux', 'arm64'))).toThrow(/linux\/amd64, linux\/arm64/)
    expect(() => entryOf()).toThrow(/no entries/)
  })
})

describe('parseManifest', () => {
  it('recognizes an index by its body if the registry announces a generic type', () => {
    expect(parseManifest(bytesOf({ schemaVersion: 2, manifests: [] }), 'application/json').kind).toBe('index')
  })

  it.each([
    ['not JSON', new TextEncoder().encode('<html>')],
    ['a list', bytesOf([])],
    ['schema version 1', bytesOf({ schemaVersion: 1, fsLayers: [] })],
    ['no layers', bytesOf({ schemaVersion: 2, config: descriptor('x') })],
    ['no config', bytesOf({ schemaVersion: 2, layers: [] })],
    ['a negative size', bytesOf({ schemaVersion: 2, config: descriptor('x', { size: -1 }), layers: [] })],
    [
      'sha512',
      bytesOf({ schemaVersion: 2, config: descriptor('x', { digest: `sha512:${'a'.repeat(128)}` }), layers: [] }),
    ],
    ['another type', bytesOf({ schemaVersion: 2, mediaType: 'application/x', config: descriptor('x'), layers: [] })],
    ['a type other than announced', bytesOf({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: [] })],
    [
      'too many layers',
      bytesOf({
        schemaVersion: 2,
        config: descriptor('x'),
        layers: Array.from({ length: 1001 }, () => descriptor('x')),
      }),
    ],
  ])('refuses %s', (_what, bytes) => {
    expect(() => parseManifest(bytes, OCI_MANIFEST)).toThrow(expect.objectContaining({ kind: 'malformed' }))
  })

  it('throws only refusals', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        try {
          parseManifest(bytesOf({ schemaVersion: 2, config: value, layers: [value], manifests: [value] }), undefined)
        } catch (error) {
          expect(error).toMatchObject({ kind: 'malformed' })
        }
      }),
    )
  })
})
