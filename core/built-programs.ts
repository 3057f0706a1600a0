/**
 * The build of a checkout: the scripts of its programs, which `npm ci` makes and `programs/run.ts` starts as long as the files that they
 * were made of are the same (decision 0127). Imports next to nothing, because it is read before every start.
 */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { BUILDS } from './installation.ts'

/** Names the newest build, below the root of the checkout. */
export const CURRENT_BUILD = join(BUILDS, 'current.json')

/** The folder of the newest build, below `BUILDS`, and what it was made of. */
export type CurrentBuild = { folder: string; digest: string; paths: readonly string[] }

/** The digest of these files of the checkout, of their paths and contents. */
export function digestOf(home: string, paths: readonly string[]): string {
  const hash = createHash('sha256')
  for (const path of paths) {
    const content = readFileSync(join(home, path))
    hash.update(`${path} ${content.length}\n`).update(content)
  }
  return hash.digest('hex')
}

/** The script of the program; undefined without a build, and when a file that the build was made of has changed or is gone. */
export function findBuilt(home: string, program: string): string | undefined {
  try {
    const { folder, digest, paths } = JSON.parse(readFileSync(join(home, CURRENT_BUILD), 'utf8')) as CurrentBuild
    const script = join(home, BUILDS, folder, `${program}.js`)
    return existsSync(script) && digestOf(home, paths) === digest ? script : undefined
  } catch {
    return undefined
  }
}
