/**
 * Whether a key of a policy signed a manifest (task manager section 6, rule 7). A positive result is cached permanently,
 * because manifests are immutable; a negative one is checked again.
 */
import { createHash, createPublicKey } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { join } from 'node:path'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { openRecords } from '../cache/index.ts'
import {
  isSignedByBundle,
  isSimplySigned,
  pinnedReference,
  readBundleManifests,
  readBundles,
  readSimpleSignatures,
  referrersTag,
  signatureTag,
} from '../oci/index.ts'
import type { Descriptor, Reference, RegistryClient } from '../oci/index.ts'

export type Signatures = {
  /**
   * True if one of the keys (PEM) signed the manifest. Throws `malformed` for an invalid key, and the errors of the
   * registry.
   */
  isSigned(reference: Reference, manifestDigest: string, keys: readonly string[], signal: AbortSignal): Promise<boolean>
}

export const MAX_KEYS = 16
const MAX_RECORDS = 10_000
/** Payloads and bundles are some kilobytes. */
const MAX_SIGNATURE_BYTES = 256 * 1024
const KEY_TYPES = new Set(['ec', 'ed25519', 'rsa'])

export async function openSignatures(client: RegistryClient, folder: string): Promise<Signatures> {
  const signed = await openRecords({
    folder: join(folder, 'signed'),
    maxRecords: MAX_RECORDS,
    parse: (value) => (value === true ? true : undefined),
  })

  async function readSmall(reference: Reference, blob: Descriptor, signal: AbortSignal): Promise<Buffer | undefined> {
    if (blob.sizeBytes > MAX_SIGNATURE_BYTES) return undefined
    const pieces: Buffer[] = []
    for await (const piece of client.readBlob(reference, blob, signal)) pieces.push(piece)
    return Buffer.concat(pieces)
  }

  async function findManifest(reference: Reference, signal: AbortSignal): Promise<Buffer | undefined> {
    try {
      return (await client.getManifest(reference, signal)).bytes
    } catch (error) {
      if (kindOf(error) === 'not_found') return undefined
      throw error
    }
  }

  async function hasSimpleSignature(
    reference: Reference,
    manifestDigest: string,
    keys: readonly KeyObject[],
    signal: AbortSignal,
  ): Promise<boolean> {
    const tagged = { ...reference, digest: undefined, tag: signatureTag(manifestDigest) }
    const manifest = await findManifest(tagged, signal)
    for (const { payload, signature } of manifest === undefined ? [] : readSimpleSignatures(manifest)) {
      const bytes = await readSmall(reference, payload, signal)
      if (bytes !== undefined && isSimplySigned(bytes, signature, manifestDigest, keys)) return true
    }
    return false
  }

  async function hasBundle(
    reference: Reference,
    manifestDigest: string,
    keys: readonly KeyObject[],
    signal: AbortSignal,
  ): Promise<boolean> {
    const index =
      (await client.getReferrers(reference, manifestDigest, signal)) ??
      (await findManifest({ ...reference, digest: undefined, tag: referrersTag(manifestDigest) }, signal))
    const bundleManifests = index === undefined ? [] : readBundleManifests(index)
    if (bundleManifests.length === 0) return false
    const subject = await findManifest({ ...reference, digest: manifestDigest }, signal)
    if (subject === undefined) return false
    for (const digest of bundleManifests) {
      const manifest = await findManifest({ ...reference, digest }, signal)
      for (const layer of manifest === undefined ? [] : readBundles(manifest)) {
        const bundle = await readSmall(reference, layer, signal)
        if (bundle !== undefined && isSignedByBundle(bundle, { digest: manifestDigest, bytes: subject }, keys))
          return true
      }
    }
    return false
  }

  return {
    async isSigned(reference, manifestDigest, pems, signal) {
      const keys = pems.slice(0, MAX_KEYS).map(parseKey)
      const record = `${pinnedReference(reference, manifestDigest)} ${digestOfKeys(keys)}`
      if ((await signed.get(record)) === true) return true
      const isSigned =
        (await hasSimpleSignature(reference, manifestDigest, keys, signal)) ||
        (await hasBundle(reference, manifestDigest, keys, signal))
      if (isSigned) await signed.set(record, true)
      return isSigned
    },
  }
}

function parseKey(pem: string): KeyObject {
  try {
    const key = createPublicKey(pem)
    if (KEY_TYPES.has(key.asymmetricKeyType ?? '')) return key
  } catch {
    // said below
  }
  throw new ServiceError('malformed', 'a signature key must be a public key in PEM: ECDSA, RSA or Ed25519')
}

function digestOfKeys(keys: readonly KeyObject[]): string {
  const texts = keys.map((key) => key.export({ format: 'der', type: 'spki' }).toString('base64'))
  return createHash('sha256').update(texts.toSorted().join(' ')).digest('hex')
}
