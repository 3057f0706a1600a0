/**
 * Under whose user id the server runs. PostgreSQL refuses root, so root lends it the id of the data folder's owner or
 * of `nobody`; an account is never created.
 */
import { lchownSync, readFileSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

export type Account = {
  uid: number
  gid: number
  /** The server runs as this very process does: nothing is switched and nothing is given away. */
  isSelf: boolean
}

const NOBODY_ID = 65_534

/** This process's own ids. Platforms without user ids are refused before anybody asks. */
export function ownAccount(): Account {
  return { uid: process.getuid?.() ?? NOBODY_ID, gid: process.getgid?.() ?? NOBODY_ID, isSelf: true }
}

/** The ids of `nobody` as /etc/passwd has them; 65534 where it has none (a container without the file). */
export function nobodyAccount(passwd: string = readPasswd()): Account {
  const fields = /^nobody:.*$/m.exec(passwd)?.[0].split(':') ?? []
  return { uid: parseId(fields[2]), gid: parseId(fields[3]), isSelf: false }
}

export function ownerOf(path: string): { uid: number; gid: number } {
  const { uid, gid } = statSync(path)
  return { uid, gid }
}

/** The options of `spawn` that make a program run under the account. */
export function spawnIdentity(account: Account): { uid?: number; gid?: number } {
  return account.isSelf ? {} : { uid: account.uid, gid: account.gid }
}

/** Gives a file or folder to the account; a link is given itself, never what it points to. */
export function giveTo(account: Account, path: string): void {
  if (!account.isSelf) lchownSync(path, account.uid, account.gid)
}

/** What root makes in somebody's folder belongs to that somebody, who may start Skein himself the next time. */
export function giveToFolderOwner(path: string): void {
  const own = ownAccount()
  const owner = ownerOf(dirname(path))
  if (own.uid === 0 && owner.uid !== 0) lchownSync(path, owner.uid, owner.gid)
}

/** macOS writes the ids of nobody as -2, which the system calls take as an unsigned number. */
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
