/** The certificate files of the gRPC listeners, for callers that must check them before the database is available. */
import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { ServiceError } from '#core/errors/index.ts'

/** Paths of PEM files. */
export type GrpcTlsPaths = { tlsCert: string | undefined; tlsKey: string | undefined }

/** Undefined: none are configured. Throws `malformed` with the setting to change. */
export async function readGrpcTlsFiles({
  tlsCert,
  tlsKey,
}: GrpcTlsPaths): Promise<{ cert: Buffer; key: Buffer } | undefined> {
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw new ServiceError('malformed', 'SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY must be set together')
  if (tlsCert === undefined || tlsKey === undefined) return undefined
  const files = {
    cert: await readPem(tlsCert, 'SKEIN_GRPC_TLS_CERT'),
    key: await readPem(tlsKey, 'SKEIN_GRPC_TLS_KEY'),
  }
  try {
    createSecureContext(files)
  } catch (error) {
    const message = `SKEIN_GRPC_TLS_CERT and SKEIN_GRPC_TLS_KEY cannot be used together: ${(error as Error).message}`
    throw new ServiceError('malformed', message, { cause: error })
  }
  return files
}

async function readPem(path: string, setting: string): Promise<Buffer> {
  return await readFile(path).catch((error: Error) => {
    throw new ServiceError('malformed', `cannot read ${path} of ${setting}: ${error.message}`, { cause: error })
  })
}
