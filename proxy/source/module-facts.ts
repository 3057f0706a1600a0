/**
 * Kind, exports and imports of a module on disk, read without its code and data, which are nearly all of its bytes: a module must not
 * increase the memory of the proxy by its size. They are for display; workers validate modules.
 */
import type { FileHandle } from 'node:fs/promises'
import { ServiceError } from '#core/errors/index.ts'
import { describeModuleBytes } from '#guests/module-reading/index.ts'
import { ByteCursor, SECTION, readModuleKind } from '#guests/wasm/index.ts'
import { leb128 } from '#core/bytes/index.ts'
import type { ComponentInterfaces } from '../oci/index.ts'
import type { DescribedExport, DescribedImport, ModuleDescription, ModuleKind } from '#guests/wasm/index.ts'

export type ModuleFacts = {
  kind: ModuleKind
  /** Undefined, as the imports are then: too large or too complex to be read or shown. */
  exports?: DescribedExport[]
  imports?: DescribedImport[]
}

const HEADER_BYTES = 8
/** Section id and the longest LEB128 of 32 bits (WebAssembly, "Binary Format", "Sections"). */
const SECTION_HEAD_BYTES = 6
/** Total size of types, imports, functions and exports. */
const MAX_READ_BYTES = 4 * 1024 * 1024
/** Size of exports and imports as JSON: they are stored on disk and sent to managers, at most one hundred modules at a time. */
const MAX_DESCRIPTION_CHARS = 256 * 1024
const MAX_SECTIONS = 10_000
const READ_SECTIONS: ReadonlySet<number> = new Set([
  SECTION.type,
  SECTION.import,
  SECTION.function,
  SECTION.table,
  SECTION.memory,
  SECTION.global,
  SECTION.export,
])
/** Component Model, "Binary Format": a core module of a component, here an empty one with its head. */
const CORE_MODULE_SECTION = 1
const EMPTY_CORE_MODULE = Buffer.from([CORE_MODULE_SECTION, 8, 0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0])
/** A function without locals that returns at once: replaces each omitted body. */
const EMPTY_BODY = Buffer.from([2, 0, 0x0b])

/** Undefined for a core module, and for a component that was not described. */
export function interfacesOf({ kind, exports, imports }: ModuleFacts): ComponentInterfaces | undefined {
  if (kind !== 'component' || exports === undefined || imports === undefined) return undefined
  return {
    exports: [...new Set(exports.map(({ name }) => name.split('#')[0] ?? name))],
    imports: imports.map(({ module }) => module),
  }
}

/**
 * Throws `ModuleRefusal` if the file is not WebAssembly, `rate_limited` if too many modules are being read. `owner` is
 * the owner of the request.
 */
export async function readModuleFacts(handle: FileHandle, sizeBytes: number, owner: string): Promise<ModuleFacts> {
  const kind = readModuleKind(await readAt(handle, 0, Math.min(HEADER_BYTES, sizeBytes)))
  try {
    const description = await readDescription(handle, sizeBytes, kind, owner)
    return JSON.stringify(description ?? {}).length > MAX_DESCRIPTION_CHARS ? { kind } : { kind, ...description }
  } catch (error) {
    if (isMalformed(error)) return { kind }
    throw error
  }
}

/** The module exceeds a limit, or takes too long or too much memory to read. */
function isMalformed(error: unknown): boolean {
  return error instanceof ServiceError && (error.kind === 'malformed' || error.kind === 'too_large')
}

async function readDescription(
  handle: FileHandle,
  sizeBytes: number,
  kind: ModuleKind,
  owner: string,
): Promise<ModuleDescription | undefined> {
  const outline = await (kind === 'component' ? readComponentOutline : readOutline)(handle, sizeBytes)
  return outline === undefined ? undefined : await describeModuleBytes(kind, outline, owner)
}

type SectionPlace = { id: number; start: number; headBytes: number; end: number }

/** The sections of the file, without their content; undefined if it is not made of sections, or of too many. */
async function readSections(handle: FileHandle, sizeBytes: number): Promise<SectionPlace[] | undefined> {
  const sections: SectionPlace[] = []
  for (let start = HEADER_BYTES; start < sizeBytes;) {
    const head = new ByteCursor(await readAt(handle, start, Math.min(SECTION_HEAD_BYTES, sizeBytes - start)), 0)
    const id = head.byte()
    const contentBytes = head.u32()
    const end = start + head.offset + contentBytes
    if (sections.length >= MAX_SECTIONS || end > sizeBytes) return undefined
    sections.push({ id, start, headBytes: head.offset, end })
    start = end
  }
  return sections
}

/** The same component whose core modules are empty: its parts refer to each other by position, so none is left out. */
async function readComponentOutline(handle: FileHandle, sizeBytes: number): Promise<Buffer<ArrayBuffer> | undefined> {
  const parts: Buffer[] = [await readAt(handle, 0, HEADER_BYTES)]
  let readBytes = 0
  const sections = await readSections(handle, sizeBytes)
  if (sections === undefined) return undefined
  for (const { id, start, end } of sections) {
    if (id === SECTION.custom) continue
    if (id === CORE_MODULE_SECTION) {
      parts.push(EMPTY_CORE_MODULE)
      continue
    }
    readBytes += end - start
    if (readBytes > MAX_READ_BYTES) return undefined
    parts.push(await readAt(handle, start, end - start))
  }
  return joined(parts)
}

/** A module with the same types, imports and exports whose functions are empty. */
async function readOutline(handle: FileHandle, sizeBytes: number): Promise<Buffer<ArrayBuffer> | undefined> {
  const parts: Buffer[] = [await readAt(handle, 0, HEADER_BYTES)]
  let readBytes = 0
  let functions = 0
  let hasCode = false
  const sections = await readSections(handle, sizeBytes)
  if (sections === undefined) return undefined
  for (const { id, start, headBytes, end } of sections) {
    if (READ_SECTIONS.has(id)) {
      readBytes += end - start
      if (readBytes > MAX_READ_BYTES) return undefined
      const section = await readAt(handle, start, end - start)
      if (id === SECTION.function) functions = new ByteCursor(section, headBytes).u32()
      // Each function takes at least a byte; a wrong number must not determine the allocation.
      if (id === SECTION.function && functions > section.length) return undefined
      parts.push(section)
    }
    if (id === SECTION.code) {
      // A second code section is invalid, and would cost as much memory as the first.
      if (hasCode) return undefined
      hasCode = true
      parts.push(emptyCode(functions))
    }
  }
  return joined(parts)
}

/** Copies the parts into one buffer. */
function joined(parts: readonly Buffer[]): Buffer<ArrayBuffer> {
  const whole = Buffer.alloc(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) at += part.copy(whole, at)
  return whole
}

function emptyCode(functions: number): Buffer {
  const count = leb128(functions)
  const contentBytes = count.length + functions * EMPTY_BODY.length
  const bodies = Buffer.alloc(functions * EMPTY_BODY.length, EMPTY_BODY)
  return Buffer.concat([Buffer.from([SECTION.code, ...leb128(contentBytes), ...count]), bodies])
}

async function readAt(handle: FileHandle, position: number, sizeBytes: number): Promise<Buffer<ArrayBuffer>> {
  const buffer = Buffer.alloc(sizeBytes)
  const { bytesRead } = await handle.read(buffer, 0, sizeBytes, position)
  return buffer.subarray(0, bytesRead)
}
