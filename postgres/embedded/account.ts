/**
 * The user id of the server. PostgreSQL refuses to run as root, so root starts it with the id of the data folder's owner or of
 * `nobody`. No account is created.
 */
import { lchownSync, readFileSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

export type Account = {
  uid: number
  gid: number
  /** The server runs as the same user as this process: nothing is switched and no owner is changed. */
  isSelf: boolean
}

const NOBODY_ID = 65_534

/** The ids of this process. Platforms without user ids are rejected earlier. */
export function ownAccount(): Account {
  return { uid: process.getuid?.() ?? NOBODY_ID, gid: process.getgid?.() ?? NOBODY_ID, isSelf: true }
}

/** The ids of `nobody` in /etc/passwd; 65534 when it has no such entry (a container without the file). */
export function nobodyAccount(passwd: string = readPasswd()): Account {
  const fields = /^nobody:.*$/m.exec(passwd)?.[0].split(':') ?? []
  return { uid: parseId(fields[2]), gid: parseId(fields[3]), isSelf: false }
}

export function ownerOf(path: string): { uid: number; gid: number } {
  const { uid, gid } = statSync(path)
  return { uid, gid }
}

/** Options of `spawn` that run a program under the account. */
export function spawnIdentity(account: Account): { uid?: number; gid?: number } {
  return account.isSelf ? {} : { uid: account.uid, gid: account.gid }
}

/** Changes the owner of a file or folder to the account; for a link, of the link itself. */
export function giveTo(account: Account, path: string): void {
  if (!account.isSelf) lchownSync(path, account.uid, account.gid)
}

/** Files that root creates in a user's folder belong to that user, who may start Skein next time. */
export function giveToFolderOwner(path: string): void {
  const own = ownAccount()
  const owner = ownerOf(dirname(path))
  if (own.uid === 0 && owner.uid !== 0) lchownSync(path, owner.uid, owner.gid)
}

/** macOS writes the ids of `nobody` as -2; system calls expect an unsigned number. */
function parseId(text: string | undefined): number {
  return text !== undefined && /^-?\d+$/.test(text) ? Number(text) >>> 0 : NOBODY_ID
}

function readPasswd(): string {
  try {
    return readFileSync('/etc/passwd', 'utf8')
  } catch {
    return ''
  }
}
