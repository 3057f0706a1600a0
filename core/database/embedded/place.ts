/**
 * Where the cluster and the binaries lie, and whose they are. Usually: the data folder, the installed package, this
 * user. As root the server runs under another id, which may not get below a 0700 home: then what it needs goes below
 * the system folder, and a notice says so.
 */
import { chmodSync, existsSync, mkdirSync, readdirSync, realpathSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { ServiceError } from '../../errors/index.ts'
import { nobodyAccount, ownAccount, ownerOf } from './account.ts'
import type { Account } from './account.ts'
import type { Binaries } from './binaries.ts'
import { copyBinaries } from './copy-binaries.ts'
import { ensureLocation, findLocation } from './location.ts'
import { findBarrier } from './reachable.ts'
import { fileFailure } from './failures.ts'

export type Place = {
  /** The folder that holds everything of the server: cluster, password, lock, socket. */
  baseDir: string
  account: Account
  binaries: Binaries
  notices: string[]
}

/** What root uses when the server cannot reach what it should. */
export const SYSTEM_DIR = '/var/lib/skein'

export async function choosePlace(dataDir: string, installed: Binaries, systemDir = SYSTEM_DIR): Promise<Place> {
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

/** Where the cluster of a base folder lies, whether it exists or not. */
export function clusterDirOf(baseDir: string): string {
  return join(baseDir, 'postgres', 'cluster')
}

function hasCluster(baseDir: string): boolean {
  return existsSync(join(clusterDirOf(baseDir), 'PG_VERSION'))
}

function chooseForRoot(requested: string, systemDir: string, notices: string[]): { baseDir: string; account: Account } {
  const dataOf = (name: string) => join(systemDir, 'data', name)
  const location = findLocation(requested)
  // A cluster that was once put there stays the one in use, although the folder asked for may be reachable by now:
  // starting with an empty one would look like losing every message.
  if (location !== undefined && !hasCluster(requested) && hasCluster(dataOf(location))) {
    const baseDir = dataOf(location)
    notices.push(`the database of ${requested} lies in ${baseDir}`)
    return { baseDir, account: accountFor(baseDir) }
  }
  const account = accountFor(requested)
  openIfEmpty(requested)
  const barrier = findBarrier(requested, account, 'enter')
  if (barrier === undefined) return { baseDir: requested, account }
  if (hasCluster(requested)) {
    throw new ServiceError(
      'invalid_state',
      `the database in ${requested} cannot be served: user id ${account.uid}, which runs PostgreSQL for root, may not ` +
        `enter ${barrier}; run chmod o+x ${barrier}, or start Skein as the owner of the data`,
    )
  }
  ensureSystemFolder(systemDir, 'data')
  const baseDir = ensureFolder(dataOf(ensureLocation(requested)), 0o711)
  notices.push(
    `the database of ${requested} lies in ${baseDir}, because user id ${account.uid} may not enter ${barrier} ` +
      `(Skein was started as root)`,
  )
  return { baseDir, account: accountFor(baseDir) }
}

/** The owner of an existing cluster, else the owner of the folder, else nobody. */
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

/** An empty folder of root's holds nothing that its permissions could protect yet. */
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

function binariesBarrier(binaries: Binaries, account: Account): string | undefined {
  return (
    findBarrier(binaries.initdb, account, 'run') ??
    findBarrier(binaries.postgres, account, 'run') ??
    findBarrier(binaries.libDir, account, 'run') ??
    findBarrier(join(binaries.shareDir, 'postgres.bki'), account, 'read')
  )
}

/** A folder below the system folder, which nobody but root may write: the server is run from there. */
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
      // The umask took its bits away, and the server's user id needs them.
      chmodSync(path, mode)
    }
    return realpathSync(path)
  } catch (cause) {
    throw fileFailure(cause, `the data folder ${path} cannot be made`)
  }
}
