/**
 * TLS of the gRPC listeners. A listener on loopback has none; elsewhere they use the configured files, or a certificate that the
 * installation creates once and stores sealed in the database. Workers need no authority: the join token contains the fingerprint.
 */
import type { Database } from '#core/database/index.ts'
import { ensureSecret } from '#core/keyring/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { isLoopback } from '#proto/index.ts'
import { ensureAuthority } from './authority.ts'
import type { Authority } from './authority.ts'
import { readGrpcTlsFiles } from './grpc-tls-files.ts'
import type { GrpcTlsPaths } from './grpc-tls-files.ts'

/** `authority` signs the certificates of workers. */
export type GrpcTls = { cert: Buffer; key: Buffer; authority: Authority }

type GrpcTlsConfig = GrpcTlsPaths & { host: string; insecure: boolean }

const SECRET_NAME = 'grpc_certificate'
const PURPOSE = 'grpc certificate'
/** The certificate is pinned by fingerprint; a new one would require new join tokens. */
const VALID_YEARS = 20

/** Undefined: no TLS. Throws `malformed` with the setting to change. */
export async function prepareGrpcTls(
  config: GrpcTlsConfig,
  database: Database,
  keyring: Keyring,
): Promise<GrpcTls | undefined> {
  const { host, insecure } = config
  const files = await readGrpcTlsFiles(config)
  if (files !== undefined) return { ...files, authority: await ensureAuthority(database, keyring) }
  if (insecure || isLoopback(`${host}:0`)) return undefined
  return { ...(await ensureCertificate(database, keyring)), authority: await ensureAuthority(database, keyring) }
}

/** The certificate of the installation, the same for every manager of the database. */
async function ensureCertificate(database: Database, keyring: Keyring): Promise<Omit<GrpcTls, 'authority'>> {
  const make = async () => JSON.stringify(await createCertificate())
  const stored = await ensureSecret(database.db, keyring, { name: SECRET_NAME, purpose: PURPOSE, make })
  const { cert, key } = JSON.parse(stored) as { cert: string; key: string }
  return { cert: Buffer.from(cert), key: Buffer.from(key) }
}

async function createCertificate(): Promise<{ cert: string; key: string }> {
  // These functions are loaded on demand, because few processes create a certificate.
  const { SigningKey, createCertificate: make, newSerial, pem } = await import('#x509/index.ts')
  const selfKey = SigningKey.generate()
  const notBefore = new Date()
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + VALID_YEARS)
  const subject = { commonName: 'Skein task manager' }
  const { publicKey } = selfKey
  const der = await make(
    { purpose: 'server', serial: newSerial(), subject, publicKey, notBefore, notAfter },
    { selfKey },
  )
  return { cert: pem('CERTIFICATE', der), key: selfKey.toPem() }
}
