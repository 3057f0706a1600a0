/** The words of the OCI specifications: references, manifests, layers, and a client that pulls. */
export { isLoopbackHost, mayBePlainHttp } from './address.ts'
export type { AddressPolicy } from './address.ts'
export { createAuth } from './auth.ts'
export type { Credentials } from './auth.ts'
export { createRegistryClient } from './client.ts'
export type { ClientLimits, FetchedManifest, RegistryClient } from './client.ts'
export { createExchange } from './exchange.ts'
export type { Exchange, Repository } from './exchange.ts'
export { hexOf, isDigest } from './digest.ts'
export { chooseEntry, chooseLayer, parseManifest } from './manifest.ts'
export type { Descriptor, ModuleLayer } from './manifest.ts'
export { formatReference, isRegistryHost, parseReference, pinnedReference } from './reference.ts'
export type { Reference } from './reference.ts'
export { pushModule } from './push.ts'
export type { PushedModule } from './push.ts'
export { moduleInvalid } from './refusal.ts'
export { configuredAuthorities, createRegistries, parseRegistryUrl } from './registry.ts'
export type { ConfiguredRegistry } from './registry.ts'
export {
  isSignedByBundle,
  isSimplySigned,
  readBundleManifests,
  readBundles,
  readSimpleSignatures,
  referrersTag,
  signatureTag,
} from './signature.ts'
export { createTransport } from './transport.ts'
export type { TransportLimits } from './transport.ts'
export { unpackModule } from './unpack.ts'
export { createSingleFlight } from './single-flight.ts'
