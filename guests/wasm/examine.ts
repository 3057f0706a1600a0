/** Examines an uploaded module: its kind, exports and imports. Compiles nothing. */
import { checkComponentBounds, readBoundedModule } from './bounds.ts'
import type { ModuleBounds } from './bounds.ts'
import { DEFAULT_MODULE_BOUNDS } from './bounds.ts'
import { describeUnoffered } from './remedies.ts'
import { readComponent } from './component-reader.ts'
import { describeComponent, describeModule, findUnofferedImports, findUnofferedOfComponent } from './describe.ts'
import type { ModuleDescription } from './describe.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readModuleKind } from './module-reader.ts'
import type { ModuleKind } from './module-reader.ts'

/** The capability that a worker needs. */
export type ModuleRuntime = 'core' | 'wasi-preview1' | 'component'

export type ExaminedModule = ModuleDescription & { kind: ModuleKind; runtime: ModuleRuntime }

/**
 * Throws ModuleRefusal when the bytes are not WebAssembly, exceed a limit, or have unsupported imports, with a message that names
 * the cause. Function bodies are measured and not validated: the engine does that in `validateModule`.
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
  if (unoffered.length > 0) throw new ModuleRefusal(describeUnoffered(unoffered))
}
