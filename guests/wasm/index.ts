export {
  DEFAULT_MODULE_BOUNDS,
  PAGE_BYTES,
  checkComponentBounds,
  memoryLimitPages,
  ownMemories,
  ownTables,
  readBoundedModule,
  tableEntries,
} from './bounds.ts'
export type { ComponentNeeds, ModuleBounds } from './bounds.ts'
export { ByteCursor } from './byte-cursor.ts'
export { readComponent } from './component-reader.ts'
export { describeUnoffered } from './remedies.ts'
export { boundFunctionNames } from './function-names.ts'
export { renameCoreNames } from './rename-core-names.ts'
export type { ComponentLayout } from './component-reader.ts'
export {
  COMMAND_FUNCTION,
  describeComponent,
  describeModule,
  findFunction,
  findUnofferedImports,
  findUnofferedOfComponent,
  formatType,
  isCommand,
} from './describe.ts'
export type { DescribedExport, DescribedImport, FunctionChoice, ModuleDescription } from './describe.ts'
export {
  HTTP_FUNCTIONS,
  HTTP_METHODS,
  HTTP_RUNTIME,
  MAX_HTTP_BODY_BYTES,
  MAX_HTTP_HEADERS,
  MAX_HTTP_HEADER_BYTES,
  MAX_HTTP_RESPONSE_BYTES,
  MAX_HTTP_URL_CHARS,
  isHttpHeaderName,
  isHttpHeaderValue,
  isHttpMethod,
  isReservedHttpHeader,
  refusalOfHeaders,
} from './http.ts'
export type { HttpAnswer, HttpCall, HttpHeaders, HttpMethod } from './http.ts'
export { examineModule } from './examine.ts'
export type { ExaminedModule, ModuleRuntime } from './examine.ts'
export {
  MESSAGING_CODES,
  MESSAGING_CODE_OTHER,
  MESSAGING_FUNCTIONS,
  MESSAGING_INTERFACES,
  MESSAGING_MODULE,
  isStateCall,
  refuseCall,
} from './messaging.ts'
export type { ChannelCall, GuestCall, GuestReply, StateCall } from './messaging.ts'
export {
  MAX_STATE_BYTES_OF_RUN,
  MAX_STATE_KEYS_LISTED,
  MAX_STATE_KEYS_OF_RUN,
  MAX_STATE_KEYS_READ,
  MAX_STATE_KEY_BYTES,
  MAX_STATE_VALUE_BYTES,
  NO_VERSION,
  STATE_BUCKETS,
  STATE_FUNCTIONS,
  STATE_INTERFACES,
  STATE_RUNTIME,
  STATE_VERSIONS,
  refusalOfKey,
  stateInterface,
  usesState,
} from './state.ts'
export type { StateBucket, StateEntry, StateValues } from './state.ts'
export { isCallableFromJson, parseInputs } from './inputs.ts'
export type { InputRefusal } from './inputs.ts'
export { presentResult } from './numbers.ts'
export type { JsonNumber } from './numbers.ts'
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
export { WASI_PREVIEW2_DENIED, WASI_PREVIEW2_FUNCTIONS, wasiPreview2Interface } from './wasi-preview2.ts'
export { formatWitType, parseWitType } from './wit-types.ts'
export type { WitType } from './wit-types.ts'
export { camelCase, fromComponentValue } from './wit-values.ts'
export type { BytesForm, Json } from './wit-values.ts'
