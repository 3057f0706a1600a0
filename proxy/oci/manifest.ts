/**
 * Manifests and indexes: parsing, the choice of the wasm entry of an index, and the choice of the layer with the module
 * (task manager section 6, rules 1, 3 and 4). Pure: bytes in, descriptors out.
 */
import { isDigest } from '#core/digest.ts'
import {
  CONFIG_TYPES,
  INDEX_TYPES,
  MANIFEST_TYPES,
  WASM_LAYER_TYPES,
  isArchive,
  isOneOf,
  layerForm,
} from './media-types.ts'
import type { LayerForm } from './media-types.ts'
import { moduleInvalid } from './refusal.ts'

/** OCI image specification, "OCI Content Descriptors". */
export type Descriptor = { mediaType: string; digest: string; sizeBytes: number }
export type IndexEntry = Descriptor & { platform: string | undefined; isAttestation: boolean }
export type Manifest =
  | { kind: 'manifest'; config: Descriptor; layers: Descriptor[] }
  | { kind: 'index'; entries: IndexEntry[] }
/** `configType` is the type of the config in the manifest; an error contains both. */
export type ModuleLayer = { descriptor: Descriptor; form: LayerForm; configType: string }

/**
 * OCI distribution, "Pushing Manifests": a registry should accept manifests of at least this size, and few accept more.
 */
export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024
const MAX_DESCRIPTORS = 1000
/** `os/architecture` of an index entry, in order of preference. */
const WASM_PLATFORMS = ['wasi/wasm', 'wasip1/wasm', 'wasip2/wasm']
const MAX_SHOWN = 10
/** The accepted content of a manifest, for error messages. */
export const ACCEPTED_LAYERS =
  `exactly one layer of ${WASM_LAYER_TYPES.join(', ')}; a single layer of any type whose bytes are a WebAssembly binary; ` +
  `or, with a config of ${CONFIG_TYPES.join(', ')}, exactly one tar, tar+gzip or tar+zstd layer with one .wasm file`

/**
 * Parses a manifest or an index. `contentType` is the media type that the registry announced: it is used if the body has
 * none, and a body with another type is refused (OCI image specification, "Image Manifest").
 */
export function parseManifest(bytes: Uint8Array, contentType: string | undefined): Manifest {
  const body = parseJson(bytes)
  const stated = textField(body, 'mediaType')
  const mediaType = stated ?? contentType
  if (stated !== undefined && contentType !== undefined && isKnown(contentType) && stated !== contentType) {
    throw moduleInvalid(`manifest has media type ${shown(stated)}, but the registry announced ${shown(contentType)}`)
  }
  if (body['schemaVersion'] !== 2) throw moduleInvalid('manifest must have schemaVersion 2')
  const isIndex = mediaType !== undefined && isKnown(mediaType) ? isOneOf(INDEX_TYPES, mediaType) : 'manifests' in body
  if (mediaType !== undefined && !isKnown(mediaType) && stated !== undefined) {
    throw moduleInvalid(`manifest is ${shown(stated)}; accepted are ${[...MANIFEST_TYPES, ...INDEX_TYPES].join(', ')}`)
  }
  if (isIndex) return { kind: 'index', entries: listField(body, 'manifests').map(indexEntry) }
  return {
    kind: 'manifest',
    config: descriptor(body['config'], 'config'),
    layers: listField(body, 'layers').map((layer) => descriptor(layer, 'layer')),
  }
}

/** The media type under which a manifest is served: its own, else that of the specification. */
export function mediaTypeOf(bytes: Uint8Array, kind: Manifest['kind']): string {
  return textField(parseJson(bytes), 'mediaType') ?? (kind === 'index' ? INDEX_TYPES[0] : MANIFEST_TYPES[0])
}

/** The entry with a wasm platform, else the only entry that is an image; the error lists the entries. */
export function chooseEntry(entries: readonly IndexEntry[]): IndexEntry {
  const candidates = entries.filter((entry) => !entry.isAttestation)
  for (const platform of WASM_PLATFORMS) {
    const found = candidates.find((entry) => entry.platform === platform)
    if (found !== undefined) return found
  }
  const [only, ...others] = candidates
  if (only !== undefined && others.length === 0) return only
  const there = candidates.map((entry) => entry.platform ?? 'no platform')
  throw moduleInvalid(
    `index has no entry for ${WASM_PLATFORMS.join(', ')}; it has ${there.length === 0 ? 'no entries' : shownList(there)}`,
  )
}

