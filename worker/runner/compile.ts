/** Reads, limits and compiles a module in a runner's main thread, not in the threads that run guests. */
import {
  DEFAULT_MODULE_BOUNDS,
  ModuleRefusal,
  checkComponentBounds,
  describeComponent,
  describeModule,
  describeUnoffered,
  findUnofferedImports,
  findUnofferedOfComponent,
  memoryLimitPages,
  readComponent,
} from '#guests/wasm/index.ts'
import type { ModuleBounds } from '#guests/wasm/index.ts'
import type { CompiledModule, ComponentCore } from '#guests/calls/index.ts'
import { COMPONENT_SCRIPT } from '../transpile/files.ts'
import type { CompiledComponent } from '../runtime/component.ts'
import { limitModule, sharePages } from '../runtime/limits.ts'
import type { ModuleOrder } from './messages.ts'
import type { ModuleFile } from './module-receiver.ts'

/** `files` in the order of `order.files`. Throws ModuleRefusal, or a CompileError of the engine. */
export async function compileModule(
  order: ModuleOrder,
  files: readonly ModuleFile[],
): Promise<CompiledModule | CompiledComponent> {
  const bounds = {
    ...DEFAULT_MODULE_BOUNDS,
    memoryLimitBytes: order.memoryLimitBytes,
    allowGc: order.allowGc,
    maxModuleBytes: order.maxModuleBytes,
  }
  const [module, ...transpiled] = files
  if (module === undefined) throw new Error('the order has no module')
  return transpiled.length === 0
    ? compileCore(module.bytes, bounds)
    : compileComponent(module.bytes, bounds, transpiled)
}

async function compileCore(given: Uint8Array, bounds: ModuleBounds): Promise<CompiledModule> {
  const { layout, bytes } = limitModule(given, bounds)
  requireOffered(findUnofferedImports(layout))
  const module = await WebAssembly.compile(bytes)
  return {
    kind: 'core',
    module,
    description: describeModule(layout),
    needsHost: layout.imports.length > 0,
    hasMemory: layout.memories.length > 0,
  }
}

/** The core modules from the transpiler are the component's own; each is limited again in its final form. */
async function compileComponent(
  given: Uint8Array,
  bounds: ModuleBounds,
  transpiled: readonly ModuleFile[],
): Promise<CompiledComponent> {
  const layout = readComponent(given)
  const needs = checkComponentBounds(given, layout, bounds)
  requireOffered(findUnofferedOfComponent(layout))
  const extraPages = sharePages(needs, memoryLimitPages(bounds.memoryLimitBytes))
  const cores: ComponentCore[] = []
  let script = ''
  for (const file of transpiled) {
    if (file.name === COMPONENT_SCRIPT) script = new TextDecoder().decode(file.bytes)
    else {
      const { bytes, memoryLimitBytes } = limitModule(file.bytes, bounds, extraPages)
      cores.push({ name: file.name, module: await WebAssembly.compile(bytes), memoryLimitBytes })
    }
  }
  return { kind: 'component', description: describeComponent(layout), script, cores }
}

function requireOffered(unoffered: string[]): void {
  if (unoffered.length > 0) throw new ModuleRefusal(describeUnoffered(unoffered))
}
