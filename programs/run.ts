/**
 * Starts a program by its name: `node programs/run.ts all`. It runs the build that `npm ci` made of this checkout, which starts in
 * little more than half the time, and the sources where there is no build of exactly these (decision 0127).
 */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const HOME = join(import.meta.dirname, '..')
const CACHE = join(HOME, 'node_modules', '.cache', 'programs')

/** What `tools/prepare.ts` writes: the folder of the build, and what it was made of. */
export type CurrentBuild = { folder: string; digest: string; paths: readonly string[] }

/** The digest of these files of the folder, of their paths and contents. */
export function digestOf(folder: string, paths: readonly string[]): string {
  const hash = createHash('sha256')
  for (const path of paths) {
    const content = readFileSync(join(folder, path))
    hash.update(`${path} ${content.length}\n`).update(content)
  }
  return hash.digest('hex')
}

/** The script of the program, unless a file that the build was made of has changed or is gone. */
function findBuilt(name: string): string | undefined {
  try {
    const { folder, digest, paths } = JSON.parse(readFileSync(join(CACHE, 'current.json'), 'utf8')) as CurrentBuild
    const script = join(CACHE, folder, `${name}.js`)
    return existsSync(script) && digestOf(HOME, paths) === digest ? script : undefined
  } catch {
    return undefined
  }
}

/** A name, and not a path. */
const NAME = /^[a-z]+$/

if (import.meta.main) {
  const [node = '', , name = '', ...rest] = process.argv
  if (!NAME.test(name) || !existsSync(join(HOME, 'programs', `${name}.ts`))) {
    process.stderr.write(`no program has the name "${name}"\n`)
    process.exit(2)
  }
  const file = findBuilt(name) ?? join(HOME, 'programs', `${name}.ts`)
  process.argv = [node, file, ...rest]
  await import(pathToFileURL(file).href)
}
