/**
 * Makes a core module obey the limits of its run before an engine sees it: the maximum of its memory is lowered or
 * added, and a table without a maximum gets one, so that neither can grow beyond what the run was given.
 */
import { SECTION, encodeUnsigned, memoryLimitPages, readBoundedModule, tableEntries } from '#core/wasm/index.ts'
import type { Limits, ModuleBounds, ModuleLayout } from '#core/wasm/index.ts'

type Patch = { start: number; end: number; replacement: number[] }

export type LimitedModule = { layout: ModuleLayout; bytes: Uint8Array }

/** Reads, bounds and rewrites. Throws ModuleRefusal naming the figure found and the one accepted. */
export function limitModule(bytes: Uint8Array, bounds: ModuleBounds): LimitedModule {
  const layout = readBoundedModule(bytes, bounds)
  const patches = [...memoryPatches(layout, bounds), ...tablePatches(layout, bounds)]
  return { layout, bytes: patches.length === 0 ? bytes : applyPatches(layout, patches) }
}

function memoryPatches(layout: ModuleLayout, bounds: ModuleBounds): Patch[] {
  const limit = memoryLimitPages(bounds.memoryLimitBytes)
  return layout.memories
    .filter((memory) => memory.max === undefined || memory.max > limit)
    .map((memory) => withMaximum(memory, limit))
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

/** Copies the module; a section that holds patches is written anew with its new size, every other one as it stands. */
function applyPatches(layout: ModuleLayout, patches: Patch[]): Uint8Array {
  const parts: Uint8Array[] = [layout.bytes.subarray(0, 8)]
  for (const section of layout.sections) {
    const own = patches
      .filter((patch) => patch.start >= section.contentStart && patch.end <= section.end)
      .sort((a, b) => a.start - b.start)
    // Custom sections are left out: no engine needs them, and offsets into the code that they hold may be wrong now.
    if (section.id === SECTION.custom) continue
    if (own.length === 0) {
      parts.push(layout.bytes.subarray(section.start, section.end))
      continue
    }
    const content: Uint8Array[] = []
    let copied = section.contentStart
    for (const patch of own) {
      content.push(layout.bytes.subarray(copied, patch.start), Uint8Array.from(patch.replacement))
      copied = patch.end
    }
    content.push(layout.bytes.subarray(copied, section.end))
    const size = content.reduce((sum, part) => sum + part.length, 0)
    parts.push(Uint8Array.from([section.id, ...encodeUnsigned(size)]), ...content)
  }
  return concatenate(parts)
}

function concatenate(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let offset = 0
  for (const part of parts) {
    whole.set(part, offset)
    offset += part.length
  }
  return whole
}
