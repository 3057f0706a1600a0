/**
 * The type section of a component and other places with types (component model, Binary.md): value types, function, instance and
 * component types. Types are resolved while they are parsed, so results contain no indices.
 */
import type { ByteCursor } from './byte-cursor.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { readCaseLabel, readExternName, readLabel, requireUsableName, showName } from './names.ts'
import type { WitPrimitive, WitType } from './wit-types.ts'

export type ComponentFunction = { params: [name: string, type: WitType][]; result: WitType | undefined }

/** The definition of an imported or exported name. */
export type Extern =
  | { sort: 'function'; type: ComponentFunction }
  | { sort: 'type'; type: TypeDefinition }
  | { sort: 'instance'; exports: Exports }
  | { sort: 'component'; exports: Exports }
  | { sort: 'module' | 'value' }
export type Exports = Map<string, Extern>

export type TypeDefinition =
  | { sort: 'value'; type: WitType }
  | { sort: 'function'; type: ComponentFunction }
  | { sort: 'instance'; exports: Exports }
  | { sort: 'component'; exports: Exports }

/** The index spaces of types: one per component, and one per instance or component type. */
export class TypeScope {
  readonly parent: TypeScope | undefined
  readonly types: TypeDefinition[] = []
  readonly functions: ComponentFunction[] = []
  readonly instances: Exports[] = []
  readonly #budget: Budget
  readonly depth: number

  constructor(budget: Budget, parent?: TypeScope) {
    this.#budget = budget
    this.parent = parent
    this.depth = parent === undefined ? 0 : parent.depth + 1
    if (this.depth > MAX_DEPTH) throw new ModuleRefusal(`the component nests deeper than ${MAX_DEPTH} levels`)
  }

  get budget(): Budget {
    return this.#budget
  }

  typeAt(index: number): TypeDefinition {
    return found(this.types[index], 'type', index)
  }

  functionAt(index: number): ComponentFunction {
    return found(this.functions[index], 'function', index)
  }

  instanceAt(index: number): Exports {
    return found(this.instances[index], 'instance', index)
  }

  valueType(index: number): WitType {
    const type = this.typeAt(index)
    if (type.sort !== 'value') throw new ModuleRefusal(`type ${index} of the component is not a value type`)
    return type.type
  }

  functionType(index: number): ComponentFunction {
    const type = this.typeAt(index)
    if (type.sort !== 'function') throw new ModuleRefusal(`type ${index} of the component is not a function type`)
    return type.type
  }

  /** The enclosing scope, `levels` levels further out. */
  outer(levels: number): TypeScope {
    return levels === 0 ? this : found(this.parent, 'enclosing component', levels).outer(levels - 1)
  }

  /** Adds an import, export or alias to the index space of its sort. */
  add(extern: Extern): void {
    this.#budget.spend(1)
    if (extern.sort === 'function') this.functions.push(extern.type)
    else if (extern.sort === 'type') this.types.push(extern.type)
    else if (extern.sort === 'instance') this.instances.push(extern.exports)
  }
}

const MAX_DEPTH = 20
const MAX_ITEMS = 200_000

/** Limits definitions, names and parts of types of one component file. */
export class Budget {
  #left = MAX_ITEMS

  spend(count: number): void {
    this.#left -= count
    if (this.#left < 0) throw new ModuleRefusal(`the component has more than ${MAX_ITEMS} definitions`)
  }
}

export function found<T>(value: T | undefined, what: string, index: number | string): T {
  if (value === undefined) throw new ModuleRefusal(`the component refers to ${what} ${index}, which does not exist`)
  return value
}

const ASYNC_CURE =
  'WASI 0.2 is served, which has no async: build without async functions (componentize-qjs: --sync; wit-bindgen: no async in the WIT)'

/** Parts of the Component Model that are known and not served, by the place of their code (Component Model, "Binary Format"). */
const UNSERVED: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  'type form': { 0x43: 'async functions', 0x65: 'future', 0x66: 'stream', 0x63: 'map', 0x67: 'lists of fixed length' },
  'value type': { 0x64: 'error-context' },
  'canonical option': { 0x06: 'async functions', 0x07: 'async functions with a callback' },
  description: { 0x02: 'values' },
}
/** Canonical functions from this code on are those of async. */
const FIRST_ASYNC_FUNCTION = 0x05
/** The unserved features that do not belong to async. */
const SYNCHRONOUS: ReadonlySet<string> = new Set(['map', 'lists of fixed length', 'values'])

