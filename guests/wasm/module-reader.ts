/**
 * Parses the structure of a core WebAssembly module without compiling it: its imports, exports, and every figure that determines
 * how much an engine would allocate for it. Function bodies are measured, not decoded: the engine validates their instructions.
 */
import { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readBoundedName, showName } from './names.ts'
import { TypeSection, readValueType } from './value-types.ts'
import type { FunctionType } from './value-types.ts'

export type ModuleKind = 'core' | 'component'

export type ExternKind = 'function' | 'table' | 'memory' | 'global' | 'tag'

/** Limits of a memory (in pages of 64 KiB) or a table (in entries), with their offsets in the bytes. */
export type Limits = {
  min: bigint
  max: bigint | undefined
  is64: boolean
  isShared: boolean
  /** First byte of the limits (their flags) and the one after them. */
  start: number
  end: number
}

export type ModuleImport = { module: string; name: string; kind: ExternKind; type?: FunctionType }
export type ModuleExport = { name: string; kind: ExternKind; type?: FunctionType }

/** A name of an import or export: from its length prefix to its last byte. */
export type NamePlace = { start: number; end: number; name: string }

/** One section: the offset of its id, of its content and of the byte after it. */
export type Section = { id: number; start: number; contentStart: number; end: number }

export type ModuleLayout = {
  bytes: Uint8Array
  sections: Section[]
  imports: ModuleImport[]
  exports: ModuleExport[]
  /** The names of imports and exports, in the order of the bytes. */
  names: NamePlace[]
  memories: Limits[]
  tables: Limits[]
  functionCount: number
  largestBodyBytes: number
  elementBytes: number
  dataBytes: number
}

export const SECTION = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
  tag: 13,
} as const

/** Lists of names are shown to users and stored in the database; longer ones have no use. */
const MAX_IMPORTS = 10_000
const MAX_EXPORTS = 10_000
/** Value types of all imports and exports together. */
const MAX_DESCRIBED_TYPES = 200_000
/** The engine rejects more than a million (V8: kV8MaxWasmFunctions); the product's limit is lower and checked later. */
const MAX_FUNCTIONS_READ = 1_000_000
const MAX_TABLES = 100
const MAX_MEMORIES = 100
const MAX_SECTIONS = 10_000

/** Bytes 4 to 8 distinguish core modules from components; other values are rejected. */
export function readModuleKind(bytes: Uint8Array): ModuleKind {
  const isWasm = bytes.length >= 8 && bytes[0] === 0 && bytes[1] === 0x61 && bytes[2] === 0x73 && bytes[3] === 0x6d
  if (!isWasm) throw new ModuleRefusal('this is not a WebAssembly module; it must begin with the bytes 00 61 73 6d')
  const version = [...bytes.subarray(4, 8)].map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
  if (version === '01 00 00 00') return 'core'
  if (version === '0d 00 01 00') return 'component'
  throw new ModuleRefusal(`WebAssembly version ${version} is not supported; supported is 01 00 00 00 (core module)`)
}

/** Throws ModuleRefusal for a component and for invalid bytes. Never allocates more than the input's size. */
export function readModule(bytes: Uint8Array, options: { allowGc: boolean }): ModuleLayout {
  if (readModuleKind(bytes) !== 'core') throw new ModuleRefusal('this is a component, not a core module')
  return new ModuleReader(bytes, options.allowGc).read()
}

class ModuleReader {
  readonly #bytes: Uint8Array
  readonly #allowGc: boolean
  readonly #layout: ModuleLayout
  readonly #seen = new Set<number>()
  #types: TypeSection | undefined
  /** Type index of every function, imported ones first. */
  readonly #functionTypes: number[] = []
  #importedFunctions = 0
  #describedTypes = 0

