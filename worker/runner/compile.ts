/** Reads, bounds, rewrites and compiles a module in a runner's main thread, off the threads that run guests. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  DEFAULT_MODULE_BOUNDS,
  ModuleRefusal,
  checkComponentBounds,
  describeComponent,
  describeModule,
  findUnofferedImports,
  findUnofferedOfComponent,
  memoryLimitPages,
  readComponent,
} from '#core/wasm/index.ts'
import type { ModuleBounds } from '#core/wasm/index.ts'
import { sharePages } from '../runtime/component.ts'
import type { CompiledComponent, ComponentCore } from '../runtime/component.ts'
import type { CompiledModule } from '../runtime/core-module.ts'
import { limitModule } from '../runtime/limits.ts'
import type { ModuleOrder } from './messages.ts'

/** Throws ModuleRefusal, or a CompileError of the engine. */
export async function compileModule(order: ModuleOrder): Promise<CompiledModule | CompiledComponent> {
  const bounds = {
    ...DEFAULT_MODULE_BOUNDS,
    memoryLimitBytes: order.memoryLimitBytes,
    allowGc: order.allowGc,
    maxModuleBytes: order.maxModuleBytes,
  }
  const bytes = await readFile(order.path)
  const { componentFolder } = order
  return componentFolder === undefined ? compileCore(bytes, bounds) : compileComponent(bytes, bounds, componentFolder)
}

async function compileCore(given: Uint8Array, bounds: ModuleBounds): Promise<CompiledModule> {
  const { layout, bytes, growFlag } = limitModule(given, bounds)
  requireOffered(findUnofferedImports(layout))
  const module = await WebAssembly.compile(bytes)
  return {
    kind: 'core',
    module,
    description: describeModule(layout),
    needsHost: layout.imports.length > 0,
    hasMemory: layout.memories.length > 0,
    growFlag,
  }
}

/** The core modules that the transpiler gives are the component's own; each is bounded once more as it stands there. */
async function compileComponent(given: Uint8Array, bounds: ModuleBounds, folder: string): Promise<CompiledComponent> {
  const layout = readComponent(given)
  const needs = checkComponentBounds(given, layout, bounds)
  requireOffered(findUnofferedOfComponent(layout))
  const extraPages = sharePages(needs, memoryLimitPages(bounds.memoryLimitBytes))
  const names = JSON.parse(await readFile(join(folder, 'files.json'), 'utf8')) as string[]
  const cores: ComponentCore[] = []
  for (const name of names.filter((file) => file.endsWith('.wasm'))) {
    const { bytes, growFlag } = limitModule(await readFile(join(folder, name)), bounds, extraPages)
    cores.push({ name, module: await WebAssembly.compile(bytes), growFlag })
  }
  const script = await readFile(join(folder, 'component.js'), 'utf8')
  return { kind: 'component', description: describeComponent(layout), script, cores }
}

function requireOffered([unoffered]: string[]): void {
  if (unoffered !== undefined) throw new ModuleRefusal(`the module imports ${unoffered}, which no worker offers`)
}
