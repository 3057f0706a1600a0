/** Puts an unpacked version in its place, and removes versions that are no longer needed. */
import { readFile, readdir, readlink, rename, rm, stat, utimes } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { syncPath, syncTree } from '../sync-folder.ts'

/** The current version, and the one before it as the way back. Versions that a process uses are kept besides. */
const KEPT_VERSIONS = 2

/**
 * Renames the folder `draft` to `target` when all of its files are on disk, so that `target` is absent or complete, also after a
 * power cut. If another process was first, its folder is kept and the draft is removed. Both must be on one file system.
 */
export async function placeVersion(draft: string, target: string): Promise<void> {
  await syncTree(draft)
  // The newest folders are kept: an archive has the time of its build.
  const now = new Date()
  await utimes(draft, now, now)
  try {
    await rename(draft, target)
  } catch (error) {
    if (!(await isFolder(target))) throw error
    await rm(draft, { recursive: true, force: true })
    await utimes(target, now, now)
  }
  await syncPath(dirname(target))
}

/**
 * Removes all folders `<program>-<digit>…` beside `current` except `KEPT_VERSIONS`, which are `current` and the ones that were
 * placed last, the one that the link `../current` names, and those from which a process runs. Returns the names of the removed folders.
 */
export async function removeOldVersions(current: string, program: string): Promise<string[]> {
  const folder = dirname(current)
  const linked = basename(await readlink(join(folder, '..', 'current')).catch(() => ''))
  const others = (await listVersions(folder, program)).filter((name) => name !== basename(current))
  const commands = await runningCommands()
  const removed: string[] = []
  for (const name of others.slice(KEPT_VERSIONS - 1)) {
    const path = join(folder, name)
    if (name === linked || commands.some((command) => command.startsWith(`${path}/`))) continue
    // Renamed first, so that a removal that is cut off leaves no incomplete version.
    const dying = join(folder, `.draft-0.${name}`)
    await rename(path, dying)
    await rm(dying, { recursive: true, force: true })
    removed.push(name)
  }
  return removed
}

/** Names of the folders `<program>-<digit>…`, the one that was placed or used last first. */
export async function listVersions(folder: string, program: string): Promise<string[]> {
  const isVersion = (name: string) => name.startsWith(`${program}-`) && /^\d/.test(name.slice(program.length + 1))
  const found = await Promise.all(
    (await readdir(folder)).filter(isVersion).map(async (name) => ({
      name,
      usedMs: (await stat(join(folder, name)).catch(() => undefined))?.mtimeMs ?? 0,
    })),
  )
  return found.toSorted((left, right) => right.usedMs - left.usedMs).map(({ name }) => name)
}

/** Command lines of all processes (Linux). They may be read by every user, unlike the links to their programs. */
async function runningCommands(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  return await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')))
}

async function isFolder(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  )
}
