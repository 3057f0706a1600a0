/** Describes the exports and imports of a module or component with their types, as text. */
import type { ComponentLayout } from './component-reader.ts'
import type { ComponentFunction, Exports } from './component-types.ts'
import type { ExternKind, ModuleExport, ModuleImport, ModuleLayout } from './module-reader.ts'
import { ModuleRefusal } from './module-refusal.ts'
import { MESSAGING_FUNCTIONS, MESSAGING_MODULE } from './messaging.ts'
import { HTTP_FUNCTIONS } from './http.ts'
import { STATE_FUNCTIONS } from './state.ts'
import { isWasiPreview1Import } from './wasi-preview1.ts'
import { COMMAND_INTERFACE, findUnofferedOf, wasiPreview2Interface } from './wasi-preview2.ts'
import { formatWitType } from './wit-types.ts'
import type { WitType } from './wit-types.ts'

/** `params` and `results` name types of core functions (`i32`) or of component functions (`list<u8>`). */
export type DescribedExport = { name: string; kind: ExternKind | 'instance'; params: string[]; results: string[] }
export type DescribedImport = DescribedExport & { module: string }
export type ModuleDescription = { exports: DescribedExport[]; imports: DescribedImport[] }

/** The default functions of a module, in the order in which they are looked for. */
const DEFAULT_FUNCTIONS = ['_start', 'run', 'main']
/** The entry point of a WASI command: takes no parameters and returns its exit code. */
export const COMMAND_FUNCTION = '_start'
/** Called before every other function of a reactor. */
const INITIALIZE_FUNCTION = '_initialize'

/** The limit for names and types of all exports and imports as JSON, which are stored, sent to workers and shown. */
const MAX_DESCRIPTION_BYTES = 256 * 1024

/**
 * Exports and imports in the module's order; `params` and `results` are empty unless it is a function. Throws ModuleRefusal when
 * the description is too large.
 */
export function describeModule(layout: ModuleLayout): ModuleDescription {
  const size = new DescriptionSize()
  const describe = ({ name, kind, type }: ModuleExport | ModuleImport): DescribedExport =>
    size.add({ name, kind, params: type?.params ?? [], results: type?.results ?? [] })
  return {
    exports: layout.exports.map(describe),
    imports: layout.imports.map((wanted) => ({ module: size.spend(wanted.module), ...describe(wanted) })),
  }
}

/** Limits the size of a description: shared types can make that of a small file enormous. */
class DescriptionSize {
  #bytes = 0

  add(described: DescribedExport): DescribedExport {
    this.spend(described)
    return described
  }

  spend<T>(part: T): T {
    this.#bytes += new TextEncoder().encode(JSON.stringify(part)).length
    if (this.#bytes > MAX_DESCRIPTION_BYTES) {
      throw new ModuleRefusal(
        `names and types of all exports and imports take more than ${MAX_DESCRIPTION_BYTES} bytes as JSON`,
      )
    }
    return part
  }
}

/** Unsupported imports, as `module.name (i32) -> (i32)`: all except WASI preview 1, messaging, state and HTTP. */
export function findUnofferedImports(layout: ModuleLayout): string[] {
  return layout.imports
    .filter((wanted) => !isWasiPreview1Import(wanted) && !isSkeinImport(wanted))
    .map(
      (wanted) =>
        `${wanted.module}.${wanted.name} ${wanted.type === undefined ? wanted.kind : formatType(wanted.type)}`,
    )
}

const SKEIN_FUNCTIONS: Record<string, { params: readonly string[]; results: readonly string[] }> = {
  ...MESSAGING_FUNCTIONS,
  ...STATE_FUNCTIONS,
  ...HTTP_FUNCTIONS,
}

function isSkeinImport({ module, name, type }: ModuleImport): boolean {
  if (module !== MESSAGING_MODULE || type === undefined || !Object.hasOwn(SKEIN_FUNCTIONS, name)) return false
  const offered = SKEIN_FUNCTIONS[name]
  return offered !== undefined && formatType(offered) === formatType(type)
}

/**
 * Functions of exported interfaces are named `<interface>#<function>`; imports are listed by interface. Throws ModuleRefusal when
 * a type, or the description, is too long.
 */
export function describeComponent(layout: ComponentLayout): ModuleDescription {
  const size = new DescriptionSize()
  const exports: DescribedExport[] = []
  const format = (type: WitType) => size.spend(formatWitType(type))
  const show = (name: string, type: ComponentFunction) => {
    const params = type.params.map(([, param]) => format(param))
    const results = type.result === undefined ? [] : [format(type.result)]
    exports.push({ ...size.add({ name, kind: 'function', params: [], results: [] }), params, results })
  }
  for (const [name, extern] of layout.exports) {
    if (extern.sort === 'function') show(name, extern.type)
    if (extern.sort === 'instance') {
      for (const [inner, type] of functionsOf(extern.exports)) show(`${name}#${inner}`, type)
    }
  }
  const imports = layout.imports
    .filter(({ extern }) => extern.sort !== 'type')
    .map(({ name, extern }): DescribedImport => {
      const kind = extern.sort === 'function' ? 'function' : 'instance'
      return { module: size.spend(name), ...size.add({ name: '', kind, params: [], results: [] }) }
    })
  return { exports, imports }
}

/** Returns the functions without methods and constructors of resources: their handles have no meaning outside of the component. */
function functionsOf(exports: Exports): [string, ComponentFunction][] {
  return [...exports].flatMap(([name, extern]) =>
    extern.sort === 'function' && !name.startsWith('[') ? [[name, extern.type] as [string, ComponentFunction]] : [],
  )
}

/** Unsupported imports of a component, as interface or `interface#function`. */
export function findUnofferedOfComponent(layout: ComponentLayout): string[] {
  return layout.imports.flatMap(({ name, extern }) => findUnofferedOf(name, extern))
}

/** True for the entry point of a command: `_start`, or the function of `wasi:cli/run`. */
export function isCommand(exported: Pick<DescribedExport, 'name'>): boolean {
  if (exported.name === COMMAND_FUNCTION) return true
  const [name = '', inner] = exported.name.split('#')
  return inner === 'run' && wasiPreview2Interface(name) === COMMAND_INTERFACE
}

export function formatType(type: { params: readonly string[]; results: readonly string[] }): string {
  return `(${type.params.join(', ')}) -> (${type.results.join(', ')})`
}

export type FunctionChoice = { explicit?: string | undefined; fallback?: string | undefined }

/**
 * Selects the exported function of a call: `explicit` when it is given; otherwise `fallback` when it is exported; otherwise
 * `_start`, `run`, `main`; otherwise the only exported function apart from `_initialize`. Undefined when none applies. A function of an interface may be
 * named without the interface when only one interface has it.
 */
export function findFunction(exports: DescribedExport[], choice: FunctionChoice): DescribedExport | undefined {
  const functions = exports.filter((exported) => exported.kind === 'function')
  const named = (name: string) => {
    const exact = functions.find((exported) => exported.name === name)
    const inInterfaces = name === '' ? [] : functions.filter((exported) => exported.name.endsWith(`#${name}`))
    return exact ?? (inInterfaces.length === 1 ? inInterfaces[0] : undefined)
  }
  if (choice.explicit !== undefined && choice.explicit !== '') return named(choice.explicit)
  for (const name of [choice.fallback ?? '', ...DEFAULT_FUNCTIONS]) {
    const found = named(name)
    if (found !== undefined) return found
  }
  const called = functions.filter(({ name }) => name !== INITIALIZE_FUNCTION)
  return called.length === 1 ? called[0] : undefined
}
