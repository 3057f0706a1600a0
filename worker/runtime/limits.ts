/**
 * Makes a core module obey the limits of its run before an engine sees it: the maximum of its memory is lowered or
 * added, and a table without a maximum gets one, so that neither can grow beyond what the run was given.
 */
import {
  SECTION,
  encodeUnsigned,
  memoryLimitPages,
  ownMemories,
  readBoundedModule,
  tableEntries,
} from '#core/wasm/index.ts'
import type { Limits, ModuleBounds, ModuleLayout } from '#core/wasm/index.ts'
import { addGrowFlag } from './grow-flag.ts'
import { ModuleEdit } from './module-edit.ts'

type Patch = { start: number; end: number; replacement: number[] }

export type LimitedModule = {
  /** Of the module as it was given: what it exports and imports. */
  layout: ModuleLayout
  bytes: Uint8Array
  /** Exported global that is 1 once the module was refused memory; undefined when it cannot be told. */
  growFlag: string | undefined
}

/**
 * Reads, bounds and rewrites. `extraPages` is there for a core module of a component, whose own memory may grow by so
 * much and no more, because others of the component count against the same limit. Throws ModuleRefusal naming the figure
 * found and the one accepted.
 */
export function limitModule(bytes: Uint8Array, bounds: ModuleBounds, extraPages?: bigint): LimitedModule {
  const layout = readBoundedModule(bytes, bounds)
  const edit = new ModuleEdit(layout)
  const patches = [...memoryPatches(layout, bounds, extraPages), ...tablePatches(layout, bounds)]
  for (const id of [SECTION.import, SECTION.table, SECTION.memory]) applyPatches(layout, edit, id, patches)
  const growFlag = addGrowFlag(layout, edit)
  return { layout, bytes: edit.toBytes(), growFlag }
}

function memoryPatches(layout: ModuleLayout, bounds: ModuleBounds, extraPages: bigint | undefined): Patch[] {
  const limit = memoryLimitPages(bounds.memoryLimitBytes)
  const own = ownMemories(layout)
  const maximumOf = (memory: Limits) =>
    extraPages !== undefined && own.includes(memory) ? memory.min + extraPages : limit
  return layout.memories
    .filter((memory) => memory.max === undefined || memory.max > maximumOf(memory))
    .map((memory) => withMaximum(memory, maximumOf(memory)))
}

/** Tables without a maximum share what the others leave of the bound, and each keeps at least its minimum. */
function tablePatches(layout: ModuleLayout, bounds: ModuleBounds): Patch[] {
  const unbounded = layout.tables.filter((table) => table.max === undefined)
  if (unbounded.length === 0) return []
  const share = (BigInt(bounds.maxTableEntries) - tableEntries(layout.tables)) / BigInt(unbounded.length)
  return unbounded.map((table) => withMaximum(table, table.min + share))
}

/** Limits with bit 0 of the flags set: a minimum and a maximum (WebAssembly 3.0 section 5.3.14). */
function withMaximum(limits: Limits, max: bigint): Patch {
  const flags = limits.is64 ? 5 : 1
  return {
    start: limits.start,
    end: limits.end,
    replacement: [flags, ...encodeUnsigned(limits.min), ...encodeUnsigned(max)],
  }
}

function applyPatches(layout: ModuleLayout, edit: ModuleEdit, id: number, patches: Patch[]): void {
  const section = layout.sections.find((candidate) => candidate.id === id)
  if (section === undefined) return
  const own = patches
    .filter((patch) => patch.start >= section.contentStart && patch.end <= section.end)
    .toSorted((a, b) => a.start - b.start)
  if (own.length === 0) return
  const parts: Uint8Array[] = []
  let copied = section.contentStart
  for (const patch of own) {
    parts.push(layout.bytes.subarray(copied, patch.start), Uint8Array.from(patch.replacement))
    copied = patch.end
  }
  parts.push(layout.bytes.subarray(copied, section.end))
  edit.replace(id, parts)
}
