/** The folder of the server's Unix socket: mode 0700, owned by the server's user, with a path that is short enough. */
import { createHash } from 'node:crypto'
import { chmodSync, lstatSync, mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { giveTo } from './account.ts'
import type { Account } from './account.ts'
import { fileFailure } from './failures.ts'

/** The number in the socket's name; no TCP port is opened. */
export const SOCKET_PORT = 5432

/** sockaddr_un has room for 104 bytes on macOS and 108 on Linux; a few are kept in reserve. */
export const MAX_SOCKET_PATH_BYTES = 100

/**
 * Creates the folder below `postgresDir`. If that path is too long, creates it below `temporaryDir` under a name that stays the
 * same for this data folder, so that a restarted server has the same address.
 */
export function ensureSocketDir(postgresDir: string, account: Account, temporaryDir = tmpdir()): string {
  const preferred = join(postgresDir, 'run')
  const name = `skein-${account.uid}-${createHash('sha256').update(postgresDir).digest('hex').slice(0, 12)}`
  const folder = [preferred, join(temporaryDir, name), join('/tmp', name)].find(isShortEnough)
  if (folder === undefined) {
    throw new ServiceError(
      'unavailable',
      `the path ${preferred} is too long for a socket; set SKEIN_DATA_DIR to a shorter one`,
    )
  }
  try {
    const created = mkdirSync(folder, { recursive: true, mode: 0o700 })
    if (created !== undefined) giveTo(account, folder)
    // In a temporary folder, another user could have created it first to listen in our server's place.
    const entry = lstatSync(folder)
    if (!entry.isDirectory()) throw new ServiceError('invalid_state', `${folder} is a link and not a folder; remove it`)
    if (entry.uid !== account.uid) {
      throw new ServiceError(
        'invalid_state',
        `${folder} belongs to the user id ${entry.uid} and not to ${account.uid}; remove it`,
      )
    }
    chmodSync(folder, 0o700)
    return folder
  } catch (error) {
    throw fileFailure(error, `the socket folder ${folder} cannot be created`)
  }
}

function isShortEnough(folder: string): boolean {
  return Buffer.byteLength(join(folder, `.s.PGSQL.${SOCKET_PORT}`)) <= MAX_SOCKET_PATH_BYTES
}
