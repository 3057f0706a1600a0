/**
 * The certificate files of the listeners. They are read at the start, where an incomplete TLS configuration is an error, and
 * reread while they are used, so that renewed files need no restart.
 */
import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { ServiceError } from '#core/errors/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { TlsFiles } from './listeners.ts'
import type { HttpConfig } from '../settings.ts'

type TlsConfig = Pick<HttpConfig, 'tlsCert' | 'tlsKey' | 'tlsCa'>

/** The interval at which the files are checked for changes. */
const RELOAD_MS = 30_000

/** Undefined when TLS is not configured. Throws `malformed` for a missing, unreadable or mismatched file. */
export async function readTlsFiles(config: TlsConfig): Promise<TlsFiles | undefined> {
  const { tlsCert, tlsKey, tlsCa } = config
  if (tlsCert === undefined && tlsKey === undefined) return undefined
  if (tlsCert === undefined || tlsKey === undefined)
    throw new ServiceError('malformed', 'SKEIN_TLS_CERT and SKEIN_TLS_KEY must be set together')
  const read = async (path: string, setting: string) =>
    await readFile(path).catch((error: Error) => {
      throw new ServiceError('malformed', `failed to read the file of ${setting}: ${error.message}`, { cause: error })
    })
  const files = {
    cert: await read(tlsCert, 'SKEIN_TLS_CERT'),
    key: await read(tlsKey, 'SKEIN_TLS_KEY'),
    ...(tlsCa === undefined ? {} : { ca: await read(tlsCa, 'SKEIN_TLS_CA') }),
  }
  try {
    createSecureContext(files)
  } catch (error) {
    throw new ServiceError('malformed', `SKEIN_TLS_CERT and SKEIN_TLS_KEY do not match: ${(error as Error).message}`, {
      cause: error,
    })
  }
  return files
}

/**
 * Reads the TLS files as `readTlsFiles` does, and rereads them until the end of the program. Files that cannot be used, such as a
 * certificate whose key is not written yet, are ignored with one log line, and the previous files stay in use.
 */
export async function startTlsFiles(
  life: Lifecycle,
  config: TlsConfig,
  logger: Logger,
  reloadMs = RELOAD_MS,
): Promise<TlsFiles | undefined> {
  const first = await readTlsFiles(config)
  if (first === undefined) return undefined
  let current = first
  let reading: Promise<void> | undefined
  let complaint: string | undefined
  const listeners = new Set<(files: TlsFiles) => void>()

  async function reload(): Promise<void> {
    try {
      const files = await readTlsFiles(config)
      complaint = undefined
      if (files === undefined || isSame(files, current)) return
      current = files
      for (const listener of listeners) listener(files)
      logger.info({ cert: config.tlsCert }, 'reloaded the certificate files of the listeners')
    } catch (error) {
      const { message } = error as Error
      if (message !== complaint) logger.warn(`${message}; the previous certificate stays in use`)
      complaint = message
    } finally {
      reading = undefined
    }
  }

  await life.start('TLS files', () => {
    const value = setInterval(() => {
      reading ??= reload()
    }, reloadMs)
    return Promise.resolve({ value, stop: () => Promise.resolve(clearInterval(value)) })
  })
  return {
    ...first,
    follow(listener) {
      listeners.add(listener)
      if (current !== first) listener(current)
      return () => void listeners.delete(listener)
    },
  }
}

function isSame(one: TlsFiles, other: TlsFiles): boolean {
  const text = ({ cert, key, ca }: TlsFiles) => [cert, key, ca ?? ''].map(String).join('\n')
  return text(one) === text(other)
}
