/** The media types that the proxy requests and accepts (task manager section 6, rules 1 and 4). */

/** OCI image specification, "Media Types", and its compatible Docker types. */
export const MANIFEST_TYPES = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
] as const
export const INDEX_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
] as const
export const MANIFEST_ACCEPT = [...MANIFEST_TYPES, ...INDEX_TYPES].join(', ')

/** Layers that consist of the module: the CNCF Wasm layout, and the two older ones of solo.io and Krustlet. */
export const WASM_LAYER_TYPES = [
  'application/wasm',
  'application/vnd.wasm.content.layer.v1+wasm',
  'application/vnd.module.wasm.content.layer.v1+wasm',
] as const

/** Layers that are an archive with the module. */
export const TAR_LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.docker.image.rootfs.diff.tar',
] as const
export const TAR_GZIP_LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
] as const
export const TAR_ZSTD_LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar+zstd',
  'application/vnd.docker.image.rootfs.diff.tar.zstd',
] as const

/** Configs with which an archive is unpacked; with any other config the layer is the module itself. */
export const CONFIG_TYPES = [
  'application/vnd.wasm.config.v0+json',
  'application/vnd.wasm.config.v1+json',
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
  'application/vnd.oci.empty.v1+json',
] as const

/**
 * How the bytes of a layer become a module. `wasm` is accepted by its type, `any` is checked by its bytes, and an archive
 * type with a WebAssembly binary is that binary: `oras push` declares every file as a tar.
 */
export const LAYER_FORMS = ['wasm', 'tar', 'tar+gzip', 'tar+zstd', 'any'] as const
export type LayerForm = (typeof LAYER_FORMS)[number]

export const isArchive = (form: LayerForm): boolean => form.startsWith('tar')

/** The form for a layer's media type. */
export function layerForm(mediaType: string): LayerForm {
  if (isOneOf(WASM_LAYER_TYPES, mediaType)) return 'wasm'
  if (isOneOf(TAR_LAYER_TYPES, mediaType)) return 'tar'
  if (isOneOf(TAR_GZIP_LAYER_TYPES, mediaType)) return 'tar+gzip'
  return isOneOf(TAR_ZSTD_LAYER_TYPES, mediaType) ? 'tar+zstd' : 'any'
}

export function isOneOf(types: readonly string[], mediaType: string): boolean {
  return types.includes(mediaType)
}

/** A media type without its parameters, in lower case; undefined for an absent header. */
export function bareMediaType(header: string | undefined): string | undefined {
  const bare = header?.split(';')[0]?.trim().toLowerCase()
  return bare === '' ? undefined : bare
}
