/**
 * The symbolic links between library names that npm packages cannot contain (`libpq.so.5` → `libpq.so.5.18`). The package
 * creates them in an install script, and package.json disables all install scripts. Missing links are created in a folder of
 * our own, because the package's folder may be read-only.
 */
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { giveToFolderOwner } from './account.ts'
import type { PostgresBinaries } from './binaries.ts'

type Link = { source: string; target: string }

/** Creates the missing links in `linkDir` and returns the folders to search, `linkDir` first. Idempotent. */
export function linkLibraries(binaries: PostgresBinaries, linkDir: string): string[] {
  const absent = readLinks(binaries).filter((link) => !existsSync(join(binaries.root, link.target)))
  if (absent.length === 0) return [binaries.libDir]
  mkdirSync(linkDir, { recursive: true })
  for (const folder of [dirname(linkDir), linkDir]) {
    // Independent of the umask: the server's user id must be able to enter the folder.
    chmodSync(folder, 0o755)
    giveToFolderOwner(folder)
  }
  for (const link of absent) placeLink(join(binaries.root, link.source), join(linkDir, basename(link.target)))
  return [linkDir, binaries.libDir]
}

/** Creates the missing links inside our own copy of the package. */
export function completeLibraries(binaries: PostgresBinaries): void {
  for (const link of readLinks(binaries)) {
    const target = join(binaries.root, link.target)
    if (!existsSync(target)) placeLink(basename(link.source), target)
  }
}

/** The environment variable in which the platform's loader reads additional library folders. */
export function libraryVariable(folders: string[]): Record<string, string> {
  return { [process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH']: folders.join(':') }
}

function readLinks(binaries: PostgresBinaries): Link[] {
  const file = join(binaries.root, 'native', 'pg-symlinks.json')
  if (!existsSync(file)) return []
  const links = JSON.parse(readFileSync(file, 'utf8')) as Link[]
  for (const { source, target } of links) {
    // All links are within one folder; anything else is an unknown layout.
    if (dirname(source) !== dirname(target) || source.includes('..')) {
      throw new ServiceError('unavailable', `${file} has an unknown layout; set SKEIN_DATABASE_URL`)
    }
  }
  return links
}

/** Replaces a link with another target (the package was moved) by a rename, so that it always exists for a running server. */
function placeLink(to: string, at: string): void {
  const existing = lstatSync(at, { throwIfNoEntry: false })
  if (existing?.isSymbolicLink() && readlinkSync(at) === to) return
  const fresh = `${at}.${process.pid}`
  rmSync(fresh, { force: true })
  symlinkSync(to, fresh)
  renameSync(fresh, at)
}
