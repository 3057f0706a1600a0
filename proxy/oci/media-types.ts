/** The media types that the proxy asks for and accepts (task manager section 6, rules 1 and 4). */

/** OCI image specification, "Media Types", and the Docker types that it names as compatible. */
export const MANIFEST_TYPES = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
] as const
export const INDEX_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
] as const
export const MANIFEST_ACCEPT = [...MANIFEST_TYPES, ...INDEX_TYPES].join(', ')

/** Layers that are the module's bytes: the CNCF Wasm layout, and the two older ones of solo.io and Krustlet. */
export const WASM_LAYER_TYPES = [
  'application/wasm',
  'application/vnd.wasm.content.layer.v1+wasm',
  'application/vnd.module.wasm.content.layer.v1+wasm',
] as const

/** Layers that are an archive holding the module. */
export const TAR_LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.docker.image.rootfs.diff.tar',
] as const
export const TAR_GZIP_LAYER_TYPES = [
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
] as const

export const CONFIG_TYPES = [
  'application/vnd.wasm.config.v0+json',
  'application/vnd.wasm.config.v1+json',
  'application/vnd.oci.image.config.v1+json',
  'application/vnd.docker.container.image.v1+json',
  'application/vnd.oci.empty.v1+json',
] as const

/** How the bytes of a layer become a module. `any`: only what begins with `\0asm` is one. */
export type LayerForm = 'wasm' | 'tar' | 'tar+gzip' | 'any'

/** The form that a layer's media type promises. */
export function layerForm(mediaType: string): LayerForm {
  if (isOneOf(WASM_LAYER_TYPES, mediaType)) return 'wasm'
  if (isOneOf(TAR_LAYER_TYPES, mediaType)) return 'tar'
  return isOneOf(TAR_GZIP_LAYER_TYPES, mediaType) ? 'tar+gzip' : 'any'
}

export function isOneOf(types: readonly string[], mediaType: string): boolean {
  return types.includes(mediaType)
}

/** A media type without its parameters, in lower case; undefined for an absent header. */
export function bareMediaType(header: string | undefined): string | undefined {
  const bare = header?.split(';')[0]?.trim().toLowerCase()
  return bare === '' ? undefined : bare
}
