/** Version and commit of this build: from the `build.json` that `npm run build` writes, otherwise from the checkout. */
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

/** The commit that is checked out in a clone or a worktree; `unknown` in any other folder. */
export function commitOf(folder: string): string {
  // In a worktree, `.git` is a file that names the worktree's part of the repository, which names the common part.
  const named = /^gitdir: (.+)$/.exec(read(join(folder, '.git')) ?? '')?.[1]
  const own = named === undefined ? join(folder, '.git') : resolve(folder, named)
  const common = resolve(own, read(join(own, 'commondir')) ?? '.')
  const head = read(join(own, 'HEAD'))
  if (head === undefined) return 'unknown'
  const reference = /^ref: (\S+)$/.exec(head)?.[1]
  if (reference === undefined) return head
  return read(join(common, reference)) ?? packedCommit(common, reference) ?? 'unknown'
}

/** Git stores references that have not changed for a while in `packed-refs`. */
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
