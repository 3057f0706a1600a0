/** The verdict about a file that somebody wants to run: what it is, what it offers and asks for. Compiles nothing. */
import { checkComponentBounds, readBoundedModule } from './bounds.ts'
import type { ModuleBounds } from './bounds.ts'
import { DEFAULT_MODULE_BOUNDS } from './bounds.ts'
import { readComponent } from './component-reader.ts'
import { describeComponent, describeModule, findUnofferedImports, findUnofferedOfComponent } from './describe.ts'
import type { ModuleDescription } from './describe.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readModuleKind } from './module-reader.ts'
import type { ModuleKind } from './module-reader.ts'

/** What a worker must be able to run. */
export type ModuleRuntime = 'core' | 'wasi-preview1' | 'component'

export type ExaminedModule = ModuleDescription & { kind: ModuleKind; runtime: ModuleRuntime }

/** Imports that a refusal names. */
const MAX_NAMED_IMPORTS = 10

/**
 * Throws ModuleRefusal when it is no WebAssembly, breaks a bound, or imports what no worker offers, each with a sentence
 * that names it. Function bodies are measured and not typed: that is the engine's, and `judgeModule` asks it.
 */
export function examineModule(bytes: Uint8Array, bounds: ModuleBounds = DEFAULT_MODULE_BOUNDS): ExaminedModule {
  const kind = readModuleKind(bytes)
  if (kind === 'component') {
    const layout = readComponent(bytes)
    checkComponentBounds(bytes, layout, bounds)
    requireOffered(findUnofferedOfComponent(layout))
    return { kind, runtime: 'component', ...describeComponent(layout) }
  }
  const layout = readBoundedModule(bytes, bounds)
  requireOffered(findUnofferedImports(layout))
  return { kind, runtime: layout.imports.length === 0 ? 'core' : 'wasi-preview1', ...describeModule(layout) }
}

function requireOffered(unoffered: string[]): void {
  if (unoffered.length === 0) return
  const named = unoffered.slice(0, MAX_NAMED_IMPORTS).join(', ')
  const more = unoffered.length > MAX_NAMED_IMPORTS ? ` and ${unoffered.length - MAX_NAMED_IMPORTS} more` : ''
  throw new ModuleRefusal(`the module imports what no worker offers: ${named}${more}`)
}
