/** Paths of this installation: a checkout, or the output of `npm run build`. */
import { readFileSync } from 'node:fs'
import { findPackageJSON } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** In a checkout this file is TypeScript; in a build it is part of a script in the build's folder. */
export const IS_BUILT = import.meta.filename.endsWith('.js')

/** The folder with package.json, `migrations` and all other files that are read at run time. */
export const HOME = IS_BUILT ? import.meta.dirname : join(import.meta.dirname, '..')

/** What `tools/single-file/` writes beside a program that is shipped as one file; undefined in a checkout and in `dist/`. */
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
  return pathToFileURL(IS_BUILT ? join(HOME, `${basename(path, '.ts')}.js`) : join(HOME, path))
}

/** A folder of a package whose files are read at run time; `tools/build.ts` copies it. */
export function packageFolder(name: string, folder: string): string {
  const home = IS_BUILT ? join(HOME, 'packages', name) : dirname(findPackageJSON(name, import.meta.url) ?? '')
  return join(home, folder)
}
