/**
 * Chooses the folders of the cluster and the binaries, and their owner. By default these are the data folder, the installed
 * package and the current user. As root, the server runs under another user id, which cannot enter a home folder with mode 0700:
 * then its files are below the system folder, and a notice says so.
 */
import { chmodSync, existsSync, mkdirSync, readdirSync, realpathSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { nobodyAccount, ownAccount, ownerOf } from './account.ts'
import type { Account } from './account.ts'
import type { PostgresBinaries } from './binaries.ts'
import { copyBinaries } from './copy-binaries.ts'
import { ensureServerFolderName, findServerFolderName } from './location.ts'
import { findBarrier } from './reachable.ts'
import { fileFailure } from './failures.ts'

export type ServerHome = {
  /** The folder with all files of the server: cluster, password, lock and socket. */
  baseDir: string
  account: Account
  binaries: PostgresBinaries
  notices: string[]
}

/** The folder that root uses when the server cannot reach the data folder or the package. */
export const SYSTEM_DIR = '/var/lib/skein'

export async function chooseServerHome(
  dataDir: string,
  installed: PostgresBinaries,
  systemDir = SYSTEM_DIR,
): Promise<ServerHome> {
  const own = ownAccount()
  if (own.uid !== 0) {
    const baseDir = ensureFolder(resolve(dataDir), 0o700)
    requireOwner(baseDir, own)
    return { baseDir, account: own, binaries: installed, notices: [] }
  }
  const notices: string[] = []
  const { baseDir, account } = chooseForRoot(ensureFolder(resolve(dataDir), 0o711), systemDir, notices)
  const barrier = binariesBarrier(installed, account)
  if (barrier === undefined) return { baseDir, account, binaries: installed, notices }
  const binaries = await copyBinaries(installed, ensureSystemFolder(systemDir, 'postgres'))
  notices.push(
    `PostgreSQL runs from ${binaries.root}, because user id ${account.uid} may not read ${barrier} (Skein was started as root)`,
  )
  return { baseDir, account, binaries, notices }
}

/** The cluster's folder below a base folder, whether it exists or not. */
export function clusterDirOf(baseDir: string): string {
  return join(baseDir, 'postgres', 'cluster')
}

function hasCluster(baseDir: string): boolean {
  return existsSync(join(clusterDirOf(baseDir), 'PG_VERSION'))
}

function chooseForRoot(requested: string, systemDir: string, notices: string[]): { baseDir: string; account: Account } {
  const dataOf = (name: string) => join(systemDir, 'data', name)
  const location = findServerFolderName(requested)
  // A cluster that exists below the system folder stays in use, even when the requested folder is accessible now: an empty
  // database would look like the loss of every message.
  if (location !== undefined && !hasCluster(requested) && hasCluster(dataOf(location))) {
    const baseDir = dataOf(location)
    notices.push(`the database of ${requested} is in ${baseDir}`)
    return { baseDir, account: accountFor(baseDir) }
  }
  const account = accountFor(requested)
  openIfEmpty(requested)
  const barrier = findBarrier(requested, account, 'enter')
  if (barrier === undefined) return { baseDir: requested, account }
  if (hasCluster(requested)) {
    throw new ServiceError(
      'invalid_state',
      `the database in ${requested} cannot be used: user id ${account.uid}, which runs PostgreSQL for root, may not ` +
        `enter ${barrier}; run chmod o+x ${barrier}, or start Skein as the owner of the data`,
    )
  }
  ensureSystemFolder(systemDir, 'data')
  const baseDir = ensureFolder(dataOf(ensureServerFolderName(requested)), 0o711)
  notices.push(
    `the database of ${requested} is in ${baseDir}, because user id ${account.uid} may not enter ${barrier} ` +
      `(Skein was started as root)`,
  )
  return { baseDir, account: accountFor(baseDir) }
}

/** The owner of an existing cluster, otherwise the owner of the folder, otherwise `nobody`. */
function accountFor(baseDir: string): Account {
  if (hasCluster(baseDir)) {
    const clusterDir = clusterDirOf(baseDir)
    const owner = ownerOf(clusterDir)
    if (owner.uid !== 0) return { ...owner, isSelf: false }
    const nobody = nobodyAccount()
    throw new ServiceError(
      'invalid_state',
      `the database in ${clusterDir} belongs to root, and PostgreSQL does not run as root; run ` +
        `chown -R ${nobody.uid}:${nobody.gid} ${dirname(clusterDir)}`,
    )
  }
  const owner = ownerOf(baseDir)
  return owner.uid === 0 ? nobodyAccount() : { ...owner, isSelf: false }
}

/** Makes an empty folder of root accessible: its permissions protect nothing yet. */
function openIfEmpty(folder: string): void {
  if (ownerOf(folder).uid === 0 && readdirSync(folder).length === 0) chmodSync(folder, 0o711)
}

function requireOwner(baseDir: string, own: Account): void {
  const clusterDir = clusterDirOf(baseDir)
  for (const path of [baseDir, dirname(clusterDir), clusterDir]) {
    if (!existsSync(path)) continue
    const owner = ownerOf(path)
    if (owner.uid === own.uid) continue
    throw new ServiceError(
      'invalid_state',
      `the data folder ${path} belongs to user id ${owner.uid}, and Skein runs as ${own.uid}; start Skein as its owner, ` +
        `or set SKEIN_DATA_DIR to another folder`,
    )
  }
}

function binariesBarrier(binaries: PostgresBinaries, account: Account): string | undefined {
  return (
    findBarrier(binaries.initdb, account, 'run') ??
    findBarrier(binaries.postgres, account, 'run') ??
    findBarrier(binaries.libDir, account, 'run') ??
    findBarrier(join(binaries.shareDir, 'postgres.bki'), account, 'read')
  )
}

/** A folder below the system folder, which only root may write: the server's programs are run from there. */
function ensureSystemFolder(systemDir: string, name: string): string {
  ensureFolder(systemDir, 0o755)
  const folder = ensureFolder(join(systemDir, name), 0o755)
  for (const path of [systemDir, folder]) {
    if (ownerOf(path).uid !== 0)
      throw new ServiceError('invalid_state', `${path} must belong to root; run chown root ${path}`)
  }
  return folder
}

function ensureFolder(path: string, mode: number): string {
  try {
    mkdirSync(dirname(path), { recursive: true })
    if (!existsSync(path)) {
      mkdirSync(path, { mode })
      // The umask may have removed bits that the server's user id needs.
      chmodSync(path, mode)
    }
    return realpathSync(path)
  } catch (cause) {
    throw fileFailure(cause, `the data folder ${path} cannot be created`)
  }
}