/** Words for a code of the binary format that is not accepted. */
export function unknownForm(what: string, code: number): ModuleRefusal {
  const isAsyncFunction = what === 'canonical function' && code >= FIRST_ASYNC_FUNCTION
  const known = isAsyncFunction ? 'built-in functions for async' : UNSERVED[what]?.[code]
  if (known === undefined) {
    const hex = code.toString(16).padStart(2, '0')
    return new ModuleRefusal(
      `the component uses a ${what} 0x${hex} that is not accepted: it is no part of the Component Model of WASI 0.2`,
    )
  }
  const cure = SYNCHRONOUS.has(known) ? 'WASI 0.2 is served, whose Component Model does not have this' : ASYNC_CURE
  return new ModuleRefusal(`the component uses ${known}; ${cure}`)
}

/** A vector: its length, limited by the rest of the file, then its items. */
export function readEach(cursor: ByteCursor, scope: TypeScope, read: () => void): void {
  const count = cursor.count('definitions', MAX_ITEMS)
  scope.budget.spend(count)
  for (let index = 0; index < count; index++) read()
}

export function readTypes(cursor: ByteCursor, scope: TypeScope): void {
  readEach(cursor, scope, () => scope.types.push(readTypeDefinition(cursor, scope)))
}

const PRIMITIVES: Record<number, WitPrimitive> = {
  0x7f: 'bool',
  0x7e: 's8',
  0x7d: 'u8',
  0x7c: 's16',
  0x7b: 'u16',
  0x7a: 's32',
  0x79: 'u32',
  0x78: 's64',
  0x77: 'u64',
  0x76: 'f32',
  0x75: 'f64',
  0x74: 'char',
  0x73: 'string',
}

function readTypeDefinition(cursor: ByteCursor, scope: TypeScope): TypeDefinition {
  const form = cursor.byte()
  switch (form) {
    case 0x40:
      return { sort: 'function', type: readFunctionType(cursor, scope) }
    case 0x41:
    case 0x42:
      return { sort: form === 0x41 ? 'component' : 'instance', exports: readDeclarations(cursor, scope) }
    case 0x3f:
      // Its representation, always i32, and an optional destructor.
      cursor.skip(1)
      if (cursor.byte() === 1) cursor.u32()
      return { sort: 'value', type: { kind: 'resource' } }
    default:
      return { sort: 'value', type: readDefinedType(form, cursor, scope) }
  }
}

function readDefinedType(form: number, cursor: ByteCursor, scope: TypeScope): WitType {
  const primitive = PRIMITIVES[form]
  if (primitive !== undefined) return { kind: primitive }
  const names = (what: string) => readList(cursor, scope, () => readLabel(cursor, what))
  switch (form) {
    case 0x72:
      return { kind: 'record', fields: readFields(cursor, scope, 'a field') }
    case 0x71:
      return { kind: 'variant', cases: readList(cursor, scope, () => readCase(cursor, scope)) }
    case 0x70:
      return { kind: 'list', item: readValueType(cursor, scope) }
    case 0x6f:
      return { kind: 'tuple', items: readList(cursor, scope, () => readValueType(cursor, scope)) }
    case 0x6e:
      return { kind: 'flags', names: names('a flag') }
    case 0x6d:
      return { kind: 'enum', names: names('a case') }
    case 0x6b:
      return { kind: 'option', item: readValueType(cursor, scope) }
    case 0x6a: {
      const ok = readOptional(cursor, () => readValueType(cursor, scope))
      return { kind: 'result', ok, err: readOptional(cursor, () => readValueType(cursor, scope)) }
    }
    // own and borrow: handles of a resource
    case 0x69:
    case 0x68:
      scope.valueType(cursor.u32())
      return { kind: 'resource' }
    default:
      throw unknownForm('type form', form)
  }
}

function readList<T>(cursor: ByteCursor, scope: TypeScope, read: () => T): T[] {
  const items: T[] = []
  readEach(cursor, scope, () => items.push(read()))
  return items
}

function readFields(cursor: ByteCursor, scope: TypeScope, what: string): [string, WitType][] {
  return readList(cursor, scope, () => [readLabel(cursor, what), readValueType(cursor, scope)])
}

