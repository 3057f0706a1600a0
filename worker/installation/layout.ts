/** The places of an installed worker (decision 0121). All of it belongs to root, except the data folder, which systemd gives to the worker. */
import { lstat, readlink, rename, rm, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { HOME, SINGLE_FILE } from '#core/installation.ts'

export const SERVICE = 'skein-worker'
export const UNIT = `/etc/systemd/system/${SERVICE}.service`
export const USERS = '/etc/sysusers.d/skein.conf'
export const SETTINGS = '/etc/skein/skein-worker.env'
export const TOKEN = '/etc/skein/credentials/worker-token'
export const COMMAND = '/usr/local/bin/skein-worker'
export const DATA = '/var/lib/skein-worker'

export const PROGRAM_FOLDER = '/opt/skein-worker'
export const VERSIONS = join(PROGRAM_FOLDER, 'versions')
/** A link to the version that the unit starts. Replaced in one step. */
export const CURRENT = join(PROGRAM_FOLDER, 'current')
/** What the unit runs as root around each start: deploy/systemd/guard-upgrade.sh. */
export const GUARD = join(PROGRAM_FOLDER, 'guard-upgrade')
/**
 * Contains the name of the version before, as long as the current one has not joined. `trial-started` exists after its first
 * start. The guard goes back to the version before when it finds both at a start.
 */
export const TRIAL = join(PROGRAM_FOLDER, 'trial')
export const TRIAL_STARTED = join(PROGRAM_FOLDER, 'trial-started')

/** The folder of this program as it was unpacked, `<program>-<version>-<hash>`. Throws `unprocessable` outside of a single file. */
export function unpackedFolder(command: string): string {
  if (SINGLE_FILE === undefined)
    throw new ServiceError(
      'unprocessable',
      `${command} is a command of the single file skein-worker-linux-x64 or -arm64`,
    )
  return join(HOME, '..')
}

export function requireRoot(command: string): void {
  if (process.getuid?.() !== 0) throw new ServiceError('forbidden', `${command} changes the system: run it as root`)
}

/** The name of the version that a link leads to; undefined: there is no such link. */
export async function versionAt(link: string): Promise<string | undefined> {
  return await readlink(link).then(
    (target) => basename(target),
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined
      throw error
    },
  )
}

/** Makes `CURRENT` lead to a version, in one step: there is no time without a version. */
export async function useVersion(name: string): Promise<void> {
  const draft = `${CURRENT}.new`
  await rm(draft, { force: true })
  await symlink(join(VERSIONS, name), draft)
  await rename(draft, CURRENT)
}

export async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  )
}
