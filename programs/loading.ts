/**
 * Loaded before a program (`--import`): finds the files of a start without looking for them. Node asks for each of some 1,900 files
 * which package it belongs to and whether it exists; ours say all of it in their specifiers, and files of one folder of a package
 * are of one kind. Without it everything is found all the same, a fifth of a start later.
 */
import { registerHooks } from 'node:module'
import type { ResolveHookContext } from 'node:module'

const ROOT = new URL('../', import.meta.url).href
/** `#core/x.ts`, as `imports` of package.json maps every room. */
const OWN = /^#([a-z]+\/.+\.ts)$/
/** `./x.ts` and `../x.ts`. */
const BESIDE = /^\.\.?\/.+\.(ts|m?js)$/

/** Folders of packages whose `.js` files are known to be ES modules; `.mjs` files are in any. */
const moduleFolders = new Set<string>()

registerHooks({
  resolve(specifier, context, next) {
    const own = isOurs(context) ? OWN.exec(specifier) : null
    if (own !== null) return { url: `${ROOT}${own[1]}`, format: 'module-typescript', shortCircuit: true }
    const beside = context.conditions.includes('import') ? BESIDE.exec(specifier) : null
    if (beside === null || context.parentURL === undefined) return next(specifier, context)
    const url = new URL(specifier, context.parentURL).href
    if (beside[1] === 'ts')
      return isOurs(context) ? { url, format: 'module-typescript', shortCircuit: true } : next(specifier, context)
    const folder = url.slice(0, url.lastIndexOf('/'))
    if (beside[1] === 'mjs' || moduleFolders.has(folder)) return { url, format: 'module', shortCircuit: true }
    const found = next(specifier, context)
    if (found.format === 'module') moduleFolders.add(folder)
    return found
  },
})

function isOurs({ parentURL }: ResolveHookContext): boolean {
  return parentURL?.startsWith(ROOT) === true && !parentURL.includes('/node_modules/')
}
