export { DEFAULT_MODULE_BOUNDS, PAGE_BYTES, memoryLimitPages, readBoundedModule, tableEntries } from './bounds.ts'
export type { ModuleBounds } from './bounds.ts'
export { ByteCursor, encodeUnsigned } from './byte-cursor.ts'
export { COMMAND_FUNCTION, describeModule, findFunction, findUnofferedImports, formatType } from './describe.ts'
export type { DescribedExport, DescribedImport, FunctionChoice, ModuleDescription } from './describe.ts'
export { isCallableFromJson, parseInputs, presentResult } from './inputs.ts'
export type { InputRefusal, JsonNumber, WasmNumber } from './inputs.ts'
export { OPCODE, skipInstruction } from './instructions.ts'
export { SECTION, readModule, readModuleKind } from './module-reader.ts'
export type {
  ExternKind,
  Limits,
  ModuleExport,
  ModuleImport,
  ModuleKind,
  ModuleLayout,
  Section,
} from './module-reader.ts'
export { ModuleRefusal } from './module-refusal.ts'
export type { FunctionType, ValueType } from './value-types.ts'
export { WASI_PREVIEW1_FUNCTIONS, WASI_PREVIEW1_MODULE, isWasiPreview1Import } from './wasi-preview1.ts'
export type { WasiPreview1Function } from './wasi-preview1.ts'
