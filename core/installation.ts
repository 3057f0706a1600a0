/** Paths of this installation: a checkout, or the output of `npm run build`. */
import { findPackageJSON } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** In a checkout this file is TypeScript; in a build it is part of a script in the build's folder. */
export const IS_BUILT = import.meta.filename.endsWith('.js')

/** The folder with package.json, `migrations` and all other files that are read at run time. */
export const HOME = IS_BUILT ? import.meta.dirname : join(import.meta.dirname, '..')

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
