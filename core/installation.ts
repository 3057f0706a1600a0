/** Where the files of this installation lie: in the checkout, or in what `npm run build` made of it. */
import { findPackageJSON } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** From source this file is TypeScript. In a build it is part of a script in the build's own folder. */
export const IS_BUILT = import.meta.filename.endsWith('.js')

/** The folder with package.json, `migrations` and whatever else is read when a program runs. */
export const HOME = IS_BUILT ? import.meta.dirname : join(import.meta.dirname, '..')

/**
 * The file that a program or thread starts with, by its path in the source: `programs/worker.ts`. `tools/build.ts` makes one
 * script of each path that is named so.
 */
export function entryPoint(path: `${string}.ts`): URL {
  return pathToFileURL(IS_BUILT ? join(HOME, `${basename(path, '.ts')}.js`) : join(HOME, path))
}

/** A folder of a package whose files are read when a program runs; `tools/build.ts` copies it. */
export function packageFolder(name: string, folder: string): string {
  const home = IS_BUILT ? join(HOME, 'packages', name) : dirname(findPackageJSON(name, import.meta.url) ?? '')
  return join(home, folder)
}
