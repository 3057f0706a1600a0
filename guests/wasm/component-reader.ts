/**
 * Parses the structure of a component (WASI 0.2) without compiling it: its core modules, imports and exports, and the number of
 * instances of each core module, which determines the total memory and tables.
 */
import { ByteCursor } from './byte-cursor.ts'
import {
  Budget,
  TypeScope,
  found,
  readEach,
  readExternDescription,
  readNamed,
  readTypes,
  unknownForm,
} from './component-types.ts'
import type { Exports, Extern } from './component-types.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readModuleKind } from './module-reader.ts'
import { readBoundedName, readExternName, readExternNameText, showName } from './names.ts'

export type ComponentLayout = {
  /** Every core module, those of nested components included. */
  coreModules: Uint8Array[]
  /** The number of instances of the module with the same index; zero for an unused one. */
  instanceCounts: number[]
  imports: { name: string; extern: Extern }[]
  exports: Exports
  /** The pieces are in the order of the bytes. */
  pieces: Piece[]
}

/**
 * The parts of a component that contain core names, for `renameCoreNames`: a name with its length prefix; a section, from its id
 * to its end, that contains such names; a core module; and a custom section, which is not needed.
 */
export type Piece =
  | { kind: 'name'; start: number; end: number; name: string }
  | { kind: 'section'; start: number; contentStart: number; end: number; pieces: Piece[] }
  | { kind: 'module'; start: number; contentStart: number; end: number }
  | { kind: 'custom'; start: number; end: number }

const SECTION = {
  custom: 0,
  coreModule: 1,
  coreInstance: 2,
  coreType: 3,
  component: 4,
  instance: 5,
  alias: 6,
  type: 7,
  canonical: 8,
  start: 9,
  import: 10,
  export: 11,
} as const

const CORE_SORT = { module: 0x11, instance: 0x12 } as const
const SORT = { core: 0x00, function: 0x01, value: 0x02, type: 0x03, component: 0x04, instance: 0x05 } as const

/** Instances of core modules over the whole component: more than any known composition needs. */
const MAX_CORE_INSTANCES = 1_000

/** Throws ModuleRefusal for a core module, for other bytes, and for forms newer than WASI 0.2. */
export function readComponent(bytes: Uint8Array): ComponentLayout {
  if (readModuleKind(bytes) !== 'component') throw new ModuleRefusal('this is a core module, not a component')
  const coreModules: Uint8Array[] = []
  const root = new ComponentReader(new ByteCursor(bytes, 8), new TypeScope(new Budget()), coreModules).read()
  const instanceCounts = coreModules.map((_, module) => root.counts.get(module) ?? 0)
  return { coreModules, instanceCounts, imports: root.imports, exports: root.exports, pieces: root.pieces }
}

/** A component as its parent sees it. */
type Component = {
  imports: { name: string; extern: Extern }[]
  exports: Exports
  /** Instances per core module when the component is instantiated once. */
  counts: Map<number, number>
  pieces: Piece[]
}

class ComponentReader {
  readonly #cursor: ByteCursor
  readonly #scope: TypeScope
  readonly #parent: ComponentReader | undefined
  readonly #coreModules: Uint8Array[]
  /** Indices into `#coreModules`, in this component's own index space. */
  readonly #modules: number[] = []
  readonly #components: Component[] = []
  /** The names of the section that is being parsed. */
  #namesOfSection: Piece[] = []
  readonly #result: Component = { imports: [], exports: new Map(), counts: new Map(), pieces: [] }

  constructor(cursor: ByteCursor, scope: TypeScope, coreModules: Uint8Array[], parent?: ComponentReader) {
    this.#cursor = cursor
    this.#scope = scope
    this.#coreModules = coreModules
    this.#parent = parent
  }

  read(): Component {
    const cursor = this.#cursor
    const { pieces } = this.#result
    while (!cursor.isAtEnd) {
      const start = cursor.offset
      const id = cursor.byte()
      const size = cursor.u32()
      const contentStart = cursor.offset
      cursor.skip(size)
      const end = cursor.offset
      this.#scope.budget.spend(1)
      this.#namesOfSection = []
      this.#readSection(id, new ByteCursor(cursor.bytes, contentStart, end))
      const inner = this.#namesOfSection
      if (id === SECTION.custom) pieces.push({ kind: 'custom', start, end })
      else if (id === SECTION.coreModule) pieces.push({ kind: 'module', start, contentStart, end })
      else if (inner.length > 0) pieces.push({ kind: 'section', start, contentStart, end, pieces: inner })
    }
    return this.#result
  }

