/**
 * A module as an artifact in the layout of the CNCF (TAG Runtime, "Wasm OCI Artifact"): one layer `application/wasm` and a small config that
 * names it, and what a component exports and imports.
 */
import { digestOf } from '#core/digest.ts'
import { MANIFEST_TYPES } from './media-types.ts'

export type Artifact = {
  manifest: { bytes: Buffer; digest: string; mediaType: string }
  config: { bytes: Buffer; digest: string; mediaType: string }
}

const WASM_LAYER_TYPE = 'application/wasm'
const WASM_CONFIG_TYPE = 'application/vnd.wasm.config.v0+json'
/** The `os` of the config for each kind of module. */
const OS = { core: 'wasip1', component: 'wasip2' } as const

/** OCI image specification, "Pre-Defined Annotation Keys": the file that `oras pull` writes. */
const TITLE = 'org.opencontainers.image.title'

export type ModuleOfArtifact = {
  digest: string
  sizeBytes: number
  kind: 'core' | 'component'
  /** Of a component; undefined if they could not be read. */
  interfaces: ComponentInterfaces | undefined
}

/** Names of the interfaces and functions that a component exports and imports. */
export type ComponentInterfaces = { exports: readonly string[]; imports: readonly string[] }

/** `title`: the name of its file. Without a creation time the same module always has the same manifest. */
export function artifactOf(module: ModuleOfArtifact, title: string, createdAt?: Date): Artifact {
  const { kind, interfaces } = module
  const config = Buffer.from(
    JSON.stringify({
      ...(createdAt === undefined ? {} : { created: createdAt.toISOString() }),
      architecture: 'wasm',
      os: OS[kind],
      layerDigests: [module.digest],
      ...(kind === 'component' && interfaces !== undefined ? { component: interfaces } : {}),
    }),
  )
  const configDigest = digestOf(config)
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST_TYPES[0],
      config: { mediaType: WASM_CONFIG_TYPE, digest: configDigest, size: config.length },
      layers: [
        {
          mediaType: WASM_LAYER_TYPE,
          digest: module.digest,
          size: module.sizeBytes,
          annotations: { [TITLE]: title },
        },
      ],
    }),
  )
  return {
    manifest: { bytes: manifest, digest: digestOf(manifest), mediaType: MANIFEST_TYPES[0] },
    config: { bytes: config, digest: configDigest, mediaType: WASM_CONFIG_TYPE },
  }
}