  constructor(bytes: Uint8Array, allowGc: boolean) {
    this.#bytes = bytes
    this.#allowGc = allowGc
    this.#layout = {
      bytes,
      sections: [],
      imports: [],
      exports: [],
      names: [],
      memories: [],
      tables: [],
      functionCount: 0,
      largestBodyBytes: 0,
      elementBytes: 0,
      dataBytes: 0,
    }
  }

  read(): ModuleLayout {
    const cursor = new ByteCursor(this.#bytes, 8)
    while (!cursor.isAtEnd) {
      const start = cursor.offset
      const id = cursor.byte()
      const size = cursor.u32()
      const contentStart = cursor.offset
      cursor.skip(size)
      if (this.#layout.sections.length >= MAX_SECTIONS) {
        throw new ModuleRefusal(`the module has more than ${MAX_SECTIONS} sections`)
      }
      this.#layout.sections.push({ id, start, contentStart, end: cursor.offset })
      this.#readSection(id, new ByteCursor(this.#bytes, contentStart, cursor.offset))
    }
    if (this.#functionTypes.length - this.#importedFunctions > 0 && !this.#seen.has(SECTION.code)) {
      throw new ModuleRefusal('the module declares functions but has no code')
    }
    return this.#layout
  }

  #readSection(id: number, content: ByteCursor): void {
    if (id === SECTION.custom) {
      content.name()
      return
    }
    if (this.#seen.has(id)) throw new ModuleRefusal(`section ${id} is repeated in the module`)
    this.#seen.add(id)
    switch (id) {
      case SECTION.type:
        this.#types = new TypeSection(
          content,
          this.#allowGc,
          (offset) => new ByteCursor(this.#bytes, offset, content.end),
        )
        break
      case SECTION.import:
        this.#readImports(content)
        break
      case SECTION.function:
        this.#readFunctions(content)
        break
      case SECTION.table:
        this.#readTables(content)
        break
      case SECTION.memory:
        this.#readMemories(content)
        break
      case SECTION.export:
        this.#readExports(content)
        break
      case SECTION.code:
        this.#readCode(content)
        break
      case SECTION.element:
        this.#layout.elementBytes = content.remaining
        return
      case SECTION.data:
        this.#layout.dataBytes = content.remaining
        return
      case SECTION.global:
      case SECTION.start:
      case SECTION.dataCount:
      case SECTION.tag:
        // These sections do not cause allocations beyond their own size; the engine checks their content.
        return
      default:
        throw new ModuleRefusal(`the module has an unknown section ${id}`)
    }
    if (!content.isAtEnd) throw new ModuleRefusal(`section ${id} is longer than its content`)
  }

  #readImports(cursor: ByteCursor): void {
    const count = cursor.count('imports', MAX_IMPORTS)
    for (let index = 0; index < count; index++) {
      const module = this.#readName(cursor, 'an import')
      const name = this.#readName(cursor, 'an import')
      const kind = readExternKind(cursor.byte())
      switch (kind) {
        case 'function': {
          const typeIndex = cursor.u32()
          this.#functionTypes.push(typeIndex)
          this.#importedFunctions++
          this.#layout.imports.push({ module, name, kind, type: this.#describe(typeIndex) })
          continue
        }
        case 'table':
          readValueType(cursor, this.#allowGc)
          this.#layout.tables.push(readLimits(cursor))
          break
        case 'memory':
          this.#layout.memories.push(readLimits(cursor))
          break
        case 'global':
          readValueType(cursor, this.#allowGc)
          cursor.skip(1)
          break
        case 'tag':
          cursor.skip(1)
          cursor.u32()
          break
      }
      this.#layout.imports.push({ module, name, kind })
    }
  }

  #readName(cursor: ByteCursor, what: string): string {
    const start = cursor.offset
    const name = readBoundedName(cursor, what)
    this.#layout.names.push({ start, end: cursor.offset, name })
    return name
  }

  #readFunctions(cursor: ByteCursor): void {
    const count = cursor.count('functions', MAX_FUNCTIONS_READ)
    this.#layout.functionCount = count
    for (let index = 0; index < count; index++) this.#functionTypes.push(cursor.u32())
  }

  #readTables(cursor: ByteCursor): void {
    const count = cursor.count('tables', MAX_TABLES)
    for (let index = 0; index < count; index++) {
      // 0x40 begins a table with an initial value, whose expression would have to be decoded to find the next table.
      if (cursor.peek() === 0x40) throw new ModuleRefusal('a table with an initial value is not accepted')
      readValueType(cursor, this.#allowGc)
      this.#layout.tables.push(readLimits(cursor))
    }
  }

  #readMemories(cursor: ByteCursor): void {
    const count = cursor.count('memories', MAX_MEMORIES)
    for (let index = 0; index < count; index++) this.#layout.memories.push(readLimits(cursor))
  }

  #readExports(cursor: ByteCursor): void {
    const count = cursor.count('exports', MAX_EXPORTS)
    for (let index = 0; index < count; index++) {
      const name = this.#readName(cursor, 'an export')
      const kind = readExternKind(cursor.byte())
      const externIndex = cursor.u32()
      if (kind !== 'function') {
        this.#layout.exports.push({ name, kind })
        continue
      }
      const typeIndex = this.#functionTypes[externIndex]
      if (typeIndex === undefined) throw new ModuleRefusal(`export ${showName(name)} is not a function`)
      this.#layout.exports.push({ name, kind, type: this.#describe(typeIndex) })
    }
  }

  #readCode(cursor: ByteCursor): void {
    const count = cursor.count('function bodies', MAX_FUNCTIONS_READ)
    if (count !== this.#layout.functionCount) {
      throw new ModuleRefusal(`the module declares ${this.#layout.functionCount} functions and has ${count} bodies`)
    }
    for (let index = 0; index < count; index++) {
      const size = cursor.u32()
      cursor.skip(size)
      if (size > this.#layout.largestBodyBytes) this.#layout.largestBodyBytes = size
    }
  }

  #describe(typeIndex: number): FunctionType {
    if (this.#types === undefined) throw new ModuleRefusal('the module has functions but no types')
    const type = this.#types.functionType(typeIndex)
    this.#describedTypes += type.params.length + type.results.length
    if (this.#describedTypes > MAX_DESCRIBED_TYPES) {
      throw new ModuleRefusal(`imports and exports have more than ${MAX_DESCRIBED_TYPES} parameters and results`)
    }
    return type
  }
}

function readExternKind(code: number): ExternKind {
  const kind = (['function', 'table', 'memory', 'global', 'tag'] as const)[code]
  if (kind === undefined) throw new ModuleRefusal(`0x${code.toString(16)} is not a kind of import or export`)
  return kind
}

/** Limits (section 5.3.14): bit 0 a maximum, bit 1 shared, bit 2 a 64-bit index; other bits are unknown. */
function readLimits(cursor: ByteCursor): Limits {
  const start = cursor.offset
  const flags = cursor.byte()
  if (flags > 7) throw new ModuleRefusal(`limits of the form 0x${flags.toString(16)} are not accepted`)
  const is64 = (flags & 4) !== 0
  const readBound = () => (is64 ? cursor.u64() : BigInt(cursor.u32()))
  const min = readBound()
  const max = (flags & 1) === 0 ? undefined : readBound()
  if (max !== undefined && max < min) throw new ModuleRefusal(`limits have a maximum ${max} below the minimum ${min}`)
  return { min, max, is64, isShared: (flags & 2) !== 0, start, end: cursor.offset }
}
