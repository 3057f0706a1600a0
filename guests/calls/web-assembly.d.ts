/** The used part of the WebAssembly JavaScript interface: TypeScript declares it only in its browser library. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array)
  }
  type Imports = Record<string, Record<string, unknown>>
  class Instance {
    constructor(module: Module, imports?: Imports)
    readonly exports: Record<string, unknown>
  }
  class Memory {
    constructor(descriptor: { initial: number; maximum?: number })
    readonly buffer: ArrayBuffer
  }
  class Global {
    readonly value: unknown
  }
  class Exception extends Error {}
  class CompileError extends Error {}
  class LinkError extends Error {}
  class RuntimeError extends Error {}
  function compile(bytes: Uint8Array): Promise<Module>
  function validate(bytes: Uint8Array): boolean
}
