/**
 * Makes a module remember that it was refused memory. No interface of an engine tells that a `memory.grow` returned -1,
 * but a trap after it means that the limit failed the run and not a fault of the guest (task-manager.md section 4). So
 * each `memory.grow` becomes a call of a function at the end of the module, which grows and notes a refusal in a global.
 */
import { ByteCursor, OPCODE, SECTION, encodeUnsigned, skipInstruction } from '#core/wasm/index.ts'
import type { ModuleLayout } from '#core/wasm/index.ts'
import type { ModuleEdit } from './module-edit.ts'

const I32 = 0x7f
const I64 = 0x7e

/**
 * Rewrites the module in `edit`. Answers the name of the exported global that is 1 after a refusal; undefined when the
 * module never grows its memory, or has instructions that are not known here.
 */
export function addGrowFlag(layout: ModuleLayout, edit: ModuleEdit): string | undefined {
  const [memory] = layout.memories
  const code = edit.content(SECTION.code)
  if (memory === undefined || code === undefined) return undefined
  const importedFunctions = layout.imports.filter((wanted) => wanted.kind === 'function').length
  const growIndex = importedFunctions + layout.functionCount
  const bodies = rewriteBodies(code, growIndex)
  if (bodies === undefined) return undefined

  const index = memory.is64 ? I64 : I32
  // Types may come in groups, so that the section has fewer items than types.
  edit.append(SECTION.type, [0x60, 1, index, 1, index])
  edit.append(SECTION.function, encodeUnsigned(layout.typeCount))
  const importedGlobals = layout.imports.filter((wanted) => wanted.kind === 'global').length
  const flag = importedGlobals + edit.append(SECTION.global, [I32, 1, 0x41, 0, 0x0b])
  const name = freeName(layout)
  edit.append(SECTION.export, [...encodeUnsigned(name.length), ...Buffer.from(name), 3, ...encodeUnsigned(flag)])
  edit.replace(SECTION.code, bodies)
  edit.append(SECTION.code, growFunction(memory.is64, flag))
  return name
}

function freeName(layout: ModuleLayout): string {
  const taken = new Set(layout.exports.map((exported) => exported.name))
  let name = 'skein:grow-refused'
  while (taken.has(name)) name += "'"
  return name
}

/** `(func (param $pages i32) (result i32) …)`: grows, sets the flag when the answer is -1, returns the answer. */
function growFunction(is64: boolean, flag: number): number[] {
  const minusOne = is64 ? [0x42, 0x7f] : [0x41, 0x7f]
  const equal = is64 ? 0x51 : 0x46
  const noLocals = [0]
  // local.get 0; memory.grow 0; local.tee 0; const -1; eq
  const grow = [0x20, 0, OPCODE.memoryGrow, 0, 0x22, 0, ...minusOne, equal]
  // if; i32.const 1; global.set flag; end; local.get 0; end
  const note = [0x04, 0x40, 0x41, 1, 0x24, ...encodeUnsigned(flag), 0x0b, 0x20, 0, 0x0b]
  const body = [...noLocals, ...grow, ...note]
  return [...encodeUnsigned(body.length), ...body]
}

/** The code section with every `memory.grow` replaced; undefined when there is none, or something is not known. */
function rewriteBodies(code: Uint8Array, growIndex: number): Uint8Array[] | undefined {
  const cursor = new ByteCursor(code)
  const count = cursor.u32()
  const parts: Uint8Array[] = [code.subarray(0, cursor.offset)]
  let copied = cursor.offset
  let hasGrow = false
  for (let body = 0; body < count; body++) {
    const start = cursor.offset
    const size = cursor.u32()
    const contentStart = cursor.offset
    cursor.skip(size)
    if (!mayGrow(code, contentStart, cursor.offset)) continue
    const rewritten = rewriteBody(new ByteCursor(code, contentStart, cursor.offset), growIndex)
    if (rewritten === undefined) return undefined
    if (rewritten.length === 1) continue
    hasGrow = true
    const newSize = rewritten.reduce((sum, part) => sum + part.length, 0)
    parts.push(code.subarray(copied, start), Uint8Array.from(encodeUnsigned(newSize)), ...rewritten)
    copied = cursor.offset
  }
  parts.push(code.subarray(copied))
  return hasGrow ? parts : undefined
}

/** A look at the bytes alone, so that only the few bodies that can hold a `memory.grow 0` are decoded. */
function mayGrow(code: Uint8Array, start: number, end: number): boolean {
  for (
    let at = code.indexOf(OPCODE.memoryGrow, start);
    at !== -1 && at + 1 < end;
    at = code.indexOf(OPCODE.memoryGrow, at + 1)
  ) {
    if (code[at + 1] === 0) return true
  }
  return false
}

/** The parts of a body: one when nothing had to be replaced. */
function rewriteBody(cursor: ByteCursor, growIndex: number): Uint8Array[] | undefined {
  const parts: Uint8Array[] = []
  let copied = cursor.offset
  try {
    for (let groups = cursor.u32(); groups > 0; groups--) {
      cursor.u32()
      const type = cursor.byte()
      if (type === 0x63 || type === 0x64) cursor.skipSigned(33)
    }
    while (!cursor.isAtEnd) {
      const at = cursor.offset
      const opcode = cursor.peek()
      skipInstruction(cursor)
      if (opcode !== OPCODE.memoryGrow) continue
      parts.push(cursor.bytes.subarray(copied, at), Uint8Array.from([OPCODE.call, ...encodeUnsigned(growIndex)]))
      copied = cursor.offset
    }
  } catch {
    // An instruction that we do not know, or code that is none: the engine decides, and refusals go unnoticed.
    return undefined
  }
  parts.push(cursor.bytes.subarray(copied, cursor.end))
  return parts
}
