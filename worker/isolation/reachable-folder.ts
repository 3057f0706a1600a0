/** The folder of code and modules for runner processes, which their users can enter. */
import { createHash } from 'node:crypto'
import { chmod, copyFile, mkdir, rename, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'

/** This is used if the data folder is below a folder that only its owner can enter. Each data folder has a subfolder. */
const SHARED_ROOT = '/var/lib/skein/worker'

const OTHERS_MAY_ENTER = 0o001

/**
 * Creates the folder and returns it. If the worker is root, has separate users for runners, and the folder is below a closed one (a 0700
 * home, for instance), it is a folder below /var/lib/skein instead.
 */
export async function reachableFolder(folder: string): Promise<string> {
  const path = resolve(folder)
  await mkdir(path, { recursive: true, mode: 0o755 })
  if (process.getuid?.() !== 0 || (await canOthersEnter(path))) return path
  const shared = `${SHARED_ROOT}/${createHash('sha256').update(path).digest('hex').slice(0, 16)}`
  await mkdir(shared, { recursive: true, mode: 0o755 })
  return shared
}

/**
 * Path of Node that other users can reach: its own path, or a copy in `folder` if it is below a closed folder (a 0700
 * home, for instance).
 */
export async function reachableBinary(folder: string): Promise<string> {
  if (await canOthersEnter(dirname(process.execPath))) return process.execPath
  const copy = join(folder, `node-${process.version}`)
  const [there, wanted] = await Promise.all([stat(copy).catch(() => undefined), stat(process.execPath)])
  if (there?.size === wanted.size) return copy
  const draft = `${copy}.${process.pid}`
  await copyFile(process.execPath, draft)
  await chmod(draft, 0o755)
  await rename(draft, copy)
  return copy
}

async function canOthersEnter(path: string): Promise<boolean> {
  for (let at = path; ; at = dirname(at)) {
    if (((await stat(at)).mode & OTHERS_MAY_ENTER) === 0) return false
    if (at === dirname(at)) return true
  }
}
