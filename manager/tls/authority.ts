/**
 * The certificate authority of the installation. It signs certificates of workers, so that a leaked secret is not
 * sufficient to impersonate a worker. The names in a request are ignored; the certificate contains the worker's id.
 * Servers are identified by fingerprint.
 */
import { createHash, createPrivateKey, X509Certificate } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { ensureSecret } from '#core/keyring/index.ts'
import type { Keyring } from '#core/keyring/index.ts'

/** A worker that was offline for longer must join again. */
export const CERTIFICATE_DAYS = 90
export const CERTIFICATE_MS = CERTIFICATE_DAYS * 86_400_000
/** Tolerates workers with a slow clock. */
const BACKDATED_MS = 86_400_000
const AUTHORITY_YEARS = 50

export type IssuedCertificate = { pem: string; fingerprint: string }

export type Authority = {
  /** The certificate of the authority, PEM. */
  readonly pem: string
  /** Throws `malformed` for an invalid request or one that is not signed by its own key. */
  issue(request: Uint8Array, workerId: string): Promise<IssuedCertificate>
}

export async function ensureAuthority(database: Database, keyring: Keyring): Promise<Authority> {
  const stored = await ensureSecret(database.db, keyring, {
    name: 'worker_authority',
    purpose: 'worker authority',
    make: createAuthority,
  })
  const { cert, key } = JSON.parse(stored) as { cert: string; key: string }
  return { pem: cert, issue: (request, workerId) => issue({ cert, key }, request, workerId) }
}

async function issue(
  authority: { cert: string; key: string },
  request: Uint8Array,
  workerId: string,
): Promise<IssuedCertificate> {
  const { SigningKey, issuerOf, createCertificate, newSerial, pem, readSigningRequest } = await import('#x509/index.ts')
  const publicKey = readSigningRequest(Buffer.from(request), '/certificate_request')
  const key = createPrivateKey({ key: Buffer.from(authority.key, 'base64'), format: 'der', type: 'pkcs8' })
  const der = await createCertificate(
    {
      // The certificate is for a server too, because workers of a site fetch modules from each other.
      purpose: 'peer',
      serial: newSerial(),
      subject: { commonName: workerId },
      publicKey,
      notBefore: new Date(Date.now() - BACKDATED_MS),
      notAfter: new Date(Date.now() + CERTIFICATE_MS),
    },
    issuerOf(new X509Certificate(authority.cert), new SigningKey(key)),
  )
  return { pem: pem('CERTIFICATE', der), fingerprint: createHash('sha256').update(der).digest('hex') }
}

async function createAuthority(): Promise<string> {
  const { SigningKey, createCertificate, newSerial, pem } = await import('#x509/index.ts')
  const selfKey = SigningKey.generate()
  const { publicKey } = selfKey
  const notBefore = new Date(Date.now() - BACKDATED_MS)
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + AUTHORITY_YEARS)
  const subject = { commonName: 'Skein workers' }
  const der = await createCertificate(
    { purpose: 'authority', serial: newSerial(), subject, publicKey, notBefore, notAfter },
    { selfKey },
  )
  const key = selfKey.key.export({ type: 'pkcs8', format: 'der' }).toString('base64')
  return JSON.stringify({ cert: pem('CERTIFICATE', der), key })
}
