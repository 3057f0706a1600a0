/** Value types and the type section, and function types in the names of the text format. */
import type { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'

/** Names of the text format; a reference to a type of the module is shown as `ref`. */
export type ValueType = 'i32' | 'i64' | 'f32' | 'f64' | 'v128' | 'funcref' | 'externref' | 'exnref' | 'ref'

export type FunctionType = { params: ValueType[]; results: ValueType[] }

/** Compilers emit fewer; the engine's limit is a million. */
const MAX_TYPES = 100_000
/** The engine's limit (V8: kV8MaxWasmFunctionParams, kV8MaxWasmFunctionReturns). */
const MAX_PARAMS = 1_000
const MAX_FIELDS = 10_000

const PLAIN_TYPES: Record<number, ValueType> = {
  0x7f: 'i32',
  0x7e: 'i64',
  0x7d: 'f32',
  0x7c: 'f64',
  0x7b: 'v128',
  0x70: 'funcref',
  0x6f: 'externref',
  0x69: 'exnref',
}

/** Abstract heap types of WasmGC in their one-byte form: any, eq, i31, struct, array, none, noextern, nofunc, noexn. */
const GC_TYPES = new Set([0x6e, 0x6d, 0x6c, 0x6b, 0x6a, 0x71, 0x72, 0x73, 0x74])

const FUNC = 0x60
const STRUCT = 0x5f
const ARRAY = 0x5e
const SUB = 0x50
const SUB_FINAL = 0x4f
const REC = 0x4e

export function readValueType(cursor: ByteCursor, allowGc: boolean): ValueType {
  const code = cursor.byte()
  const plain = PLAIN_TYPES[code]
  if (plain !== undefined) return plain
  if (code === 0x63 || code === 0x64) {
    if (!allowGc) throw unknownForm('reference type', code)
    cursor.skipSigned33()
    return 'ref'
  }
  if (GC_TYPES.has(code) && allowGc) return 'ref'
  throw unknownForm('value type', code)
}

/**
 * The types of a module by index, as offsets: a hostile section with millions of parameters is skipped, and only the types in use
 * are decoded, once each.
 */
export class TypeSection {
  readonly #offsets: number[] = []
  readonly #decoded = new Map<number, FunctionType>()
  readonly #cursorAt: (offset: number) => ByteCursor
  readonly #allowGc: boolean

  constructor(cursor: ByteCursor, allowGc: boolean, cursorAt: (offset: number) => ByteCursor) {
    this.#cursorAt = cursorAt
    this.#allowGc = allowGc
    const count = cursor.count('types', MAX_TYPES)
    for (let index = 0; index < count; index++) this.#readRecursiveType(cursor)
  }

  get length(): number {
    return this.#offsets.length
  }

  /** Throws ModuleRefusal when the index is out of range or the type is not a function type. */
  functionType(index: number): FunctionType {
    const known = this.#decoded.get(index)
    if (known !== undefined) return known
    const offset = this.#offsets[index]
    if (offset === undefined) throw new ModuleRefusal(`there is no type ${index}, the module has ${this.length} types`)
    const cursor = this.#cursorAt(offset)
    if (cursor.byte() !== FUNC) throw new ModuleRefusal(`type ${index} is not a function type`)
    const type = { params: this.#readValueTypes(cursor), results: this.#readValueTypes(cursor) }
    this.#decoded.set(index, type)
    return type
  }

  #readValueTypes(cursor: ByteCursor): ValueType[] {
    return Array.from({ length: cursor.count('parameters', MAX_PARAMS) }, () => readValueType(cursor, this.#allowGc))
  }

  #readRecursiveType(cursor: ByteCursor): void {
    if (cursor.peek() !== REC) return this.#readSubType(cursor)
    if (!this.#allowGc) throw unknownForm('type form', REC)
    cursor.skip(1)
    const count = cursor.count('types', MAX_TYPES)
    for (let index = 0; index < count; index++) this.#readSubType(cursor)
  }

  #readSubType(cursor: ByteCursor): void {
    const form = cursor.peek()
    if (form === SUB || form === SUB_FINAL) {
      if (!this.#allowGc) throw unknownForm('type form', form)
      cursor.skip(1)
      const supertypes = cursor.count('supertypes', MAX_TYPES)
      for (let index = 0; index < supertypes; index++) cursor.u32()
    }
    if (this.#offsets.length >= MAX_TYPES) throw new ModuleRefusal(`the module has more than ${MAX_TYPES} types`)
    this.#offsets.push(cursor.offset)
    this.#skipCompositeType(cursor)
  }

  #skipCompositeType(cursor: ByteCursor): void {
    const form = cursor.byte()
    if (form === FUNC) {
      for (let list = 0; list < 2; list++) {
        const count = cursor.count('parameters', MAX_PARAMS)
        for (let index = 0; index < count; index++) readValueType(cursor, this.#allowGc)
      }
      return
    }
    if (!this.#allowGc || (form !== STRUCT && form !== ARRAY)) throw unknownForm('type form', form)
    const fields = form === ARRAY ? 1 : cursor.count('fields', MAX_FIELDS)
    for (let index = 0; index < fields; index++) {
      const storage = cursor.peek()
      if (storage === 0x78 || storage === 0x77) cursor.skip(1)
      else readValueType(cursor, true)
      cursor.skip(1)
    }
  }
}

function unknownForm(what: string, code: number): ModuleRefusal {
  return new ModuleRefusal(
    `the module uses a ${what} 0x${code.toString(16).padStart(2, '0')} that is not accepted; compile it without garbage-collected types`,
  )
}
