/**
 * Steps over the instructions of a function body (WebAssembly 3.0 section 5.4). It knows the length of each one and
 * nothing about its meaning; what it does not know it says so, it never guesses.
 */
import type { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'

export const OPCODE = { call: 0x10, memoryGrow: 0x40 } as const

/** Steps over one instruction, its opcode included. Throws ModuleRefusal at an opcode that is not known. */
export function skipInstruction(cursor: ByteCursor): void {
  const opcode = cursor.byte()
  switch (opcode) {
    // block, loop, if, try
    case 0x02:
    case 0x03:
    case 0x04:
    case 0x06:
      return skipBlockType(cursor)
    // catch, throw, rethrow, delegate, br, br_if, call, return_call, call_ref, return_call_ref
    case 0x07:
    case 0x08:
    case 0x09:
    case 0x18:
    case 0x0c:
    case 0x0d:
    case 0x10:
    case 0x12:
    case 0x14:
    case 0x15:
    // local, global and table access, memory.size, memory.grow, ref.func, br_on_null, br_on_non_null
    case 0x20:
    case 0x21:
    case 0x22:
    case 0x23:
    case 0x24:
    case 0x25:
    case 0x26:
    case 0x3f:
    case 0x40:
    case 0xd2:
    case 0xd5:
    case 0xd6:
      cursor.u32()
      return
    // br_table
    case 0x0e:
      return skipIndices(cursor, cursor.u32() + 1)
    // call_indirect, return_call_indirect
    case 0x11:
    case 0x13:
      return skipIndices(cursor, 2)
    // select with types
    case 0x1c:
      for (let left = cursor.u32(); left > 0; left--) skipValueType(cursor)
      return
    case 0x1f:
      return skipTryTable(cursor)
    case 0x41:
      return cursor.skipSigned(32)
    case 0x42:
      return cursor.skipSigned(64)
    case 0x43:
      return cursor.skip(4)
    case 0x44:
      return cursor.skip(8)
    // ref.null
    case 0xd0:
      return cursor.skipSigned(33)
    case 0xfc:
      return skipPrefixed(cursor)
    case 0xfd:
      return skipVector(cursor)
    case 0xfe:
      if (cursor.u32() === 3) return cursor.skip(1)
      return skipMemoryArgument(cursor)
    default:
      if (opcode >= 0x28 && opcode <= 0x3e) return skipMemoryArgument(cursor)
      if (!isPlain(opcode)) throw unknown(opcode)
  }
}

/** unreachable, nop, else, throw_ref, end, return, catch_all, drop, select, numeric instructions, ref.is_null and its kin. */
function isPlain(opcode: number): boolean {
  if (opcode >= 0x45 && opcode <= 0xc4) return true
  return [0x00, 0x01, 0x05, 0x0a, 0x0b, 0x0f, 0x19, 0x1a, 0x1b, 0xd1, 0xd3, 0xd4].includes(opcode)
}

function skipBlockType(cursor: ByteCursor): void {
  const first = cursor.peek()
  if (first === 0x63 || first === 0x64) cursor.skip(1)
  cursor.skipSigned(33)
}

function skipValueType(cursor: ByteCursor): void {
  const first = cursor.byte()
  if (first === 0x63 || first === 0x64) cursor.skipSigned(33)
}

function skipIndices(cursor: ByteCursor, count: number): void {
  for (let left = count; left > 0; left--) cursor.u32()
}

function skipTryTable(cursor: ByteCursor): void {
  skipBlockType(cursor)
  for (let left = cursor.u32(); left > 0; left--) {
    const kind = cursor.byte()
    if (kind > 3) throw unknown(kind)
    // catch and catch_ref name a tag and a label, catch_all and catch_all_ref a label.
    skipIndices(cursor, kind < 2 ? 2 : 1)
  }
}

/** Alignment, whose bit 6 says that a memory index follows, and offset. */
function skipMemoryArgument(cursor: ByteCursor): void {
  const alignment = cursor.u32()
  if ((alignment & 0x40) !== 0) cursor.u32()
  cursor.u64()
}

/** Saturating conversions, and operations on whole memories, tables and segments. */
function skipPrefixed(cursor: ByteCursor): void {
  const code = cursor.u32()
  if (code <= 7) return
  if (code > 17) throw unknown(code)
  const hasTwoIndices = code === 8 || code === 10 || code === 12 || code === 14
  skipIndices(cursor, hasTwoIndices ? 2 : 1)
}

function skipVector(cursor: ByteCursor): void {
  const code = cursor.u32()
  if (code <= 11 || code === 92 || code === 93) return skipMemoryArgument(cursor)
  // v128.const and i8x16.shuffle
  if (code === 12 || code === 13) return cursor.skip(16)
  // extract_lane and replace_lane
  if (code >= 21 && code <= 34) return cursor.skip(1)
  if (code >= 84 && code <= 91) {
    skipMemoryArgument(cursor)
    return cursor.skip(1)
  }
  if (code > 0x1ff) throw unknown(code)
}

function unknown(code: number): ModuleRefusal {
  return new ModuleRefusal(`the instruction 0x${code.toString(16)} is not known`)
}
