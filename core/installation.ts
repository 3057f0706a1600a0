/** Paths of this installation: a checkout, or the output of `npm run build`. */
import { readFileSync } from 'node:fs'
import { findPackageJSON } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** The builds of a checkout, below its root: a folder for each, and the file that names the newest (`built-programs.ts`). */
export const BUILDS = join('node_modules', '.cache', 'programs')

/** The folder of the scripts, where this file is part of one; undefined when it runs as TypeScript. */
const SCRIPTS = import.meta.filename.endsWith('.js') ? import.meta.dirname : undefined
const isOfCheckout = SCRIPTS === undefined || dirname(SCRIPTS).endsWith(BUILDS)

/** True in the output of `npm run build`, which contains everything. False in a checkout, also for scripts that were built of it. */
export const IS_BUILT = !isOfCheckout

/** The folder with package.json, `migrations` and all other files that are read at run time. */
export const HOME = findHome()

function findHome(): string {
  if (SCRIPTS === undefined) return join(import.meta.dirname, '..')
  return isOfCheckout ? dirname(SCRIPTS).slice(0, -BUILDS.length - 1) : SCRIPTS
}

/** The file that `tools/single-file/` writes beside a program that is shipped as one file. Undefined in a checkout and in `dist/`. */
export const SINGLE_FILE = IS_BUILT ? readSingleFile() : undefined

function readSingleFile(): { program: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(HOME, 'single-file.json'), 'utf8')) as { program: string }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/**
 * The file that starts a program or thread, by its source path: `programs/worker.ts`. `tools/build.ts` builds one script for each
 * path that is passed here.
 */
export function entryPoint(path: `${string}.ts`): URL {
  return pathToFileURL(SCRIPTS === undefined ? join(HOME, path) : join(SCRIPTS, `${basename(path, '.ts')}.js`))
}

/** A folder of a package whose files are read at run time; `tools/build.ts` copies it. */
export function packageFolder(name: string, folder: string): string {
  const home = IS_BUILT ? join(HOME, 'packages', name) : dirname(findPackageJSON(name, import.meta.url) ?? '')
  return join(home, folder)
}
