/** Reads the certificate files of the listeners; a half-configured TLS is refused, never silently plain. */
import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { ServiceError } from '../errors/index.ts'
import type { TlsFiles } from './listeners.ts'
import type { HttpConfig } from './settings.ts'

/** Undefined: no TLS is configured. Throws `malformed` for a missing, unreadable or unfitting file. */
export async function readTlsFiles(
  config: Pick<HttpConfig, 'tlsCert' | 'tlsKey' | 'tlsCa'>,
): Promise<TlsFiles | undefined> {
  const { tlsCert, tlsKey, tlsCa } = config
  if (tlsCert === undefined && tlsKey === undefined) return undefined
  if (tlsCert === undefined || tlsKey === undefined)
    throw new ServiceError('malformed', 'SKEIN_TLS_CERT and SKEIN_TLS_KEY belong together: set both or neither')
  const read = async (path: string, setting: string) =>
    await readFile(path).catch((error: Error) => {
      throw new ServiceError('malformed', `the file of ${setting} cannot be read: ${error.message}`, { cause: error })
    })
  const files = {
    cert: await read(tlsCert, 'SKEIN_TLS_CERT'),
    key: await read(tlsKey, 'SKEIN_TLS_KEY'),
    ...(tlsCa === undefined ? {} : { ca: await read(tlsCa, 'SKEIN_TLS_CA') }),
  }
  try {
    createSecureContext(files)
  } catch (error) {
    throw new ServiceError(
      'malformed',
      `SKEIN_TLS_CERT and SKEIN_TLS_KEY do not fit together: ${(error as Error).message}`,
      { cause: error },
    )
  }
  return files
}
