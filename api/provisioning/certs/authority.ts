/**
 * The certificate authority of the installation: made at the first start and kept sealed in the database, the same for every
 * process, or given as files. Its key signs in memory and is never shown.
 */
import { X509Certificate, createPrivateKey, generateKeyPairSync, randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { ensureSealed } from './repository.ts'
import { keyBitsOf, keyIdOf, makeCertificate, publicKeyDer } from './x509/certificate.ts'
import type { Issuer } from './x509/certificate.ts'
import { pem } from './x509/der.ts'
import { childrenOf, parseDer } from './x509/read-der.ts'

export type Authority = Issuer & {
  /** Hex of the key identifier: the name under which its certificates are stored. */
  id: string
  /** PEM of its own certificate, followed by what that was signed with where it was given so. */
  chain: string
  /** PEM of its own certificate alone. */
  certificate: string
  serial: string
  keyBits: Buffer
  notAfter: Date
}

export type AuthorityConfig = { caCert: string | undefined; caKey: string | undefined }

const SECRET_NAME = 'certificate_authority'
const VALID_YEARS = 20
/** Clocks of devices lag: what is made now must be good for them too. */
export const CLOCK_SKEW_MS = 300_000
/** RFC 5280 section 4.1.2.2 allows 20 bytes; 16 random ones never meet. */
const SERIAL_BYTES = 16

/** A serial number that is positive without a leading zero byte. */
export function newSerial(): Buffer {
  const bytes = randomBytes(SERIAL_BYTES)
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40
  return bytes
}

/** Throws `malformed` naming the setting that cannot be used. */
export async function loadAuthority(
  { caCert, caKey }: AuthorityConfig,
  database: Database,
  keyring: Keyring,
): Promise<Authority> {
  if ((caCert === undefined) !== (caKey === undefined))
    throw new ServiceError('malformed', 'SKEIN_CA_CERT and SKEIN_CA_KEY belong together: set both or neither')
  if (caCert !== undefined && caKey !== undefined)
    return authorityOf(await readPem(caCert, 'SKEIN_CA_CERT'), await readPem(caKey, 'SKEIN_CA_KEY'))
  const own = JSON.parse(
    await ensureSealed(database.db, keyring, SECRET_NAME, () => JSON.stringify(makeAuthority())),
  ) as { certificate: string; key: string }
  return authorityOf(own.certificate, own.key)
}

async function readPem(path: string, setting: string): Promise<string> {
  return await readFile(path, 'utf8').catch((error: Error) => {
    throw new ServiceError('malformed', `the file of ${setting} cannot be read: ${error.message}`, { cause: error })
  })
}

function makeAuthority(): { certificate: string; key: string } {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const notBefore = new Date(Date.now() - CLOCK_SKEW_MS)
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + VALID_YEARS)
  const serial = newSerial()
  const der = makeCertificate(
    {
      purpose: 'authority',
      serial,
      // Two installations must not have authorities of one name: a device that knows both could not tell them apart.
      subject: { commonName: `Skein authority ${serial.toString('hex', 0, 4)}`, organization: ['Skein'] },
      publicKey: publicKeyDer(privateKey),
      notBefore,
      notAfter,
    },
    { selfKey: privateKey },
  )
  return { certificate: pem('CERTIFICATE', der), key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string }
}

const PEM_BEGIN = '-----BEGIN CERTIFICATE-----'
const PEM_END = '-----END CERTIFICATE-----'

/** The certificates of a file, which may say something between them. */
function certificatesOf(text: string): string[] {
  const ended = text.split(PEM_END).slice(0, -1)
  return ended.flatMap((before) => {
    const begin = before.lastIndexOf(PEM_BEGIN)
    return begin === -1 ? [] : [before.slice(begin) + PEM_END]
  })
}

function authorityOf(chainText: string, keyText: string): Authority {
  const refuse = (message: string, cause?: unknown) =>
    new ServiceError('malformed', `SKEIN_CA_CERT and SKEIN_CA_KEY cannot be used: ${message}`, { cause })
  const chain = certificatesOf(chainText)
  let certificate: X509Certificate
  let key
  try {
    certificate = new X509Certificate(chain[0] ?? '')
    key = createPrivateKey(keyText)
  } catch (error) {
    throw refuse((error as Error).message, error)
  }
  if (!certificate.ca) throw refuse('the certificate is not one of an authority')
  if (!certificate.checkPrivateKey(key)) throw refuse('they do not fit together')
  const spki = publicKeyDer(key)
  // What issued certificates name as their issuer is this name, byte for byte.
  const [toBeSigned] = childrenOf(parseDer(certificate.raw))
  const fields = toBeSigned === undefined ? [] : childrenOf(toBeSigned)
  const subject = fields[fields[0]?.tag === 0xa0 ? 5 : 4]
  if (subject === undefined) throw refuse('the certificate has no subject')
  const keyId = keyIdOf(spki)
  return {
    name: subject.whole,
    keyId,
    key,
    id: keyId.toString('hex'),
    chain: `${chain.join('\n')}\n`,
    certificate: `${chain[0]}\n`,
    serial: certificate.serialNumber.toLowerCase(),
    keyBits: keyBitsOf(spki),
    notAfter: new Date(certificate.validTo),
  }
}
