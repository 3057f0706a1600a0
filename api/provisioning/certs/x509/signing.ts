/** Signatures of an authority, and those that a signing request brings. */
import { sign, verify } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { ServiceError } from '#core/errors/index.ts'
import { bitString, nullValue, oid, sequence } from './der.ts'
import { OID } from './oids.ts'

type Algorithm = { hash: string | null; keyType: string; hasNull: boolean }

/** Nothing weaker is made or accepted: no SHA-1, no MD5. */
const ALGORITHMS: Readonly<Record<string, Algorithm>> = {
  [OID.ecdsaSha256]: { hash: 'sha256', keyType: 'ec', hasNull: false },
  [OID.ecdsaSha384]: { hash: 'sha384', keyType: 'ec', hasNull: false },
  [OID.ecdsaSha512]: { hash: 'sha512', keyType: 'ec', hasNull: false },
  [OID.rsaSha256]: { hash: 'sha256', keyType: 'rsa', hasNull: true },
  [OID.rsaSha384]: { hash: 'sha384', keyType: 'rsa', hasNull: true },
  [OID.rsaSha512]: { hash: 'sha512', keyType: 'rsa', hasNull: true },
  [OID.ed25519]: { hash: null, keyType: 'ed25519', hasNull: false },
}

const SIGNS_WITH: Readonly<Record<string, string>> = {
  ec: OID.ecdsaSha256,
  rsa: OID.rsaSha256,
  ed25519: OID.ed25519,
}

/** Throws `malformed` for a kind of key that signs nothing here. */
export function signatureAlgorithmOf(key: KeyObject): string {
  const name = SIGNS_WITH[key.asymmetricKeyType ?? '']
  if (name === undefined)
    throw new ServiceError('malformed', 'the key of an authority must be of the kind EC, RSA or Ed25519')
  return name
}

export function algorithmIdentifier(name: string): Buffer {
  return ALGORITHMS[name]?.hasNull === true ? sequence(oid(name), nullValue()) : sequence(oid(name))
}

/** `toBeSigned` with its algorithm and signature: the outer form of certificates, lists and OCSP answers alike. */
export function signed(toBeSigned: Buffer, key: KeyObject): { algorithm: Buffer; signature: Buffer } {
  const name = signatureAlgorithmOf(key)
  const signature = sign(ALGORITHMS[name]?.hash ?? null, toBeSigned, key)
  return { algorithm: algorithmIdentifier(name), signature: bitString(signature) }
}

/** Whether the signature is one of this key with this algorithm; false for algorithms that are too weak or unknown. */
export function isSignedBy(bytes: Buffer, algorithm: string, signature: Buffer, key: KeyObject): boolean {
  const found = ALGORITHMS[algorithm]
  if (found === undefined || found.keyType !== key.asymmetricKeyType) return false
  try {
    return verify(found.hash, bytes, key, signature)
  } catch {
    // A signature that is none for this kind of key is a wrong one.
    return false
  }
}
