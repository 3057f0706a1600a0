/** The limits of core modules and components, checked on their bytes before an engine sees them. */
import type { ComponentLayout } from './component-reader.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readModule } from './module-reader.ts'
import type { Limits, ModuleLayout } from './module-reader.ts'

export const PAGE_BYTES = 65_536
/** 4 GiB, the largest `memory_limit`. */
const MAX_MEMORY_PAGES = 65_536n

export type ModuleBounds = {
  maxModuleBytes: number
  memoryLimitBytes: number
  /** Minima and maxima of all tables together, in entries. */
  maxTableEntries: number
  maxFunctions: number
  maxBodyBytes: number
  /** Accept garbage-collected types, whose objects no memory limit covers. */
  allowGc: boolean
}

export const DEFAULT_MODULE_BOUNDS: ModuleBounds = {
  maxModuleBytes: 64 * 1024 * 1024,
  memoryLimitBytes: 64 * 1024 * 1024,
  maxTableEntries: 1_000_000,
  maxFunctions: 100_000,
  maxBodyBytes: 1024 * 1024,
  allowGc: false,
}

/** Parses a core module and rejects it when it exceeds a limit; the message has the actual and the accepted figure. */
export function readBoundedModule(bytes: Uint8Array, bounds: ModuleBounds = DEFAULT_MODULE_BOUNDS): ModuleLayout {
  refuseAbove(bytes.length, bounds.maxModuleBytes, 'the module', 'bytes')
  const layout = readModule(bytes, { allowGc: bounds.allowGc })
  checkMemories(layout, bounds)
  checkTables(layout, bounds)
  refuseAbove(layout.functionCount, bounds.maxFunctions, 'the module', 'functions')
  refuseAbove(layout.largestBodyBytes, bounds.maxBodyBytes, 'the longest function body', 'bytes')
  refuseAbove(layout.dataBytes + layout.elementBytes, bounds.maxModuleBytes, 'data and element segments', 'bytes')
  return layout
}

/** The total needs of the instances of a component's core modules. */
export type ComponentNeeds = {
  /** Instances with a memory of their own. */
  memories: number
  /** The minima of these memories. */
  minPages: bigint
  /** Core modules of the component, each within the bounds. */
  modules: ModuleLayout[]
}

/** Checks each core module separately, and the sum over all instances; the message has both figures. */
export function checkComponentBounds(
  bytes: Uint8Array,
  layout: ComponentLayout,
  bounds: ModuleBounds = DEFAULT_MODULE_BOUNDS,
): ComponentNeeds {
  refuseAbove(bytes.length, bounds.maxModuleBytes, 'the component', 'bytes')
  const needs: ComponentNeeds = { memories: 0, minPages: 0n, modules: [] }
  let entries = 0n
  for (const [index, module] of layout.coreModules.entries()) {
    const core = readBoundedModule(module, bounds)
    const count = layout.instanceCounts[index] ?? 0
    const memories = ownMemories(core)
    needs.memories += memories.length * count
    needs.minPages += memories.reduce((sum, memory) => sum + memory.min, 0n) * BigInt(count)
    needs.modules.push(core)
    entries += tableEntries(ownTables(core)) * BigInt(count)
  }
  refuseAbove(entries, bounds.maxTableEntries, 'the tables of all instances together', 'entries')
  const limitPages = memoryLimitPages(bounds.memoryLimitBytes)
  if (needs.minPages > limitPages) {
    throw memoryRefusal('the memories of all instances together start', needs.minPages, bounds.memoryLimitBytes)
  }
  return needs
}

/** The memories that a module defines; imported ones come first in the list. */
export function ownMemories(layout: ModuleLayout): Limits[] {
  return layout.memories.slice(layout.imports.filter(({ kind }) => kind === 'memory').length)
}

/** The tables that a module defines; imported ones come first in the list. */
export function ownTables(layout: ModuleLayout): Limits[] {
  return layout.tables.slice(layout.imports.filter(({ kind }) => kind === 'table').length)
}

/** The largest number of pages that a memory limit allows. */
export function memoryLimitPages(memoryLimitBytes: number): bigint {
  return BigInt(Math.floor(memoryLimitBytes / PAGE_BYTES))
}

/** The maximum number of entries of a table, or its minimum when it has no maximum. */
export function tableEntries(tables: Limits[]): bigint {
  return tables.reduce((sum, table) => sum + (table.max ?? table.min), 0n)
}

function checkMemories(layout: ModuleLayout, bounds: ModuleBounds): void {
  refuseAbove(layout.memories.length, 1, 'the module', 'memories')
  for (const memory of layout.memories) {
    if (memory.isShared) throw new ModuleRefusal('a shared memory is not accepted; compile without threads')
    if (memory.min > memoryLimitPages(bounds.memoryLimitBytes)) {
      throw memoryRefusal('the memory starts', memory.min, bounds.memoryLimitBytes)
    }
  }
}

function memoryRefusal(start: string, pages: bigint, limitBytes: number): ModuleRefusal {
  const needed = pages * BigInt(PAGE_BYTES)
  const cure = pages <= MAX_MEMORY_PAGES ? `; set memory_limit to at least ${needed}` : ''
  return new ModuleRefusal(
    `${start} with ${pages} pages (${needed} bytes), the memory_limit is ${limitBytes} bytes${cure}`,
  )
}

function checkTables(layout: ModuleLayout, bounds: ModuleBounds): void {
  if (layout.tables.some((table) => table.isShared)) throw new ModuleRefusal('a shared table is not accepted')
  refuseAbove(tableEntries(ownTables(layout)), bounds.maxTableEntries, 'the tables together', 'entries')
}

function refuseAbove(found: number | bigint, max: number, subject: string, unit: string): void {
  if (found > max) throw new ModuleRefusal(`${subject}: ${found} ${unit}, at most ${max} are accepted`)
}
