/** What a module offers and asks for, in the words that people read: exports and imports with their types. */
import type { ExternKind, ModuleExport, ModuleImport, ModuleLayout } from './module-reader.ts'
import type { FunctionType, ValueType } from './value-types.ts'
import { isWasiPreview1Import } from './wasi-preview1.ts'

export type DescribedExport = { name: string; kind: ExternKind; params: ValueType[]; results: ValueType[] }
export type DescribedImport = DescribedExport & { module: string }
export type ModuleDescription = { exports: DescribedExport[]; imports: DescribedImport[] }

/** The default functions of a module, in the order in which they are looked for. */
const DEFAULT_FUNCTIONS = ['_start', 'run', 'main']
/** The entry point of a command of WASI: it takes nothing and answers with its exit code. */
export const COMMAND_FUNCTION = '_start'

/** Exports and imports in the module's order; `params` and `results` are empty for what is no function. */
export function describeModule(layout: ModuleLayout): ModuleDescription {
  return {
    exports: layout.exports.map(describeExtern),
    imports: layout.imports.map((wanted) => ({ module: wanted.module, ...describeExtern(wanted) })),
  }
}

function describeExtern(extern: ModuleExport | ModuleImport): DescribedExport {
  return {
    name: extern.name,
    kind: extern.kind,
    params: extern.type?.params ?? [],
    results: extern.type?.results ?? [],
  }
}

/** Imports that nobody offers, as `module.name (i32) -> (i32)`: everything but the functions of WASI preview 1. */
export function findUnofferedImports(layout: ModuleLayout): string[] {
  return layout.imports
    .filter((wanted) => !isWasiPreview1Import(wanted))
    .map(
      (wanted) =>
        `${wanted.module}.${wanted.name} ${wanted.type === undefined ? wanted.kind : formatType(wanted.type)}`,
    )
}

export function formatType(type: FunctionType): string {
  return `(${type.params.join(', ')}) -> (${type.results.join(', ')})`
}

export type FunctionChoice = { explicit?: string | undefined; fallback?: string | undefined }

/**
 * Which exported function a call means: `explicit` when given; else `fallback` when it is exported; else `_start`,
 * `run`, `main`; else the only exported function. Undefined when none of them decides.
 */
export function findFunction(exports: DescribedExport[], choice: FunctionChoice): DescribedExport | undefined {
  const functions = exports.filter((exported) => exported.kind === 'function')
  const named = (name: string) => functions.find((exported) => exported.name === name)
  if (choice.explicit !== undefined && choice.explicit !== '') return named(choice.explicit)
  for (const name of [choice.fallback ?? '', ...DEFAULT_FUNCTIONS]) {
    const found = named(name)
    if (found !== undefined) return found
  }
  return functions.length === 1 ? functions[0] : undefined
}
