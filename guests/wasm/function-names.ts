/**
 * The names of functions in the custom section `name` (WebAssembly 3.0 section 7.4.1), which engines show in stacks. They are
 * untrusted and of any length, so they are cut before an engine sees them.
 */
import { concatenate, leb128 } from '#core/bytes/index.ts'
import { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'

const SECTION_NAME = 'name'
const encoder = new TextEncoder()
const FUNCTION_NAMES = 1
const MAX_NAME_BYTES = 200
/** A module has about one name for each function. */
const MAX_NAMES = 200_000

/** All but printable ASCII. */
const OTHER_CHARACTERS = /[^ -~]/g

/**
 * The content of a custom section with its function names alone, cut and with other characters replaced by `_`. Undefined for
 * another custom section, and for an invalid one, which engines ignore.
 */
export function boundFunctionNames(content: Uint8Array): Uint8Array | undefined {
  try {
    const cursor = new ByteCursor(content)
    if (cursor.name() !== SECTION_NAME) return undefined
    const names: Uint8Array[] = []
    while (!cursor.isAtEnd) {
      const id = cursor.byte()
      const size = cursor.u32()
      const start = cursor.offset
      cursor.skip(size)
      if (id === FUNCTION_NAMES) {
        names.length = 0
        readNames(new ByteCursor(content, start, cursor.offset), names)
      }
    }
    const count = leb128(names.length)
    const bytes = names.reduce((sum, name) => sum + name.length, count.length)
    const head = [SECTION_NAME.length, ...encoder.encode(SECTION_NAME), FUNCTION_NAMES, ...leb128(bytes), ...count]
    return concatenate([Uint8Array.from(head), ...names])
  } catch (error) {
    if (error instanceof ModuleRefusal) return undefined
    throw error
  }
}

function readNames(cursor: ByteCursor, names: Uint8Array[]): void {
  const count = cursor.count('function names', MAX_NAMES)
  for (let read = 0; read < count; read++) {
    const index = cursor.u32()
    const length = cursor.u32()
    const start = cursor.offset
    cursor.skip(length)
    const text = String.fromCharCode(...cursor.bytes.subarray(start, start + Math.min(length, MAX_NAME_BYTES)))
    const name = encoder.encode(text.replaceAll(OTHER_CHARACTERS, '_'))
    names.push(Uint8Array.from([...leb128(index), ...leb128(name.length), ...name]))
  }
}