function readCase(cursor: ByteCursor, scope: TypeScope): [string, WitType | undefined] {
  const name = readCaseLabel(cursor, 'a case')
  const type = readOptional(cursor, () => readValueType(cursor, scope))
  if (cursor.byte() !== 0) throw new ModuleRefusal('the component has a variant whose cases refine others')
  return [name, type]
}

function readOptional<T>(cursor: ByteCursor, read: () => T): T | undefined {
  const flag = cursor.byte()
  if (flag > 1) throw unknownForm('option', flag)
  return flag === 1 ? read() : undefined
}

/** A primitive type in one byte, or the index of a type: a signed integer of 33 bits that is not negative. */
function readValueType(cursor: ByteCursor, scope: TypeScope): WitType {
  const first = cursor.peek()
  if (first >= 0x40 && first < 0x80) {
    cursor.skip(1)
    const kind = PRIMITIVES[first]
    if (kind === undefined) throw unknownForm('value type', first)
    return { kind }
  }
  return scope.valueType(cursor.u32())
}

function readFunctionType(cursor: ByteCursor, scope: TypeScope): ComponentFunction {
  const params = readFields(cursor, scope, 'a parameter')
  const form = cursor.byte()
  if (form === 0) return { params, result: readValueType(cursor, scope) }
  if (form !== 1 || cursor.byte() !== 0) throw unknownForm('result list', form)
  return { params, result: undefined }
}

/** The declarations of an instance or component type, in their own scope. Imports only take part in indices. */
function readDeclarations(cursor: ByteCursor, parent: TypeScope): Exports {
  const scope = new TypeScope(parent.budget, parent)
  const exports: Exports = new Map()
  readEach(cursor, scope, () => {
    const form = cursor.byte()
    switch (form) {
      case 0x01:
        scope.types.push(readTypeDefinition(cursor, scope))
        return
      case 0x02:
        readTypeAlias(cursor, scope)
        return
      case 0x03:
        scope.add(readNamed(readExternName(cursor), () => readExternDescription(cursor, scope)))
        return
      case 0x04: {
        const name = readExternName(cursor)
        const extern = readNamed(name, () => readExternDescription(cursor, scope))
        exports.set(name, extern)
        scope.add(extern)
        return
      }
      default:
        throw unknownForm('declaration', form)
    }
  })
  return exports
}

/** Within types only types and instances are aliased. */
function readTypeAlias(cursor: ByteCursor, scope: TypeScope): void {
  const sort = cursor.byte()
  const target = cursor.byte()
  if (target === 0) {
    const exports = scope.instanceAt(cursor.u32())
    const name = cursor.name()
    return scope.add(found(exports.get(name), 'export', showName(name)))
  }
  if (sort !== 0x03 || target !== 2) throw unknownForm('alias', sort)
  const outer = scope.outer(cursor.u32())
  scope.add({ sort: 'type', type: outer.typeAt(cursor.u32()) })
}

/**
 * Reads the extern that a name stands for. Throws ModuleRefusal for a name that JavaScript reserves; types other than resources may have
 * it.
 */
export function readNamed(name: string, read: () => Extern): Extern {
  const extern = read()
  const isPlainType = extern.sort === 'type' && extern.type.sort === 'value' && extern.type.type.kind !== 'resource'
  if (!isPlainType) requireUsableName(name)
  return extern
}

export function readExternDescription(cursor: ByteCursor, scope: TypeScope): Extern {
  const form = cursor.byte()
  switch (form) {
    case 0x00:
      if (cursor.byte() !== 0x11) throw unknownForm('description', form)
      cursor.u32()
      return { sort: 'module' }
    case 0x01:
      return { sort: 'function', type: scope.functionType(cursor.u32()) }
    case 0x03:
      return { sort: 'type', type: readTypeBound(cursor, scope) }
    case 0x04:
    case 0x05: {
      const index = cursor.u32()
      const type = scope.typeAt(index)
      const sort = form === 0x04 ? 'component' : 'instance'
      if (type.sort !== sort) throw new ModuleRefusal(`type ${index} of the component is not a ${sort} type`)
      return { sort, exports: type.exports }
    }
    default:
      throw unknownForm('description', form)
  }
}

function readTypeBound(cursor: ByteCursor, scope: TypeScope): TypeDefinition {
  const form = cursor.byte()
  if (form === 0) return scope.typeAt(cursor.u32())
  if (form !== 1) throw unknownForm('type bound', form)
  return { sort: 'value', type: { kind: 'resource' } }
}