  /** A name by which core modules are linked; it is not visible outside of the component. */
  #readCoreName(cursor: ByteCursor, what: string): void {
    const start = cursor.offset
    const name = readBoundedName(cursor, what)
    this.#namesOfSection.push({ kind: 'name', start, end: cursor.offset, name })
  }

  #readSection(id: number, content: ByteCursor): void {
    const each = (read: () => void) => readEach(content, this.#scope, read)
    switch (id) {
      case SECTION.custom:
        content.name()
        return
      case SECTION.coreModule:
        this.#modules.push(this.#coreModules.push(content.bytes.subarray(content.offset, content.end)) - 1)
        return
      case SECTION.coreInstance:
        each(() => this.#readCoreInstance(content))
        break
      case SECTION.coreType:
        // They contain names, which the transpiler would receive unchecked, and no accepted component needs them.
        throw passedAround()
      case SECTION.component:
        this.#readComponent(content)
        return
      case SECTION.instance:
        each(() => this.#readInstance(content))
        break
      case SECTION.alias:
        each(() => this.#readAlias(content))
        break
      case SECTION.type:
        readTypes(content, this.#scope)
        break
      case SECTION.canonical:
        each(() => this.#readCanonical(content))
        break
      case SECTION.import:
        each(() => this.#readImport(content))
        break
      case SECTION.export:
        each(() => this.#readExport(content))
        break
      default:
        throw unknownForm('section', id)
    }
    if (!content.isAtEnd) throw new ModuleRefusal(`section ${id} of the component is longer than its content`)
  }

  #readComponent(content: ByteCursor): void {
    if (readModuleKind(content.bytes.subarray(content.offset, content.end)) !== 'component') {
      throw new ModuleRefusal('the component nests bytes that are not a component')
    }
    const nested = new ByteCursor(content.bytes, content.offset + 8, content.end)
    const scope = new TypeScope(this.#scope.budget, this.#scope)
    const component = new ComponentReader(nested, scope, this.#coreModules, this).read()
    this.#namesOfSection = component.pieces
    this.#components.push(component)
  }

  #readCoreInstance(cursor: ByteCursor): void {
    const form = cursor.byte()
    if (form === 0x00) {
      const module = found(this.#modules[cursor.u32()], 'core module', 'beyond the last')
      this.#count(new Map([[module, 1]]))
      return readEach(cursor, this.#scope, () => {
        this.#readCoreName(cursor, 'an argument of a core instance')
        const sort = cursor.byte()
        if (sort !== CORE_SORT.instance) throw unknownForm('argument', sort)
        cursor.u32()
      })
    }
    if (form !== 0x01) throw unknownForm('core instance', form)
    readEach(cursor, this.#scope, () => {
      this.#readCoreName(cursor, 'an export of a core instance')
      cursor.skip(1)
      cursor.u32()
    })
  }

  #readInstance(cursor: ByteCursor): void {
    const form = cursor.byte()
    if (form === 0x00) {
      const component = found(this.#components[cursor.u32()], 'component', 'beyond the last')
      this.#count(component.counts)
      readEach(cursor, this.#scope, () => {
        readNamed(readExternNameText(cursor), () => this.#readSortIndex(cursor))
      })
      this.#scope.instances.push(component.exports)
      return
    }
    if (form !== 0x01) throw unknownForm('instance', form)
    const exports: Exports = new Map()
    readEach(cursor, this.#scope, () => {
      const name = readExternName(cursor)
      exports.set(
        name,
        readNamed(name, () => this.#readSortIndex(cursor)),
      )
    })
    this.#scope.instances.push(exports)
  }

  #count(counts: Map<number, number>): void {
    const own = this.#result.counts
    for (const [module, count] of counts) {
      const sum = (own.get(module) ?? 0) + count
      if (sum > MAX_CORE_INSTANCES) {
        throw new ModuleRefusal(`the component instantiates a core module more than ${MAX_CORE_INSTANCES} times`)
      }
      own.set(module, sum)
    }
    this.#scope.budget.spend(counts.size)
  }

  #readAlias(cursor: ByteCursor): void {
    const sort = cursor.byte()
    const coreSort = sort === SORT.core ? cursor.byte() : undefined
    const target = cursor.byte()
    if (target === 0x02) return this.#readOuterAlias(cursor, sort, coreSort)
    const index = cursor.u32()
    if (target === 0x01 && sort === SORT.core) return this.#readCoreName(cursor, 'an alias')
    if (target !== 0x00 || sort === SORT.core) throw unknownForm('alias', target)
    const name = readBoundedName(cursor, 'an alias')
    const extern = found(this.#scope.instanceAt(index).get(name), 'export', showName(name))
    this.#add(extern)
  }

  #readOuterAlias(cursor: ByteCursor, sort: number, coreSort: number | undefined): void {
    const levels = cursor.u32()
    const index = cursor.u32()
    const outer = this.#outer(levels)
    if (coreSort === CORE_SORT.module) {
      this.#modules.push(found(outer.#modules[index], 'core module', index))
    } else if (sort === SORT.component) {
      this.#components.push(found(outer.#components[index], 'component', index))
    } else if (sort === SORT.type) {
      this.#scope.add({ sort: 'type', type: outer.#scope.typeAt(index) })
    } else if (sort !== SORT.core) {
      throw unknownForm('outer alias', sort)
    }
  }

  #outer(levels: number): ComponentReader {
    return levels === 0 ? this : found(this.#parent, 'enclosing component', levels).#outer(levels - 1)
  }

  #add(extern: Extern): void {
    if (extern.sort === 'module' || extern.sort === 'component') {
      throw passedAround()
    }
    this.#scope.add(extern)
  }

  /** `canon lift` defines a function of the component; other forms define core functions, which are not visible outside. */
  #readCanonical(cursor: ByteCursor): void {
    const form = cursor.byte()
    switch (form) {
      case 0x00:
        cursor.skip(1)
        cursor.u32()
        readCanonicalOptions(cursor, this.#scope)
        this.#scope.functions.push(this.#scope.functionType(cursor.u32()))
        return
      case 0x01:
        cursor.skip(1)
        cursor.u32()
        return readCanonicalOptions(cursor, this.#scope)
      // resource.new, resource.drop, resource.rep
      case 0x02:
      case 0x03:
      case 0x04:
        cursor.u32()
        return
      default:
        throw unknownForm('canonical function', form)
    }
  }

  #readImport(cursor: ByteCursor): void {
    const name = readExternName(cursor)
    const extern = readNamed(name, () => readExternDescription(cursor, this.#scope))
    this.#result.imports.push({ name, extern })
    this.#add(extern)
  }

  #readExport(cursor: ByteCursor): void {
    const name = readExternName(cursor)
    const inner = readNamed(name, () => this.#readSortIndex(cursor))
    const hasAscription = cursor.byte()
    if (hasAscription > 1) throw unknownForm('export', hasAscription)
    const extern = hasAscription === 1 ? readExternDescription(cursor, this.#scope) : inner
    this.#result.exports.set(name, extern)
    this.#add(extern)
  }

  #readSortIndex(cursor: ByteCursor): Extern {
    const sort = cursor.byte()
    if (sort === SORT.core) throw passedAround()
    const index = cursor.u32()
    switch (sort) {
      case SORT.function:
        return { sort: 'function', type: this.#scope.functionAt(index) }
      case SORT.type:
        return { sort: 'type', type: this.#scope.typeAt(index) }
      case SORT.component:
        return { sort: 'component', exports: found(this.#components[index], 'component', index).exports }
      case SORT.instance:
        return { sort: 'instance', exports: this.#scope.instanceAt(index) }
      default:
        throw unknownForm('sort', sort)
    }
  }
}

function passedAround(): ModuleRefusal {
  return new ModuleRefusal('the component passes core modules or components around, which is not accepted')
}

/** String encodings, memory, realloc and post-return; those of asynchronous functions belong to WASI 0.3. */
function readCanonicalOptions(cursor: ByteCursor, scope: TypeScope): void {
  readEach(cursor, scope, () => {
    const option = cursor.byte()
    if (option > 5) throw unknownForm('canonical option', option)
    if (option >= 3) cursor.u32()
  })
}
