/** Whether a user id can access a path, according to the permission bits of every folder on the way. */
import { realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

export type Ids = { uid: number; gid: number }

const READ = 4
const EXECUTE = 1

/** The first folder on the way to `path`, or `path` itself, that the account cannot access; undefined when it can. */
export function findBarrier(path: string, account: Ids, need: 'enter' | 'read' | 'run'): string | undefined {
  const real = realpathSync(path)
  for (const folder of parents(real)) {
    if (!mayDo(folder, account, EXECUTE)) return folder
  }
  const bits = need === 'enter' ? EXECUTE : need === 'read' ? READ : READ | EXECUTE
  return mayDo(real, account, bits) ? undefined : real
}

function parents(path: string): string[] {
  const folders: string[] = []
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    folders.unshift(folder)
    if (folder === dirname(folder)) return folders
  }
}

/** Only the first matching class of permission bits applies, even when a later class would allow more (POSIX 4.5). */
function mayDo(path: string, account: Ids, bits: number): boolean {
  const { mode, uid, gid } = statSync(path)
  const shift = account.uid === uid ? 6 : account.gid === gid ? 3 : 0
  return ((mode >> shift) & bits) === bits
}
