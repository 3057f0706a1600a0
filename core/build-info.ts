/** Which build this is: from the `build.json` that `npm run build` writes, else from the checkout itself. */
import { readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { HOME } from './installation.ts'

export type BuildInfo = { version: string; commit: string; buildTime: string }

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return undefined
  }
}

/** The commit that is checked out in a folder, a clone or a worktree of one; `unknown` where it is neither. */
export function commitOf(folder: string): string {
  // A worktree has a file that names its own part of the repository, which names the common one.
  const named = /^gitdir: (.+)$/.exec(read(join(folder, '.git')) ?? '')?.[1]
  const own = named === undefined ? join(folder, '.git') : resolve(folder, named)
  const common = resolve(own, read(join(own, 'commondir')) ?? '.')
  const head = read(join(own, 'HEAD'))
  if (head === undefined) return 'unknown'
  const reference = /^ref: (\S+)$/.exec(head)?.[1]
  if (reference === undefined) return head
  return read(join(common, reference)) ?? packedCommit(common, reference) ?? 'unknown'
}

/** Git keeps references that have not moved for a while in one file. */
function packedCommit(common: string, reference: string): string | undefined {
  const lines = read(join(common, 'packed-refs'))?.split('\n') ?? []
  return lines.find((line) => line.endsWith(` ${reference}`))?.split(' ', 1)[0]
}

export function readBuildInfo(): BuildInfo {
  const { version } = JSON.parse(read(join(HOME, 'package.json')) ?? '{}') as { version?: string }
  const built = JSON.parse(read(join(HOME, 'build.json')) ?? '{}') as { commit?: string; build_time?: string }
  return {
    version: version ?? 'unknown',
    commit: built.commit ?? commitOf(HOME),
    buildTime: built.build_time ?? statSync(join(HOME, 'package.json')).mtime.toISOString(),
  }
}
