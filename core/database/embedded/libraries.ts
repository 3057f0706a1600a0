/**
 * The links between library names that npm packages cannot carry (`libpq.so.5` → `libpq.so.5.18`). The package makes
 * them in an install script, which package.json denies as it denies all: so we make those that are absent, and in a
 * folder of ours, because the package's folder may be read-only.
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
import { ServiceError } from '../../errors/index.ts'
import { giveToFolderOwner } from './account.ts'
import type { Binaries } from './binaries.ts'

type Link = { source: string; target: string }

/** Makes the absent links in `linkDir` and returns the folders to search, ours first. Calling it twice changes nothing. */
export function linkLibraries(binaries: Binaries, linkDir: string): string[] {
  const absent = readLinks(binaries).filter((link) => !existsSync(join(binaries.root, link.target)))
  if (absent.length === 0) return [binaries.libDir]
  mkdirSync(linkDir, { recursive: true })
  for (const folder of [dirname(linkDir), linkDir]) {
    // Whatever the umask is, the server's user id has to get there.
    chmodSync(folder, 0o755)
    giveToFolderOwner(folder)
  }
  for (const link of absent) placeLink(join(binaries.root, link.source), join(linkDir, basename(link.target)))
  return [linkDir, binaries.libDir]
}

/** Makes the absent links inside a copy of the package that belongs to us. */
export function completeLibraries(binaries: Binaries): void {
  for (const link of readLinks(binaries)) {
    const target = join(binaries.root, link.target)
    if (!existsSync(target)) placeLink(basename(link.source), target)
  }
}

/** The variable under which this platform's loader takes further library folders. */
export function libraryVariable(folders: string[]): Record<string, string> {
  return { [process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH']: folders.join(':') }
}

function readLinks(binaries: Binaries): Link[] {
  const file = join(binaries.root, 'native', 'pg-symlinks.json')
  if (!existsSync(file)) return []
  const links = JSON.parse(readFileSync(file, 'utf8')) as Link[]
  for (const { source, target } of links) {
    // The links are those of one folder; anything else is not the package that we know.
    if (dirname(source) !== dirname(target) || source.includes('..')) {
      throw new ServiceError('unavailable', `${file} has an unknown layout; set SKEIN_DATABASE_URL`)
    }
  }
  return links
}

/** Replaces a link that points elsewhere (the package moved) by renaming, so that no running server misses it. */
function placeLink(to: string, at: string): void {
  const existing = lstatSync(at, { throwIfNoEntry: false })
  if (existing?.isSymbolicLink() && readlinkSync(at) === to) return
  const fresh = `${at}.${process.pid}`
  rmSync(fresh, { force: true })
  symlinkSync(to, fresh)
  renameSync(fresh, at)
}
