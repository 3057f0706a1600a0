/**
 * The certificate authority of the installation: created at the first start and sealed in the database, shared by all
 * processes, or given as files. Its private key is used in memory only.
 */
import { X509Certificate, createPrivateKey } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { ensureSecret } from '#core/keyring/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { SigningKey, issuerOf, createCertificate, newSerial, pem } from '#x509/index.ts'
import type { Issuer } from '#x509/index.ts'

export type Authority = Issuer & {
  /** Hex of the key identifier. Certificates are stored with it. */
  id: string
  /** PEM of its certificate, followed by the given certificate chain. */
  chain: string
  /** PEM of its certificate only. */
  certificate: string
  serial: string
  notAfter: Date
}

export type AuthorityConfig = { caCert: string | undefined; caKey: string | undefined }

const SECRET_NAME = 'certificate_authority'
const PURPOSE = 'certificate authority'
const VALID_YEARS = 20
/** Tolerated clock skew of devices: new certificates must be valid for slow clocks too. */
export const CLOCK_SKEW_MS = 300_000
/** Throws `malformed` with the name of an invalid setting. */
export async function loadAuthority(
  { caCert, caKey }: AuthorityConfig,
  database: Database,
  keyring: Keyring,
): Promise<Authority> {
  if ((caCert === undefined) !== (caKey === undefined))
    throw new ServiceError('malformed', 'SKEIN_CA_CERT and SKEIN_CA_KEY must be set together')
  if (caCert !== undefined && caKey !== undefined)
    return authorityOf(await readPem(caCert, 'SKEIN_CA_CERT'), await readPem(caKey, 'SKEIN_CA_KEY'))
  const stored = await ensureSecret(database.db, keyring, {
    name: SECRET_NAME,
    purpose: PURPOSE,
    make: createAuthority,
  })
  const own = JSON.parse(stored) as { certificate: string; key: string }
  return authorityOf(own.certificate, own.key)
}

async function readPem(path: string, setting: string): Promise<string> {
  return await readFile(path, 'utf8').catch((error: Error) => {
    throw new ServiceError('malformed', `failed to read the file of ${setting}: ${error.message}`, { cause: error })
  })
}

async function createAuthority(): Promise<string> {
  const selfKey = SigningKey.generate()
  const notBefore = new Date(Date.now() - CLOCK_SKEW_MS)
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + VALID_YEARS)
  const serial = newSerial()
  const der = await createCertificate(
    {
      purpose: 'authority',
      serial,
      // Authorities of different installations need different names, so that a device that trusts both can distinguish
      // them.
      subject: { commonName: `Skein authority ${serial.toString('hex', 0, 4)}`, organization: ['Skein'] },
      publicKey: selfKey.publicKey,
      notBefore,
      notAfter,
    },
    { selfKey },
  )
  return JSON.stringify({ certificate: pem('CERTIFICATE', der), key: selfKey.toPem() })
}

const PEM_BEGIN = '-----BEGIN CERTIFICATE-----'
const PEM_END = '-----END CERTIFICATE-----'

/** Returns the certificates of a PEM file, which can contain other text. */
function certificatesOf(text: string): string[] {
  const ended = text.split(PEM_END).slice(0, -1)
  return ended.flatMap((before) => {
    const begin = before.lastIndexOf(PEM_BEGIN)
    return begin === -1 ? [] : [before.slice(begin) + PEM_END]
  })
}

function authorityOf(chainText: string, keyText: string): Authority {
  const refuse = (message: string, cause?: unknown) =>
    new ServiceError('malformed', `SKEIN_CA_CERT and SKEIN_CA_KEY are not valid: ${message}`, { cause })
  const chain = certificatesOf(chainText)
  let certificate: X509Certificate
  let issuer: Issuer
  try {
    certificate = new X509Certificate(chain[0] ?? '')
    issuer = issuerOf(certificate, new SigningKey(createPrivateKey(keyText)))
  } catch (error) {
    throw refuse((error as Error).message, error)
  }
  return {
    ...issuer,
    id: issuer.keyId.toString('hex'),
    chain: `${chain.join('\n')}\n`,
    certificate: `${chain[0]}\n`,
    serial: certificate.serialNumber.toLowerCase(),
    notAfter: new Date(certificate.validTo),
  }
}
