/** A copy of the binaries in a folder that every user id can read. */
import { chmodSync, existsSync, lstatSync, readdirSync } from 'node:fs'
import { cp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { findBinaries } from './binaries.ts'
import type { Binaries } from './binaries.ts'
import { fileFailure } from './failures.ts'
import { completeLibraries } from './libraries.ts'

/** One copy per version below `folder`, made once: a folder of the final name is complete, since it was renamed to it. */
export async function copyBinaries(from: Binaries, folder: string): Promise<Binaries> {
  const root = join(folder, `${from.version}-${process.platform}-${process.arch}`)
  if (existsSync(root)) return findBinaries(root)
  const fresh = `${root}.${process.pid}.new`
  try {
    await rm(fresh, { recursive: true, force: true })
    await cp(from.root, fresh, { recursive: true, verbatimSymlinks: true, filter: isNeeded })
    completeLibraries(findBinaries(fresh))
    openToAll(fresh)
    await rename(fresh, root)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    // Another Skein of this machine was faster, with the same content.
    if (!existsSync(root)) throw fileFailure(error, `PostgreSQL cannot be copied to ${root}`)
  }
  return findBinaries(root)
}

/** Static libraries serve compilers only. */
function isNeeded(path: string): boolean {
  return !path.endsWith('.a') && !path.endsWith('/pkgconfig')
}

/** Readable for all, writable for the owner alone; what its owner may execute, all may. */
function openToAll(path: string): void {
  const entry = lstatSync(path)
  if (entry.isSymbolicLink()) return
  chmodSync(path, (entry.mode & 0o100) === 0 ? 0o644 : 0o755)
  if (entry.isDirectory()) for (const name of readdirSync(path)) openToAll(join(path, name))
}
