/** The OCI specifications: references, manifests, layers, and a registry client. */
export { isLoopbackHost, checkedDial, mayBePlainHttp } from './address.ts'
export type { AddressPolicy } from './address.ts'
export { createAuth } from './auth.ts'
export type { Credentials } from './auth.ts'
export { createRegistryClient } from './client.ts'
export type { ClientLimits, FetchedManifest, RegistryClient } from './client.ts'
export { createRegistryHttp } from './registry-http.ts'
export type { RegistryHttp, Repository } from './registry-http.ts'
export { artifactOf } from './artifact.ts'
export type { Artifact, ComponentInterfaces } from './artifact.ts'
export { chooseEntry, chooseLayer, mediaTypeOf, parseManifest } from './manifest.ts'
export type { Descriptor, Manifest, ModuleLayer } from './manifest.ts'
export { LAYER_FORMS, isArchive } from './media-types.ts'
export { formatReference, isRegistryHost, parseReference, pinnedReference } from './reference.ts'
export type { Reference } from './reference.ts'
export { pushModule } from './push.ts'
export type { PushedModule } from './push.ts'
export { moduleInvalid } from './refusal.ts'
export { configuredAuthorities, createRegistries, parseRegistryUrl } from './registry.ts'
export type { ConfiguredRegistry } from './registry.ts'
export {
  bundlesOfIndex,
  isSignedByBundle,
  isSimplySigned,
  readBundleManifests,
  readBundles,
  readSimpleSignatures,
  referrersTag,
  signatureTag,
} from './signature.ts'
export { unpackModule } from './unpack.ts'
