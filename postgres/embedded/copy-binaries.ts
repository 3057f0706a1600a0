/** A copy of the binaries in a folder that every user id can read. */
import { chmodSync, existsSync, lstatSync, readdirSync } from 'node:fs'
import { cp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { findPostgresBinaries } from './binaries.ts'
import type { PostgresBinaries } from './binaries.ts'
import { fileFailure } from './failures.ts'
import { completeLibraries } from './libraries.ts'

/** Copies the binaries once per version. The copy is renamed to its final name when it is complete. */
export async function copyBinaries(from: PostgresBinaries, folder: string): Promise<PostgresBinaries> {
  const root = join(folder, `${from.version}-${process.platform}-${process.arch}`)
  if (existsSync(root)) return findPostgresBinaries(root)
  const fresh = `${root}.${process.pid}.new`
  try {
    await rm(fresh, { recursive: true, force: true })
    await cp(from.root, fresh, { recursive: true, verbatimSymlinks: true, filter: isNeeded })
    completeLibraries(findPostgresBinaries(fresh))
    openToAll(fresh)
    await rename(fresh, root)
  } catch (error) {
    await rm(fresh, { recursive: true, force: true })
    // Another process of this machine has made the same copy meanwhile.
    if (!existsSync(root)) throw fileFailure(error, `PostgreSQL cannot be copied to ${root}`)
  }
  return findPostgresBinaries(root)
}

/** Static libraries are needed by compilers only. */
function isNeeded(path: string): boolean {
  return !path.endsWith('.a') && !path.endsWith('/pkgconfig')
}

/** Readable for all users and writable for the owner; executable for all where it is for the owner. */
function openToAll(path: string): void {
  const entry = lstatSync(path)
  if (entry.isSymbolicLink()) return
  chmodSync(path, (entry.mode & 0o100) === 0 ? 0o644 : 0o755)
  if (entry.isDirectory()) for (const name of readdirSync(path)) openToAll(join(path, name))
}
