/**
 * TLS of the gRPC listeners. On loopback none; elsewhere the given files, or a certificate that the installation makes
 * once and keeps sealed in the database. Workers need no authority: the join token carries the fingerprint.
 */
import { readFile } from 'node:fs/promises'
import { webcrypto } from 'node:crypto'
import { sql } from 'kysely'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { isLoopback } from '#proto/index.ts'
import type { ManagerConfig } from './config.ts'

export type GrpcTls = { cert: Buffer; key: Buffer }

type GrpcTlsConfig = Pick<ManagerConfig, 'host' | 'tlsCert' | 'tlsKey' | 'insecure'>

const SECRET_NAME = 'grpc_certificate'
const PURPOSE = 'grpc certificate'
/** It is pinned, not trusted for its date; a new one would need new join tokens. */
const VALID_YEARS = 20
const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

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
    return { cert: await readPem(tlsCert, 'SKEIN_GRPC_TLS_CERT'), key: await readPem(tlsKey, 'SKEIN_GRPC_TLS_KEY') }
  }
  if (insecure || isLoopback(`${host}:0`)) return undefined
  return await ensureCertificate(database, keyring)
}

async function readPem(path: string, setting: string): Promise<Buffer> {
  return await readFile(path).catch((error: Error) => {
    throw new ServiceError('malformed', `${setting} ${path} cannot be read: ${error.message}`, { cause: error })
  })
}

/** The certificate of the installation, the same for every manager of the database. */
async function ensureCertificate(database: Database, keyring: Keyring): Promise<GrpcTls> {
  const find = async () => {
    const { rows } = await sql<{
      sealed: Buffer
    }>`SELECT sealed FROM sealed_secrets WHERE name = ${SECRET_NAME}`.execute(database.db)
    return rows[0]?.sealed
  }
  let sealed = await find()
  if (sealed === undefined) {
    const made = keyring.seal(PURPOSE, SECRET_NAME, JSON.stringify(await makeCertificate()))
    await sql`INSERT INTO sealed_secrets (name, sealed) VALUES (${SECRET_NAME}, ${made}) ON CONFLICT DO NOTHING`.execute(
      database.db,
    )
    // Another manager may have been faster; what is stored counts.
    sealed = (await find()) as Buffer
  }
  const { cert, key } = JSON.parse(keyring.open(PURPOSE, SECRET_NAME, sealed)) as { cert: string; key: string }
  return { cert: Buffer.from(cert), key: Buffer.from(key) }
}

async function makeCertificate(): Promise<{ cert: string; key: string }> {
  // Loaded only for the one start that makes a certificate.
  await import('reflect-metadata')
  const { X509CertificateGenerator, cryptoProvider } = await import('@peculiar/x509')
  cryptoProvider.set(webcrypto as never)
  const keys = await webcrypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify'])
  const notBefore = new Date()
  const notAfter = new Date(notBefore)
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + VALID_YEARS)
  const certificate = await X509CertificateGenerator.createSelfSigned({
    name: 'CN=Skein task manager',
    notBefore,
    notAfter,
    signingAlgorithm: KEY_ALGORITHM,
    keys: keys as never,
  })
  const pkcs8 = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64')
  const key = `-----BEGIN PRIVATE KEY-----\n${pkcs8.match(/.{1,64}/g)?.join('\n') ?? ''}\n-----END PRIVATE KEY-----\n`
  return { cert: certificate.toString('pem'), key }
}
