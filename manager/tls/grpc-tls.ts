/**
 * TLS of the gRPC listeners. On loopback none; elsewhere the given files, or a certificate that the installation makes
 * once and keeps sealed in the database. Workers need no authority: the join token carries the fingerprint.
 */
import { readFile } from 'node:fs/promises'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { ensureSecret } from '#core/keyring/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { isLoopback } from '#proto/index.ts'
import { ensureAuthority } from './authority.ts'
import type { Authority } from './authority.ts'

/** `authority` signs what workers show. */
export type GrpcTls = { cert: Buffer; key: Buffer; authority: Authority }

/** `tlsCert` and `tlsKey` are paths of PEM files. */
type GrpcTlsConfig = { host: string; tlsCert: string | undefined; tlsKey: string | undefined; insecure: boolean }

const SECRET_NAME = 'grpc_certificate'
const PURPOSE = 'grpc certificate'
/** It is pinned, not trusted for its date; a new one would need new join tokens. */
const VALID_YEARS = 20

/** Undefined: plain text. Throws `malformed` with a sentence that says which variable to change. */
export async function prepareGrpcTls(
  config: GrpcTlsConfig,
  database: Database,
  keyring: Keyring,
): Promise<GrpcTls | undefined> {
  const { host, tlsCert, tlsKey, insecure } = config
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new ServiceError('malformed', 'SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY belong together')
  }
  if (tlsCert !== undefined && tlsKey !== undefined) {
    return {
      cert: await readPem(tlsCert, 'SKEIN_GRPC_TLS_CERT'),
      key: await readPem(tlsKey, 'SKEIN_GRPC_TLS_KEY'),
      authority: await ensureAuthority(database, keyring),
    }
  }
  if (insecure || isLoopback(`${host}:0`)) return undefined
  return { ...(await ensureCertificate(database, keyring)), authority: await ensureAuthority(database, keyring) }
}

async function readPem(path: string, setting: string): Promise<Buffer> {
  return await readFile(path).catch((error: Error) => {
    throw new ServiceError('malformed', `${setting} ${path} cannot be read: ${error.message}`, { cause: error })
  })
}

/** The certificate of the installation, the same for every manager of the database. */
async function ensureCertificate(database: Database, keyring: Keyring): Promise<Omit<GrpcTls, 'authority'>> {
  const make = async () => JSON.stringify(await makeCertificate())
  const stored = await ensureSecret(database.db, keyring, { name: SECRET_NAME, purpose: PURPOSE, make })
  const { cert, key } = JSON.parse(stored) as { cert: string; key: string }
  return { cert: Buffer.from(cert), key: Buffer.from(key) }
}

async function makeCertificate(): Promise<{ cert: string; key: string }> {
  // Loaded by the few who make a certificate.
  const { SigningKey, makeCertificate: make, newSerial, pem } = await import('#core/x509/index.ts')
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
