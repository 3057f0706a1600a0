/**
 * The authority of the installation: signs certificates of workers, so that a secret that leaked is not enough to speak
 * for one. What a request names is ignored; the certificate names the worker's id. Servers are known by fingerprint.
 */
import { createHash, randomBytes, webcrypto, X509Certificate } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { ensureSecret } from './sealed-secret.ts'

/** A worker that was off for longer than this joins anew. */
export const CERTIFICATE_DAYS = 90
export const CERTIFICATE_MS = CERTIFICATE_DAYS * 86_400_000
/** Clocks of workers may be behind. */
const BACKDATED_MS = 86_400_000
const AUTHORITY_YEARS = 50
const MAX_REQUEST_BYTES = 8 * 1024

export const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

export type IssuedCertificate = { pem: string; fingerprint: string }

export type Authority = {
  /** The certificate of the authority, PEM. */
  readonly pem: string
  /** Throws `malformed` for what is no request or is not signed by its own key. */
  issue(request: Uint8Array, workerId: string): Promise<IssuedCertificate>
}

/** Loaded only by whoever makes a certificate. */
export async function loadX509() {
  await import('reflect-metadata')
  const x509 = await import('@peculiar/x509')
  x509.cryptoProvider.set(webcrypto as never)
  return x509
}

export async function ensureAuthority(database: Database, keyring: Keyring): Promise<Authority> {
  const stored = await ensureSecret(database, keyring, {
    name: 'worker_authority',
    purpose: 'worker authority',
    make: makeAuthority,
  })
  const { cert, key } = JSON.parse(stored) as { cert: string; key: string }
  return {
    pem: cert,
    async issue(request, workerId) {
      if (request.byteLength > MAX_REQUEST_BYTES) throw refusal()
      const { ExtendedKeyUsage, ExtendedKeyUsageExtension, Pkcs10CertificateRequest, X509CertificateGenerator } =
        await loadX509()
      const asked = await parse(() => new Pkcs10CertificateRequest(Uint8Array.from(request)))
      if (!(await asked.verify().catch(() => false))) throw refusal()
      const signingKey = await webcrypto.subtle.importKey('pkcs8', Buffer.from(key, 'base64'), KEY_ALGORITHM, false, [
        'sign',
      ])
      const certificate = await X509CertificateGenerator.create({
        serialNumber: randomBytes(16).toString('hex'),
        subject: `CN=${workerId}`,
        issuer: new X509Certificate(cert).subject.replaceAll('\n', ', '),
        notBefore: new Date(Date.now() - BACKDATED_MS),
        notAfter: new Date(Date.now() + CERTIFICATE_MS),
        publicKey: asked.publicKey,
        signingKey: signingKey as never,
        signingAlgorithm: KEY_ALGORITHM,
        // Of a server too: workers of one site give modules to each other.
        extensions: [new ExtendedKeyUsageExtension([ExtendedKeyUsage.clientAuth, ExtendedKeyUsage.serverAuth], true)],
      })
      const fingerprint = createHash('sha256').update(Buffer.from(certificate.rawData)).digest('hex')
      return { pem: certificate.toString('pem'), fingerprint }
    },
  }
}

function refusal(cause?: unknown): ServiceError {
  return new ServiceError(
    'malformed',
    'certificate_request must be a PKCS #10 request in DER, signed by its own key',
    cause === undefined ? {} : { cause },
  )
}

async function parse<T>(read: () => T): Promise<T> {
  try {
    return await Promise.resolve(read())
  } catch (error) {
    throw refusal(error)
  }
}

async function makeAuthority(): Promise<string> {
  const { BasicConstraintsExtension, KeyUsageFlags, KeyUsagesExtension, X509CertificateGenerator } = await loadX509()
  const keys = await webcrypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify'])
  const notBefore = new Date(Date.now() - BACKDATED_MS)
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + AUTHORITY_YEARS)
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: 'CN=Skein workers',
    notBefore,
    notAfter,
    signingAlgorithm: KEY_ALGORITHM,
    keys: keys as never,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ],
  })
  const key = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64')
  return JSON.stringify({ cert: certificate.toString('pem'), key })
}
