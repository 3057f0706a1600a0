/**
 * Signatures of cosign key pairs, in both forms: "simple signing" payloads under a tag, and Sigstore bundles. Pure: bytes
 * and keys in, a boolean out. Certificates and transparency logs are ignored: a signature is valid if one of the given
 * keys signed this manifest.
 */
import { verify } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { isDigest } from '#core/digest.ts'
import type { Descriptor } from './manifest.ts'

/** cosign, "Signature Specification": the payload is a layer, the signature its annotation. */
export const SIMPLE_SIGNING_TYPE = 'application/vnd.dev.cosign.simplesigning.v1+json'
const SIGNATURE_ANNOTATION = 'dev.cosignproject.cosign/signature'
/** Sigstore, "Bundle Format"; the prefix of every version. */
const BUNDLE_TYPE = /^application\/vnd\.dev\.sigstore\.bundle(\.v\d+(\.\d+)?)?\+json/
const IN_TOTO_TYPE = 'application/vnd.in-toto+json'
const MAX_SIGNATURES = 32

/** A payload and its claimed signature. */
export type SimpleSignature = { payload: Descriptor; signature: Buffer }

type JsonObject = Record<string, unknown>

/** The tag of cosign's signatures of a manifest. */
export function signatureTag(manifestDigest: string): string {
  return `${manifestDigest.replace(':', '-')}.sig`
}

/** OCI distribution, "Referrers Tag Schema": the tag of the same index in a registry without the referrers API. */
export function referrersTag(manifestDigest: string): string {
  return manifestDigest.replace(':', '-')
}

/** The signatures in a signature manifest; other layers are ignored. */
export function readSimpleSignatures(manifest: Uint8Array): SimpleSignature[] {
  return layersOf(manifest).flatMap(({ descriptor, annotations }) => {
    const signature = annotations[SIGNATURE_ANNOTATION]
    return descriptor.mediaType === SIMPLE_SIGNING_TYPE && typeof signature === 'string'
      ? [{ payload: descriptor, signature: Buffer.from(signature, 'base64') }]
      : []
  })
}

/** True if the payload refers to this manifest and one of the keys signed it. */
export function isSimplySigned(
  payload: Uint8Array,
  signature: Uint8Array,
  manifestDigest: string,
  keys: readonly KeyObject[],
): boolean {
  const critical = objectOf(parseJson(payload)?.['critical'])
  if (objectOf(critical?.['image'])?.['docker-manifest-digest'] !== manifestDigest) return false
  if (critical?.['type'] !== 'cosign container image signature') return false
  return isSignedBy(payload, signature, keys)
}

/** The digests of the Sigstore bundles in an index of referrers. */
export function readBundleManifests(index: Uint8Array): string[] {
  return bundlesOfIndex(index).map(({ digest }) => digest)
}

/** The entries of an index of referrers that are Sigstore bundles. */
export function bundlesOfIndex(index: Uint8Array): (JsonObject & { digest: string })[] {
  const entries = parseJson(index)?.['manifests']
  if (!Array.isArray(entries)) return []
  return entries
    .flatMap((value) => {
      const entry = objectOf(value)
      const { artifactType, digest } = entry ?? {}
      const isBundle = typeof artifactType === 'string' && BUNDLE_TYPE.test(artifactType)
      return isBundle && typeof digest === 'string' && isDigest(digest) ? [{ ...entry, digest }] : []
    })
    .slice(0, MAX_SIGNATURES)
}

/** The layers of a manifest that are Sigstore bundles. */
export function readBundles(manifest: Uint8Array): Descriptor[] {
  return layersOf(manifest)
    .map(({ descriptor }) => descriptor)
    .filter(({ mediaType }) => BUNDLE_TYPE.test(mediaType))
}

/** True if the bundle contains a signature of this manifest by one of the keys, as a statement or of the bare bytes. */
export function isSignedByBundle(
  bundle: Uint8Array,
  manifest: { digest: string; bytes: Uint8Array },
  keys: readonly KeyObject[],
): boolean {
  const body = parseJson(bundle)
  const envelope = objectOf(body?.['dsseEnvelope'])
  if (envelope !== undefined) return isEnvelopeSigned(envelope, manifest.digest, keys)
  const signature = objectOf(body?.['messageSignature'])?.['signature']
  return typeof signature === 'string' && isSignedBy(manifest.bytes, Buffer.from(signature, 'base64'), keys)
}

/** DSSE, "Protocol": the signature covers type and payload in their pre-authentication encoding. */
function isEnvelopeSigned(envelope: JsonObject, manifestDigest: string, keys: readonly KeyObject[]): boolean {
  const { payload, payloadType, signatures } = envelope
  if (typeof payload !== 'string' || payloadType !== IN_TOTO_TYPE || !Array.isArray(signatures)) return false
  const bytes = Buffer.from(payload, 'base64')
  const subjects = parseJson(bytes)?.['subject']
  const isAboutIt =
    Array.isArray(subjects) &&
    subjects.some(
      (subject) => `sha256:${String(objectOf(objectOf(subject)?.['digest'])?.['sha256'])}` === manifestDigest,
    )
  if (!isAboutIt) return false
  const head = `DSSEv1 ${Buffer.byteLength(payloadType)} ${payloadType} ${bytes.length} `
  const signed = Buffer.concat([Buffer.from(head), bytes])
  return signatures.slice(0, MAX_SIGNATURES).some((one) => {
    const sig = objectOf(one)?.['sig']
    return typeof sig === 'string' && isSignedBy(signed, Buffer.from(sig, 'base64'), keys)
  })
}

/**
 * SHA-256 with ECDSA or RSA (PKCS #1 v1.5), or Ed25519: the algorithms of `cosign generate-key-pair` and its key stores.
 */
function isSignedBy(bytes: Uint8Array, signature: Uint8Array, keys: readonly KeyObject[]): boolean {
  return keys.some((key) => {
    try {
      return verify(key.asymmetricKeyType === 'ed25519' ? null : 'sha256', bytes, key, signature)
    } catch {
      return false // the form of the signature does not match the key
    }
  })
}

function layersOf(manifest: Uint8Array): { descriptor: Descriptor; annotations: JsonObject }[] {
  const layers = parseJson(manifest)?.['layers']
  if (!Array.isArray(layers)) return []
  return layers.slice(0, MAX_SIGNATURES).flatMap((value) => {
    const layer = objectOf(value)
    const { mediaType, digest, size } = layer ?? {}
    if (typeof mediaType !== 'string' || typeof digest !== 'string' || !isDigest(digest)) return []
    if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) return []
    const descriptor = { mediaType, digest, sizeBytes: size }
    return [{ descriptor, annotations: objectOf(layer?.['annotations']) ?? {} }]
  })
}

function parseJson(bytes: Uint8Array): JsonObject | undefined {
  try {
    return objectOf(JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')))
  } catch {
    return undefined
  }
}

function objectOf(value: unknown): JsonObject | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined
}