/**
 * The layer with the module: the one of a WebAssembly type, else the only archive, else the only layer, whose bytes are
 * checked later. The error lists the layers and the accepted types.
 */
export function chooseLayer(manifest: Extract<Manifest, { kind: 'manifest' }>): ModuleLayer {
  const { config, layers } = manifest
  const configType = config.mediaType
  const forms = layers.map((layer): ModuleLayer => ({
    descriptor: layer,
    form: layerForm(layer.mediaType),
    configType,
  }))
  const modules = forms.filter((layer) => layer.form === 'wasm')
  const [module] = modules
  if (module !== undefined && modules.length === 1) return module
  const [single] = forms
  if (!isOneOf(CONFIG_TYPES, configType)) {
    if (single !== undefined && forms.length === 1) return { ...single, form: 'any' }
  } else if (modules.length === 0) {
    const archives = forms.filter((layer) => isArchive(layer.form))
    const [archive] = archives
    if (archive !== undefined && archives.length === 1) return archive
    if (single !== undefined && forms.length === 1) return single
  }
  const found = layers.length === 0 ? 'no layers' : shownList(layers.map((layer) => layer.mediaType))
  throw moduleInvalid(`manifest has ${found} (config ${shown(configType)}); accepted are ${ACCEPTED_LAYERS}`)
}

function isKnown(mediaType: string): boolean {
  return isOneOf(MANIFEST_TYPES, mediaType) || isOneOf(INDEX_TYPES, mediaType)
}

type JsonObject = Record<string, unknown>

function parseJson(bytes: Uint8Array): JsonObject {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    throw moduleInvalid('manifest is not JSON')
  }
  if (!isObject(value)) throw moduleInvalid('manifest is not a JSON object')
  return value
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textField(body: JsonObject, name: string): string | undefined {
  const value = body[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

function listField(body: JsonObject, name: string): unknown[] {
  const value = body[name]
  if (!Array.isArray(value)) throw moduleInvalid(`manifest must have a list "${name}"`)
  if (value.length > MAX_DESCRIPTORS) throw moduleInvalid(`manifest has more than ${MAX_DESCRIPTORS} ${name}`)
  return value
}

function descriptor(value: unknown, what: string): Descriptor {
  if (!isObject(value)) throw moduleInvalid(`manifest must have a descriptor as ${what}`)
  const digest = textField(value, 'digest') ?? ''
  const size = value['size']
  if (!isDigest(digest)) throw moduleInvalid(`${what} has digest ${shown(digest)}; accepted is sha256`)
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0)
    throw moduleInvalid(`${what} has no valid size`)
  return { mediaType: textField(value, 'mediaType') ?? 'no media type', digest, sizeBytes: size }
}

function indexEntry(value: unknown): IndexEntry {
  const base = descriptor(value, 'index entry')
  const platform = isObject(value) && isObject(value['platform']) ? value['platform'] : undefined
  const annotations = isObject(value) && isObject(value['annotations']) ? value['annotations'] : undefined
  const os = platform === undefined ? undefined : textField(platform, 'os')
  const architecture = platform === undefined ? undefined : textField(platform, 'architecture')
  return {
    ...base,
    platform: platform === undefined ? undefined : `${os ?? 'unknown'}/${architecture ?? 'unknown'}`,
    // BuildKit adds a provenance manifest for each image; it is not a runnable platform.
    isAttestation: annotations?.['vnd.docker.reference.type'] === 'attestation-manifest',
  }
}

function shown(text: string): string {
  return text === '' ? 'none' : text.slice(0, 120)
}

function shownList(parts: readonly string[]): string {
  const rest = parts.length - MAX_SHOWN
  return parts.slice(0, MAX_SHOWN).map(shown).join(', ') + (rest > 0 ? ` and ${rest} more` : '')
}
