/**
 * What a module on disk is and what it exports, read without its code and data: those are nearly all of its bytes, and a
 * module must pass through the proxy without the process growing by it. Workers judge modules; this is for people.
 */
import type { FileHandle } from 'node:fs/promises'
import { ServiceError } from '#core/errors/index.ts'
import { describeExports } from '#core/module-reading/index.ts'
import { ByteCursor, SECTION, readModuleKind } from '#core/wasm/index.ts'
import { leb128 } from '#core/bytes/index.ts'
import type { DescribedExport, ModuleKind } from '#core/wasm/index.ts'

export type ModuleFacts = {
  kind: ModuleKind
  /** Undefined: too large or too odd to be read or shown here. */
  exports: DescribedExport[] | undefined
}

const HEADER_BYTES = 8
/** Section id and the longest LEB128 of 32 bits (WebAssembly, "Binary Format", "Sections"). */
const SECTION_HEAD_BYTES = 6
/** Of types, imports, functions and exports together. */
const MAX_READ_BYTES = 4 * 1024 * 1024
/** Of the exports as JSON: they are kept on disk and sent to managers, one hundred modules at a time at most. */
const MAX_EXPORTS_CHARS = 256 * 1024
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
/** A function without locals that ends at once: what stands for each body that was left out. */
const EMPTY_BODY = Buffer.from([2, 0, 0x0b])

/** Throws `ModuleRefusal` when the file is no WebAssembly, `rate_limited` when too many modules are being read. `owner` is who it is read for. */
export async function readModuleFacts(handle: FileHandle, sizeBytes: number, owner: string): Promise<ModuleFacts> {
  const kind = readModuleKind(await readAt(handle, 0, Math.min(HEADER_BYTES, sizeBytes)))
  try {
    const exports = await readExports(handle, sizeBytes, kind, owner)
    return { kind, exports: JSON.stringify(exports ?? []).length > MAX_EXPORTS_CHARS ? undefined : exports }
  } catch (error) {
    if (isOdd(error)) return { kind, exports: undefined }
    throw error
  }
}

/** It breaks a bound, or takes too long or too much memory to read. */
function isOdd(error: unknown): boolean {
  return error instanceof ServiceError && (error.kind === 'malformed' || error.kind === 'too_large')
}

async function readExports(
  handle: FileHandle,
  sizeBytes: number,
  kind: ModuleKind,
  owner: string,
): Promise<DescribedExport[] | undefined> {
  if (kind === 'component') {
    // Its parts refer to each other by position, so none can be left out.
    if (sizeBytes > MAX_READ_BYTES) return undefined
    return await describeExports(kind, await readAt(handle, 0, sizeBytes), owner)
  }
  const outline = await readOutline(handle, sizeBytes)
  return outline === undefined ? undefined : await describeExports(kind, outline, owner)
}

/** A module with the same types, imports and exports whose functions do nothing. */
async function readOutline(handle: FileHandle, sizeBytes: number): Promise<Buffer<ArrayBuffer> | undefined> {
  const parts: Buffer[] = [await readAt(handle, 0, HEADER_BYTES)]
  let readBytes = 0
  let functions = 0
  let hasCode = false
  let position = HEADER_BYTES
  for (let count = 0; position < sizeBytes; count++) {
    const head = new ByteCursor(await readAt(handle, position, Math.min(SECTION_HEAD_BYTES, sizeBytes - position)), 0)
    const id = head.byte()
    const contentBytes = head.u32()
    const end = position + head.offset + contentBytes
    if (count >= MAX_SECTIONS || end > sizeBytes) return undefined
    if (READ_SECTIONS.has(id)) {
      readBytes += end - position
      if (readBytes > MAX_READ_BYTES) return undefined
      const section = await readAt(handle, position, end - position)
      if (id === SECTION.function) functions = new ByteCursor(section, head.offset).u32()
      // Each takes a byte at least; a number that lies must not decide what is allocated.
      if (id === SECTION.function && functions > section.length) return undefined
      parts.push(section)
    }
    if (id === SECTION.code) {
      // A second one is no module, and would cost as much memory as the first.
      if (hasCode) return undefined
      hasCode = true
      parts.push(emptyCode(functions))
    }
    position = end
  }
  return joined(parts)
}

/** In memory of its own. */
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
