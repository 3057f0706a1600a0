/**
 * Patches a core module with the limits of its run before it is compiled: the maximum of its memory is lowered or added,
 * and a table without a maximum gets one, so that neither can grow beyond its limit. Names for debuggers are cut.
 */
import {
  PAGE_BYTES,
  boundFunctionNames,
  memoryLimitPages,
  ownMemories,
  ownTables,
  readBoundedModule,
  tableEntries,
} from '#guests/wasm/index.ts'
import { concatenate, leb128 } from '#core/bytes/index.ts'
import type { ComponentNeeds, Limits, ModuleBounds, ModuleLayout } from '#guests/wasm/index.ts'

/** Magic and version. */
const HEADER_BYTES = 8
const CUSTOM_SECTION = 0

type Patch = { start: number; end: number; replacement: number[] }

export type LimitedModule = {
  /** Layout of the original module: its exports and imports. */
  layout: ModuleLayout
  bytes: Uint8Array
  /** The largest possible size of its memory. */
  memoryLimitBytes: number
}

/**
 * Reads, checks and patches a module. `extraPages` is given for a core module of a component, whose memory can grow by at
 * most this, because other memories of the component share the limit. Throws ModuleRefusal with the actual and the
 * accepted value.
 */
export function limitModule(bytes: Uint8Array, bounds: ModuleBounds, extraPages?: bigint): LimitedModule {
  const layout = readBoundedModule(bytes, bounds)
  const limitPages = memoryLimitPages(bounds.memoryLimitBytes)
  const [own] = ownMemories(layout)
  const maxPages = own === undefined || extraPages === undefined ? limitPages : own.min + extraPages
  // The module that defines a memory or a table bounds it; an import with other limits would not match it.
  const patches = [...memoryPatches(ownMemories(layout), maxPages), ...tablePatches(ownTables(layout), bounds)]
  return { layout, bytes: applyPatches(layout, patches), memoryLimitBytes: Number(maxPages) * PAGE_BYTES }
}

/** The pages that each memory of the component can grow beyond its minimum, so that their sum stays within the limit. */
export function sharePages(needs: ComponentNeeds, limitPages: bigint): bigint {
  return needs.memories === 0 ? 0n : (limitPages - needs.minPages) / BigInt(needs.memories)
}

function memoryPatches(memories: Limits[], maxPages: bigint): Patch[] {
  return memories
    .filter((memory) => memory.max === undefined || memory.max > maxPages)
    .map((memory) => withMaximum(memory, maxPages))
}

/** Tables without a maximum share the rest of the limit, and each keeps at least its minimum. */
function tablePatches(tables: Limits[], bounds: ModuleBounds): Patch[] {
  const unbounded = tables.filter((table) => table.max === undefined)
  if (unbounded.length === 0) return []
  const share = (BigInt(bounds.maxTableEntries) - tableEntries(tables)) / BigInt(unbounded.length)
  return unbounded.map((table) => withMaximum(table, table.min + share))
}

/** Limits with bit 0 of the flags set: a minimum and a maximum (WebAssembly 3.0 section 5.3.14). */
function withMaximum(limits: Limits, max: bigint): Patch {
  const flags = limits.is64 ? 5 : 1
  return {
    start: limits.start,
    end: limits.end,
    replacement: [flags, ...leb128(limits.min), ...leb128(max)],
  }
}

/** Returns the same bytes if there is nothing to change. A changed section can have another length. */
function applyPatches({ bytes, sections }: ModuleLayout, patches: Patch[]): Uint8Array {
  if (patches.length === 0 && sections.every(({ id }) => id !== CUSTOM_SECTION)) return bytes
  const parts = [bytes.subarray(0, HEADER_BYTES)]
  for (const { id, start, contentStart, end } of sections) {
    const own = patches.filter((patch) => patch.start >= contentStart && patch.end <= end)
    const names = id === CUSTOM_SECTION ? boundFunctionNames(bytes.subarray(contentStart, end)) : undefined
    // Others are for debuggers; the engine reads none of them.
    if (id === CUSTOM_SECTION && names === undefined) continue
    if (names !== undefined) parts.push(Uint8Array.from([id, ...leb128(names.length)]), names)
    else if (own.length === 0) parts.push(bytes.subarray(start, end))
    else {
      const content = patchContent(bytes, contentStart, end, own)
      parts.push(Uint8Array.from([id, ...leb128(content.length)]), content)
    }
  }
  return concatenate(parts)
}

function patchContent(bytes: Uint8Array, start: number, end: number, patches: Patch[]): Uint8Array {
  const parts: Uint8Array[] = []
  let copied = start
  for (const patch of patches.toSorted((a, b) => a.start - b.start)) {
    parts.push(bytes.subarray(copied, patch.start), Uint8Array.from(patch.replacement))
    copied = patch.end
  }
  parts.push(bytes.subarray(copied, end))
  return concatenate(parts)
}
