/**
 * Loaded before a program (`--import`): finds the files of a start without looking for them. Node asks for each of some 1,900 files
 * which package it belongs to and whether it exists; ours say all of it in their specifiers, and files of one folder of a package
 * are of one kind. Without it everything is found all the same, a fifth of a start later.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import type { ResolveFnOutput, ResolveHookContext } from 'node:module'
import { fileURLToPath } from 'node:url'

const ROOT = new URL('../', import.meta.url).href
/** `#core/x.ts`, as `imports` of package.json maps every room. */
const OWN = /^#([a-z]+\/.+\.ts)$/
/** `./x.ts` and `../x.ts`. */
const BESIDE = /^\.\.?\/.+\.(ts|m?js)$/
/** `fastify`, `node:fs`: what a name stands for is the same for all of our files. */
const PACKAGE = /^[a-z@]/
/** Kinds that need no second look at the file. */
const KNOWN_FORMATS: ReadonlySet<string | null | undefined> = new Set(['module', 'module-typescript'])

/** Folders of packages whose `.js` files are known to be ES modules; `.mjs` files are in any. */
const moduleFolders = new Set<string>()
const packages = new Map<string, ResolveFnOutput>()

registerHooks({
  resolve(specifier, context, next) {
    const isImport = context.conditions.includes('import')
    const ours = isOurs(context)
    if (ours) {
      const own = OWN.exec(specifier)
      if (own !== null) return { url: `${ROOT}${own[1]}`, format: 'module-typescript', shortCircuit: true }
      if (isImport && PACKAGE.test(specifier)) {
        const known = packages.get(specifier)
        if (known !== undefined) return known
        const found = next(specifier, context)
        packages.set(specifier, { ...found, shortCircuit: true })
        return found
      }
    }
    const beside = isImport ? BESIDE.exec(specifier) : null
    if (beside === null || context.parentURL === undefined) return next(specifier, context)
    const url = new URL(specifier, context.parentURL).href
    if (beside[1] === 'ts')
      return ours ? { url, format: 'module-typescript', shortCircuit: true } : next(specifier, context)
    const folder = url.slice(0, url.lastIndexOf('/'))
    if (beside[1] === 'mjs' || moduleFolders.has(folder)) return { url, format: 'module', shortCircuit: true }
    const found = next(specifier, context)
    if (found.format === 'module') moduleFolders.add(folder)
    return found
  },
  load(url, context, next) {
    if (!KNOWN_FORMATS.has(context.format) || !url.startsWith('file:')) return next(url, context)
    return { format: context.format as string, source: readFileSync(fileURLToPath(url)), shortCircuit: true }
  },
})

function isOurs({ parentURL }: ResolveHookContext): boolean {
  return parentURL?.startsWith(ROOT) === true && !parentURL.includes('/node_modules/')
}
